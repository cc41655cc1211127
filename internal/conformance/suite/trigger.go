package suite

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/dblock-go/dblock/internal/devdb"
)

// Trigger has a trigger of the host's run a statement, in PL/pgSQL or in MySQL's language, for each
// row that meets a condition, until drop is called. It fires when ("AFTER UPDATE") a row is
// written.
func (d *DB) Trigger(t *testing.T, when, table, condition, statement string) (drop func()) {
	t.Helper()
	name := strings.ToLower(strings.ReplaceAll(when, " ", "_") + "_" + table)
	if !d.Postgres() {
		d.Exec(t, fmt.Sprintf("CREATE TRIGGER %s %s ON %s FOR EACH ROW IF %s THEN %s; END IF",
			name, when, table, condition, statement))
		return func() { t.Helper(); d.Exec(t, "DROP TRIGGER "+name) }
	}
	d.Exec(t, fmt.Sprintf("CREATE FUNCTION %s() RETURNS trigger LANGUAGE plpgsql AS "+
		"$$ BEGIN %s; RETURN COALESCE(NEW, OLD); END $$", name, statement))
	d.Exec(t, fmt.Sprintf("CREATE TRIGGER %[1]s %[2]s ON %[3]s FOR EACH ROW WHEN (%[4]s) EXECUTE FUNCTION %[1]s()",
		name, when, table, condition))
	return func() { t.Helper(); d.Exec(t, "DROP FUNCTION "+name+" CASCADE") }
}

// Raise is a statement of a trigger that ends with an SQLSTATE.
func Raise(kind devdb.Kind, state, message string) string {
	if kind == devdb.Postgres {
		return fmt.Sprintf("RAISE EXCEPTION '%s' USING ERRCODE = '%s'", message, state)
	}
	return fmt.Sprintf("SIGNAL SQLSTATE '%s' SET MESSAGE_TEXT = '%s'", state, message)
}

// LockTimeout is a statement of a trigger that ends with the server's own lock timeout.
func LockTimeout(kind devdb.Kind) string {
	if kind == devdb.Postgres {
		return Raise(kind, "55P03", "no")
	}
	return "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1205, MESSAGE_TEXT = 'no'"
}

// Conflict is the SQLSTATE of a failed serialization.
const Conflict = "40001"

// Refusals are statements with which a trigger refuses a row, by name, and the errors that end with
// it. They need a table, which is made here. Those in waits are conflicts and timeouts.
func (d *DB) Refusals(t *testing.T) (refusals, waits map[string]string) {
	t.Helper()
	d.Exec(t, "CREATE TABLE audit (id INT PRIMARY KEY, note INT UNIQUE)")
	d.Exec(t, "INSERT INTO audit VALUES (1, 1)")
	states := []string{"08000", "23000", "42000", "ZX001"}
	refusals = map[string]string{"a unique index": "INSERT INTO audit VALUES (2, 1)"}
	waits = map[string]string{Conflict: Raise(d.Kind, Conflict, "no"), "a lock timeout": LockTimeout(d.Kind)}
	if d.Postgres() {
		states = []string{"08006", "23505", "25006", "40002", "53300", "57P01", "XX000", "ZX001"}
		refusals["a primary key"] = "INSERT INTO audit VALUES (1, 2)"
		refusals["a missing table"] = "INSERT INTO missing VALUES (1)"
		waits["57014"] = Raise(d.Kind, "57014", "no")
	} else if d.Kind == devdb.MySQL {
		refusals["a primary key"] = "INSERT INTO audit VALUES (1, 2)"
	} else { // its text names no table
		waits["a primary key"] = "INSERT INTO audit VALUES (1, 2)"
	}
	for _, state := range states {
		refusals[state] = Raise(d.Kind, state, "no")
	}
	return refusals, waits
}

// Both are the entries of two maps.
func Both(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

const (
	tableLock  = 5 * time.Second        // for how long a table stays locked at least
	hurry      = 100 * time.Millisecond // the deadline of calls that give up
	eachCalls  = 8                      // of each kind, with that deadline and without
	tableSlack = 30 * time.Second       // of a busy machine
)

// BehindATable has another session lock a table, and makes calls that need it. Some give up soon
// and begin again. No more sessions wait than the pool may have, but for some that end, and soon
// none that has waited for long. A call without a deadline ends within longest; 0: none is made.
func (d *DB) BehindATable(t *testing.T, table string, conns int64, longest time.Duration, calls map[string]func(context.Context) error) {
	t.Helper()
	waits := "SELECT count(*) FROM " + devdb.Processlist + " WHERE db = DATABASE() AND state LIKE 'Waiting%'"
	long := " AND time > 3"
	if d.Postgres() {
		waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
		long = " AND query_start < now() - INTERVAL '3 s'"
	}
	release := d.LockTables(t, table)
	stop := time.Now().Add(tableLock)
	var all sync.WaitGroup
	for what, call := range calls {
		for range eachCalls {
			all.Go(func() {
				for began := time.Now(); longest > 0 && began.Before(stop); began = time.Now() {
					assert.Error(t, call(t.Context()), what)
					assert.Less(t, time.Since(began), longest+tableSlack, what)
				}
			})
			all.Go(func() {
				for time.Now().Before(stop) {
					ctx, cancel := context.WithTimeout(t.Context(), hurry)
					assert.Error(t, call(ctx), what)
					cancel()
				}
			})
		}
	}
	most, returned := int64(0), make(chan struct{})
	go func() { all.Wait(); close(returned) }()
	for open := true; open; {
		most = max(most, d.Count(t, waits))
		select {
		case <-returned:
			open = false
		case <-time.After(hurry):
		}
	}
	assert.LessOrEqual(t, most, 2*conns, "sessions that wait or are to end")
	d.Until(t, waits+long, 0)
	release()
}

// LockTables has another session lock tables until release.
func (d *DB) LockTables(t *testing.T, tables ...string) (release func()) {
	t.Helper()
	statements := []string{"LOCK TABLES " + strings.Join(tables, " WRITE, ") + " WRITE", "UNLOCK TABLES"}
	if d.Postgres() {
		statements = []string{"BEGIN; LOCK TABLE " + strings.Join(tables, ", "), "ROLLBACK"}
	}
	conn := Must(d.DB.Conn(t.Context()))(t)
	Must(conn.ExecContext(t.Context(), statements[0]))(t)
	return func() {
		Must(conn.ExecContext(t.Context(), statements[1]))(t)
		_ = conn.Close()
	}
}
