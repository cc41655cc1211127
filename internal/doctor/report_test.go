package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
)

// TestJSONStays: programs read it by these names.
func TestJSONStays(t *testing.T) {
	t.Parallel()
	const want = `{"engine":"postgres","server":"CockroachDB v24.1","target":"h:26257/d","problems":1,"warnings":0,"findings":[` +
		`{"check":"connection","status":"ok","found":"database \"d\" as \"u\"","advice":""},` +
		`{"check":"server","status":"problem","found":"CockroachDB v24.1","advice":"dblock's locks are not known to exclude on CockroachDB: ` +
		`use one primary server of PostgreSQL, MySQL or MariaDB"},` +
		`{"check":"session_locks","status":"note","found":"not through this DSN","advice":"no"}]}`
	got, err := json.Marshal(Evaluate(Facts{
		Engine: enginePostgres, Product: "CockroachDB", Version: "v24.1", Target: "h:26257/d", Database: "d", User: "u",
		SessionLocks: errors.New("no"),
	}))
	if err != nil || string(got) != want {
		t.Errorf("%v\n%s, want\n%s", err, got, want)
	}
	const checks = "[connection server writes charset pooler schema tables grants search_path durability clock timeouts isolation connections lock_table session_locks]"
	if got := fmt.Sprint(Checks()); got != checks {
		t.Errorf("checks %s, want %s", got, checks)
	}
	const statuses = "[ok note warning problem]"
	if got := fmt.Sprint([]Status{OK, Note, Warning, Problem}); got != statuses {
		t.Errorf("statuses %s, want %s", got, statuses)
	}
}

// TestThePageHasAllChecks, in their order.
func TestThePageHasAllChecks(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	var headings []string
	for line := range strings.Lines(string(page)) {
		if name, ok := strings.CutPrefix(line, "### "); ok {
			headings = append(headings, strings.TrimSpace(name))
		}
	}
	if fmt.Sprint(headings) != fmt.Sprint(Checks()) {
		t.Errorf("the page has %v, want %v", headings, Checks())
	}
}

func TestRemedies(t *testing.T) {
	t.Parallel()
	dial := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("failed: %w", dial), notListened},
		{&net.DNSError{Err: "no such host", Name: "h", IsNotFound: true}, unknownHost},
		{fmt.Errorf("failed: %w", context.DeadlineExceeded), silent},
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, silent},
		{&pgconn.PgError{Code: "28P01"}, wrongLogin},
		{&pgconn.PgError{Code: "3D000"}, noDatabase},
		{&pgconn.PgError{Code: "53300"}, tooMany},
		{&pgconn.PgError{Code: "57P03"}, starting},
		{&pgconn.PgError{Code: "57014"}, cutOff},
		{&mysql.MySQLError{Number: 1045}, wrongLogin},
		{&mysql.MySQLError{Number: 1049}, noDatabase},
		{&mysql.MySQLError{Number: 1040}, tooMany},
		{&mysql.MySQLError{Number: 1044}, noRights},
		{io.ErrUnexpectedEOF, log},
	} {
		r := unreachable(engineMySQL, "h:1/d", c.err)
		if r.Problems != 1 || len(r.Findings) != 1 || r.Findings[0].Check != connection || r.Findings[0].Advice != c.want {
			t.Errorf("%v: %+v, want %q", c.err, r, c.want)
		}
	}
}
