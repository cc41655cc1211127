package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/schema"
)

// server is about the product and its version.
func server(f Facts) []Finding {
	name := strings.TrimSpace(f.Product + " " + f.Version)
	switch {
	case !f.Known:
		return []Finding{finding(Problem, name,
			"dblock's locks are not known to exclude on "+f.Product+": use one primary server of PostgreSQL, MySQL or MariaDB")}
	case f.TooOld != nil:
		return []Finding{finding(Problem, plain(f.TooOld), "upgrade the server")}
	case f.Cluster != "":
		return []Finding{finding(Warning, name+", "+f.Cluster,
			"row locks and named or advisory locks hold on one node only: send all that uses dblock to the same node")}
	}
	return []Finding{fine(name)}
}

// plain is an error without the prefix that all of dblock's have.
func plain(err error) string { return strings.TrimPrefix(err.Error(), "dblock: ") }

const selectLimit = "sql_select_limit"

// refusedSettings are those of a session on MySQL and MariaDB that constructors refuse; with
// updates, so does package optimistic.
var refusedSettings = []struct {
	name, why string
	updates   bool
	bad       func(value string) bool
}{
	{"autocommit", "autocommit=0 commits no statement of dblock's", true, func(v string) bool { return v == "OFF" }},
	{"transaction_read_only", "single statements can't write", false, on},
	{"tx_read_only", "single statements can't write", false, on},
	{selectLimit, "the server leaves out rows that are read", true, func(v string) bool { return v != mysql.AllRows }},
	{"completion_type", "a transaction follows each one, and later statements are not committed", true, func(v string) bool { return v != "NO_CHAIN" }},
	{"sql_safe_updates", "the server may refuse any UPDATE with error 1175", false, on},
	{"check_constraint_checks", "stock can go below zero", false, func(v string) bool { return v == "OFF" }},
}

func writes(f Facts) []Finding {
	switch {
	case f.Standby && f.postgres():
		return []Finding{finding(Problem, "the server is a standby: it takes no writes",
			"connect to the primary; a DSN with several hosts and target_session_attrs=read-write finds it after a failover, too")}
	case f.Standby:
		return []Finding{finding(Problem, "the server is read-only",
			"connect to the primary; if this is it, SET GLOBAL read_only = 0 (and super_read_only)")}
	}
	for _, r := range refusedSettings {
		if v, read := f.Settings[r.name]; read && r.bad(v) {
			what := "leases, queues, sales and updates by version are refused"
			if !r.updates {
				what = "leases, queues and sales are refused"
			}
			return []Finding{finding(Problem, "the session has "+r.name+" = "+v+": "+r.why,
				what+": take "+r.name+" out of the DSN and of the server's settings")}
		}
	}
	switch {
	case on(f.Settings["log_bin"]) && f.Settings["binlog_format"] == "STATEMENT":
		return []Finding{finding(Problem, "the binary log has binlog_format = STATEMENT: the server refuses writes at READ COMMITTED with error 1665",
			"leases, queues and sales are refused, and guarded transactions fail: set binlog_format = ROW; open sessions keep the old value")}
	case f.ReadOnly:
		return []Finding{finding(Warning, "transactions of this user are read-only by default",
			"services override that, migrations and yours fail: take the default from the role, the database or the DSN")}
	}
	return []Finding{fine("the server takes writes")}
}

// charset is about what a database can store, and about what an escaped value or a quoted name
// means. Whether the driver escapes values does not show here.
func charset(f Facts) []Finding {
	name := f.Settings["character_set_client"]
	switch {
	case f.postgres():
		return encoding(f.Settings["server_encoding"], f.ClientEncoding)
	case slices.Contains(mysql.UnsafeCharsets, name):
		return []Finding{finding(Problem, "connections use "+name+": a quote or a backslash can be the second byte of a character",
			"with interpolateParams=true values in your own queries can become SQL, and names that are not ASCII end early: set charset=utf8mb4 in the DSN")}
	}
	return []Finding{fine("connections use " + name)}
}

// encoding is about a database on Postgres, and about connections to it.
func encoding(server, client string) []Finding {
	var list []Finding
	if schema.PostgresEncoding(server) != nil {
		list = append(list, finding(Problem, "the encoding of the database is "+server+": it cannot store every name and text",
			"leases, queues and sales are refused: "+schema.UseUTF8))
	}
	if postgres.CheckClientEncoding(client) != nil {
		list = append(list, finding(Problem, "connections have client_encoding = "+client+", but the driver sends UTF8: the server would store other texts",
			"sales, guards and EnqueueTx are refused: take client_encoding out of the connection string, and out of what ALTER ROLE and ALTER DATABASE have set"))
	}
	return orFine(list, "the encoding of the database is "+server)
}

func pooler(f Facts) []Finding {
	switch {
	case !f.Pooled:
		return []Finding{fine("none shows")}
	case f.NoTransactions:
		return []Finding{finding(Problem, "there is one in statement mode, which refuses transactions: guards, row locks, queues and sales fail",
			"set its pool_mode to transaction, or connect directly")}
	case f.postgres() && f.Prepares:
		return []Finding{finding(Warning, "there is one, and the DSN has pgx prepare statements by name",
			"unless the pooler is known to follow them (PgBouncer 1.21 with max_prepared_statements): add default_query_exec_mode=cache_describe")}
	case f.postgres():
		return []Finding{finding(Note, "there is one: leases work, and ask again where they would be notified",
			"for locks of a session, to be notified, and to migrate, connect directly")}
	}
	return []Finding{finding(Note, "there is a proxy: leases work where it sends all statements to one server",
		"see that it sends SELECT … FOR UPDATE, and all that uses dblock, to the primary; for named locks connect directly")}
}

func sessionLocks(f Facts) []Finding {
	if f.SessionLocks == nil {
		return []Finding{fine("advisory and named locks exclude all sessions that connect here")}
	}
	why := f.SessionLocks.Error()
	if _, after, found := strings.Cut(why, "session locks: "); found {
		why = after
	}
	return []Finding{finding(Note, "not through this DSN", why)}
}

// A clock that is so far off is wrong, and a correction moves it by as much at once.
const clockWrong = time.Second

func clock(f Facts) []Finding {
	found := differ(f.Ahead, f.Within)
	switch {
	case f.ClockStandsStill:
		return []Finding{finding(Problem, "the session has a timestamp: the server's clock stands still for its statements",
			"leases, queues and sales are refused: take timestamp out of the DSN and of the server's settings")}
	case f.Ahead.Abs()-f.Within > clockWrong:
		return []Finding{finding(Problem, found, "one of the two is wrong. The server's decides how long leases last, and a step of it ends them early "+
			"or late: have both follow NTP, and slew rather than step the server's")}
	case f.Within > clockWrong:
		return []Finding{finding(Note, found, "the answer took too long to say more: run this nearer to the server")}
	}
	return []Finding{fine(found)}
}

func differ(ahead, within time.Duration) string {
	bound := fmt.Sprintf(", give or take %v", about(within))
	switch {
	case ahead.Abs() <= within:
		return "the server's and this machine's agree" + bound
	case ahead < 0:
		return fmt.Sprintf("the server's is %v behind this machine's", about(-ahead)) + bound
	}
	return fmt.Sprintf("the server's is %v ahead of this machine's", about(ahead)) + bound
}

// about rounds up, so that a bound stays one.
func about(d time.Duration) time.Duration {
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}

func isolation(f Facts) []Finding {
	found := "transactions are " + f.Isolation + " by default"
	switch strings.ToLower(strings.ReplaceAll(f.Isolation, "-", " ")) {
	case "read committed":
		return []Finding{fine(found)}
	case "read uncommitted":
		if f.postgres() { // the same there
			return []Finding{fine(found)}
		}
		return []Finding{finding(Problem, found+": reads see what others have not committed",
			"leases, queues and sales are refused: take it out of the DSN and of the server's settings, and set it for the transactions that want it")}
	case "repeatable read":
		if !f.postgres() { // its own default
			return []Finding{fine(found)}
		}
	}
	return []Finding{finding(Note, found, "dblock's own statements choose theirs; guarded transactions of yours may be rolled back to be "+
		"run again, for what others did meanwhile")}
}
