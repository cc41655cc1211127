// Package schema knows dblock's tables by name and version, so that engines can check a database
// before they use it and find the tables in a schema of the host's choice.
package schema

import (
	"strings"

	"github.com/dblock-go/dblock"
)

// Version is the schema version that this program needs: the number of the newest migration.
const Version int64 = 11

// VersionTable is where applied migrations are recorded. It is dblock's own: the host's goose
// state is never touched.
const VersionTable = "dblock_schema_version"

// Prefix begins the names of dblock's tables, and of their constraints and indexes but for some of
// MySQL's.
const Prefix = "dblock_"

// Tables are the tables that the migrations create, without VersionTable. Services read and write
// them.
func Tables() []string {
	return []string{
		"dblock_stock", "dblock_reservation", "dblock_adjustment",
		"dblock_member", "dblock_lease", "dblock_lease_waiter", "dblock_fence",
		"dblock_reader", "dblock_semaphore", "dblock_permit", "dblock_ticket",
		"dblock_session_key", "dblock_quota",
		"dblock_queue", "dblock_queue_job", "dblock_queue_ready", "dblock_queue_scheduled", "dblock_queue_claim", "dblock_queue_cancel",
		"dblock_queue_key", "dblock_queue_blocked", "dblock_queue_unique", "dblock_queue_dead", "dblock_queue_history",
	}
}

// passing has the tables whose rows come and go, so that a service deletes them, too.
func passing(table string) bool {
	if strings.HasPrefix(table, "dblock_queue") {
		return true
	}
	switch table {
	case "dblock_member", "dblock_lease", "dblock_lease_waiter", "dblock_reader", "dblock_ticket", "dblock_session_key":
		return true
	}
	return false
}

// isTable has the names of all tables.
var isTable = func() map[string]bool {
	is := map[string]bool{VersionTable: true}
	for _, table := range Tables() {
		is[table] = true
	}
	return is
}()

const dropIndex = "DROP INDEX "

// Check compares the version that a database has with the one this program needs.
func Check(have int64) error {
	if have != Version {
		return &dblock.SchemaError{Have: have, Want: Version}
	}
	return nil
}

// CheckObjects makes an error of what tables of this program's version lack, or have otherwise.
func CheckObjects(differences []string) error {
	if len(differences) > 0 {
		return &dblock.SchemaError{Have: Version, Want: Version, Differences: differences}
	}
	return nil
}

// Qualify puts every dblock table of sql into the named schema; quote is the engine's way to
// quote a name. Without a name sql stays as it is, and the connection's own setting decides.
func Qualify(sql, name string, quote func(string) string) string {
	if name == "" {
		return sql
	}
	const begin = "dblock_" // of each name
	prefix := quote(name) + "."
	var b strings.Builder
	written := 0
	for at := 0; ; {
		i := strings.Index(sql[at:], begin)
		if i < 0 {
			b.WriteString(sql[written:])
			return b.String()
		}
		i += at
		at = i + len(begin)
		for at < len(sql) && isWord(sql[at]) {
			at++
		}
		if i > 0 && isWord(sql[i-1]) {
			continue
		}
		if isTable[sql[i:at]] || strings.HasSuffix(sql[:i], dropIndex) {
			b.WriteString(sql[written:i])
			b.WriteString(prefix)
			written = i
		}
	}
}

func isWord(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
