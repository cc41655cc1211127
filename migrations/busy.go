package migrations

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pressly/goose/v3/database"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/internal/postgres"
)

// A statement that changes a table waits for the transactions that use it, and all others wait
// behind it. So it waits for patience at most, and lets those pass for at least breath before it
// tries again. MySQL bounds it in whole seconds.
const (
	patience = 500 * time.Millisecond
	breath   = 500 * time.Millisecond

	longestTry = 2 * time.Second // on MySQL, where a statement may wait for the table, and then for a row
)

// patience is how long a statement of this run waits at most.
func (r *run) patience() time.Duration { return min(patience, r.opts.LockTimeout) }

// What servers answer where a lock did not come in time, or two wait for each other.
const (
	pgLockNotAvailable = "55P03"
	pgDeadlock         = "40P01"
	myLockWaitTimeout  = 1205
	myDeadlock         = 1213
)

func blocked(err error) bool {
	var pg *pgconn.PgError
	var my *mysqldriver.MySQLError
	return errors.As(err, &pg) && (pg.Code == pgLockNotAvailable || pg.Code == pgDeadlock) ||
		errors.As(err, &my) && (my.Number == myLockWaitTimeout || my.Number == myDeadlock)
}

// patiently tries until no lock is in the way, for as long as LockTimeout says.
func (r *run) patiently(ctx context.Context, table func() string, try func() error) error {
	return r.repeat(ctx, longestTry, table, func(time.Duration) error { return try() })
}

// repeat passes try what is left of LockTimeout. Of an attempt it counts no more than longest: the
// rest is what the statement itself took.
func (r *run) repeat(ctx context.Context, longest time.Duration, table func() string, try func(left time.Duration) error) error {
	var waited time.Duration
	for {
		began := time.Now()
		err := try(r.opts.LockTimeout - waited)
		if !blocked(err) {
			return err
		}
		waited += min(time.Since(began), longest)
		pause := breath + rand.N(breath)
		if waited+pause > r.opts.LockTimeout {
			return fmt.Errorf("%w: %s was in use for all of %v: %s: end it, or run this again when it has ended: %w",
				dblock.ErrBusy, cmp.Or(table(), "a table"), waited.Round(time.Millisecond), r.blocker(ctx, table()), err)
		}
		if err := pace.Sleep(ctx, pause); err != nil {
			return err
		}
		waited += pause
	}
}

// The first two find the session that has used a table for longest, the third the oldest
// transaction: number, user, program or address.
const (
	blockerPostgres = `SELECT l.pid::text, COALESCE(a.usename::text, ''::text), COALESCE(a.application_name, ''::text)
FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
WHERE l.granted AND l.pid <> pg_catalog.pg_backend_pid() AND (l.locktype = 'virtualxid'::text OR
    l.locktype = 'relation'::text AND l.relation = pg_catalog.to_regclass($1::text)::oid
    AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database()))
ORDER BY l.relation IS NULL, a.xact_start LIMIT 1`

	blockerMySQL = `SELECT t.PROCESSLIST_ID, COALESCE(t.PROCESSLIST_USER, ''), COALESCE(t.PROCESSLIST_HOST, '')
FROM performance_schema.metadata_locks m JOIN performance_schema.threads t ON t.THREAD_ID = m.OWNER_THREAD_ID
LEFT JOIN performance_schema.events_transactions_current e ON e.THREAD_ID = m.OWNER_THREAD_ID AND e.STATE = 'ACTIVE'
WHERE m.OBJECT_SCHEMA = ? AND m.OBJECT_NAME = ? AND m.LOCK_STATUS = 'GRANTED' AND t.PROCESSLIST_ID <> CONNECTION_ID()
ORDER BY e.TIMER_START IS NULL, e.TIMER_START, t.PROCESSLIST_TIME DESC LIMIT 1`

	blockerInnoDB = `SELECT p.ID, p.USER, p.HOST FROM information_schema.INNODB_TRX t
JOIN information_schema.PROCESSLIST p ON p.ID = t.trx_mysql_thread_id
WHERE p.ID <> CONNECTION_ID() ORDER BY t.trx_started LIMIT 1`
)

// blocker says what the server shows of the session that is in the way: less to users without the
// privilege.
func (r *run) blocker(ctx context.Context, table string) string {
	var id, user, from string
	var err error
	which := "which is in the way"
	if r.engine == Postgres {
		err = r.conn.QueryRowContext(ctx, blockerPostgres, r.engine.qualify(r.schema)(table)).Scan(&id, &user, &from)
	} else {
		err = r.conn.QueryRowContext(ctx, blockerMySQL, r.schema, table).Scan(&id, &user, &from)
		if err != nil { // MariaDB shows no metadata locks
			err = r.conn.QueryRowContext(ctx, blockerInnoDB).Scan(&id, &user, &from)
			which = "which is the oldest transaction of the server, and may be the one"
		}
	}
	if err != nil {
		return "a transaction of another session, which this user may not see"
	}
	return fmt.Sprintf("session %s of user %q (%q) has a transaction open, %s", id, user, from, which)
}

// lockTimeout bounds the waits of a Postgres session, or of its transaction.
func lockTimeout(ctx context.Context, on database.DBTxConn, d time.Duration, transaction bool) error {
	var set string
	return on.QueryRowContext(ctx, "SELECT pg_catalog.set_config('lock_timeout', $1::text, $2::boolean)",
		fmt.Sprint(min(max(d.Milliseconds(), 1), math.MaxInt32)), transaction).Scan(&set)
}

// settle sets what the run needs of the session, which is the host's: restore sets it back, or ends
// the connection.
func (r *run) settle(ctx context.Context) (restore func(), err error) {
	var back string
	var was, wait, rowWait, limit, mode, safe string
	if r.engine == Postgres {
		err = r.conn.QueryRowContext(ctx, "SELECT pg_catalog.current_setting('lock_timeout')").Scan(&was)
		if err == nil {
			back = "SELECT pg_catalog.set_config('lock_timeout', '" + was + "', false)"
			err = lockTimeout(ctx, r.conn, r.patience(), false)
		}
	} else if err = r.conn.QueryRowContext(ctx, "SELECT CAST(@@autocommit AS SIGNED), CAST(@@lock_wait_timeout AS SIGNED), "+
		"CAST(@@innodb_lock_wait_timeout AS SIGNED), CAST(@@sql_select_limit AS CHAR), CONCAT('-', @@sql_mode), "+
		"CAST(@@sql_safe_updates AS SIGNED) LIMIT 1").Scan(&was, &wait, &rowWait, &limit, &mode, &safe); err == nil {
		const set = "SET SESSION autocommit = %s, SESSION lock_wait_timeout = %s, SESSION innodb_lock_wait_timeout = %s, " +
			"SESSION sql_select_limit = %s, SESSION sql_mode = '%s', SESSION sql_safe_updates = %s"
		back = fmt.Sprintf(set, was, wait, rowWait, limit, mode[1:], safe)
		_, err = r.conn.ExecContext(ctx, fmt.Sprintf(set, "1", "1", "1", mysql.AllRows, "STRICT_TRANS_TABLES", "0"))
	}
	return func() {
		if back == "" {
			return // nothing was set
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeBound)
		defer cancel()
		if _, err := r.conn.ExecContext(ctx, back); err != nil {
			discard(r.conn)
		}
	}, err
}

// discard ends a connection whose settings are not known.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(driverConn any) error { // fails if it has ended
		postgres.CloseDriverConn(driverConn)
		return driver.ErrBadConn
	})
}

// concurrently makes CREATE INDEX let writers go on.
func concurrently(text string) string {
	return strings.Replace(text, "INDEX ", "INDEX CONCURRENTLY ", 1)
}
