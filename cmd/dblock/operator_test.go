package main

import (
	"strconv"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/schema"
)

// TestOperatorCommands runs each command of an operator with the grants of docs/grants.md, and what
// only a service may do. Package conformance tests each grant of the other tables.
func TestOperatorCommands(t *testing.T) {
	each(t, func(t *testing.T, kind devdb.Kind, database string) {
		invoke(t, "", "migrate", "up", database).want(t, 0, "")
		operator, role, grants := poorRole(t, kind, database, schema.PostgresOperatorGrants, schema.MySQLOperatorGrants)
		change(t, database, grants...)
		lock, _ := holdKey(t, database, "k")
		const none = "0198c0de-0000-7000-8000-000000000000"
		operate := func(command string) result { return invoke(t, "", append(strings.Fields(command), operator)...) }
		for _, command := range []string{
			"locks", "locks --session", "unlock k --token=" + strconv.FormatInt(fence(t, lock).Token, 10), "permits s 3", "migrate status",
			"queue stats", "queue list", "queue pause q", "queue resume q", "queue retry --all", "queue purge --older=1h",
		} {
			operate(command).want(t, 0, "")
		}
		for _, command := range []string{"queue show ", "queue cancel ", "queue discard ", "queue retry "} {
			if got := operate(command + none); strings.Contains(got.err+got.out, "denied") {
				t.Errorf("%s: %s%s", command, got.out, got.err)
			}
		}
		if got := invoke(t, "", "lock", operator, "k", "--", "true"); got.code == 0 || !strings.Contains(got.err, "denied") {
			t.Errorf("an operator acquired a lock: exit %d, %s", got.code, got.err)
		}
		for table, command := range map[string]string{"dblock_session_key": "locks --session", schema.VersionTable: "migrate status"} {
			change(t, database, "REVOKE SELECT ON "+table+" FROM "+role)
			if got := operate(command); got.code == 0 {
				t.Errorf("without SELECT on %s, %s: exit 0, %s", table, command, got.out)
			}
			change(t, database, "GRANT SELECT ON "+table+" TO "+role)
		}
	})
}
