package pginventory

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// bound begins what a transaction does: it bounds its waits for locks, and has what follows look
// rows up by their keys, one by one. The server keeps plans of what is prepared. One that reads the
// whole table, made while that was small, would stand still with the table growing at tens of
// thousands of orders a second, until statistics are next taken, which may be a minute. It also
// reports whether commits wait for synchronous standbys: see addBound.
const bound = "select pg_catalog.set_config('lock_timeout', $1, true), pg_catalog.set_config('enable_seqscan', 'off', true), " +
	"pg_catalog.set_config('enable_hashjoin', 'off', true), pg_catalog.set_config('enable_mergejoin', 'off', true), " +
	"pg_catalog.current_setting('synchronous_standby_names') <> ''::text"

// addBound adds bound. What is read behind it is unconfirmed if commits wait for synchronous
// standbys.
func (s *statements) addBound(wait string, unconfirmed *bool) {
	s.query(bound, one(nil, nil, nil, nil, unconfirmed), wait)
}

// statements are sent one after the other. The first error ends them.
type statements []statement

type statement struct {
	sql  string
	args []any
	scan func(pgx.Rows) error // nil: it returns no rows
	done func(tag string)     // nil, or called when one without rows has ended
}

func (s *statements) add(sql string, args ...any) {
	*s = append(*s, statement{sql: sql, args: args})
}

func (s *statements) query(sql string, scan func(pgx.Rows) error, args ...any) {
	*s = append(*s, statement{sql: sql, args: args, scan: scan})
}

// sender sends statements.
type sender func(context.Context, statements) error

// inBatch sends them in one round trip.
func (d *database) inBatch(conn *pgxpool.Conn) sender {
	return func(ctx context.Context, all statements) error {
		var batch pgx.Batch
		for _, s := range all {
			queued := batch.Queue(d.SQL(s.sql), s.args...)
			if s.scan != nil {
				queued.Query(s.scan)
			} else if s.done != nil {
				queued.Exec(func(tag pgconn.CommandTag) error { s.done(tag.String()); return nil })
			}
		}
		return conn.SendBatch(ctx, &batch).Close()
	}
}

// oneByOne is for a caller's transaction: it may be one of database/sql, which knows no batches.
func oneByOne(on pgdb.DBTX) sender {
	return func(ctx context.Context, all statements) error {
		for _, s := range all {
			if s.scan == nil {
				tag, err := on.Exec(ctx, s.sql, s.args...)
				if err != nil {
					return err
				}
				if s.done != nil {
					s.done(tag.String())
				}
				continue
			}
			rows, err := on.Query(ctx, s.sql, s.args...)
			if err != nil {
				return err
			}
			if err := s.scan(rows); err != nil {
				return err
			}
		}
		return nil
	}
}

// one scans the one row of a query.
func one(dest ...any) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		defer rows.Close()
		if !rows.Next() {
			return cmp.Or(rows.Err(), pgx.ErrNoRows)
		}
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		rows.Close()
		return rows.Err()
	}
}

// each calls f with every row, scanned into T's fields in their order.
func each[T any](f func(T)) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[T])
		for _, r := range all {
			f(r)
		}
		return err
	}
}

// asTheOwners gives statements of the owner's, in the same transaction, the plans that they would
// have.
var asTheOwners = []string{
	"set local enable_seqscan to default", "set local enable_hashjoin to default", "set local enable_mergejoin to default",
}

// lockTimeout lets the server give up on a lock before we give up on the server: the error then
// says which of the two it was, and the connection lives on. It counts twice: a waiter for a hot
// row waits to become the first in the server's queue, and then for the row.
func lockTimeout(ctx context.Context) time.Duration {
	if driver.IsBrief(ctx) {
		return briefTimeout
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	return max(time.Millisecond, time.Until(deadline)*2/5)
}

// beginWait begins the time that several waits share, in milliseconds. boundRest bounds the next
// wait by what is left of it. If nothing is left, the bound is 1 ms.
const (
	beginWait = "select pg_catalog.set_config('dblock.wait_began', " + nowMs + "::text, true)"
	boundRest = "select pg_catalog.set_config('lock_timeout', greatest(1::bigint, $1::bigint - " + nowMs +
		" + pg_catalog.current_setting('dblock.wait_began')::bigint)::text, true)"
	nowMs = "(extract(epoch from pg_catalog.clock_timestamp()) * 1000::numeric)::bigint"
)

// lockTimeoutMs is lockTimeout in milliseconds.
func lockTimeoutMs(ctx context.Context) string {
	return strconv.FormatInt(lockTimeout(ctx).Milliseconds(), 10)
}

// briefTimeout is longer than a sale usually locks a row, flush included.
const briefTimeout = 50 * time.Millisecond

// maxUnusable is how many connections of the pool are closed before its hooks are to blame.
const maxUnusable = 8

// acquire returns a connection of the host's pool. A host may have left another encoding on a
// connection, or a hook of the pool an open transaction: such a connection is closed.
func (d *database) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	for n := 1; ; n++ {
		conn, err := d.pool.Acquire(ctx)
		if err != nil {
			return nil, sqlerr.Unwritten(err)
		}
		unusable := postgres.CheckUsable(conn.Conn().PgConn())
		if unusable == nil {
			return conn, nil
		}
		_ = conn.Conn().Close(ctx)
		conn.Release()
		if n == maxUnusable {
			return nil, unusable
		}
	}
}

// alone runs fn outside of a transaction.
func alone[T any](ctx context.Context, d *database, fn func(pgdb.DBTX) (T, error)) (found T, err error) {
	conn, err := d.acquire(ctx)
	if err != nil {
		return found, err
	}
	defer conn.Release()
	return fn(d.OnHost(conn))
}

// confirm waits until the synchronous standbys have what is recorded, if that is unconfirmed. In a
// caller's transaction its commit waits.
func (d *database) confirm(ctx context.Context, on pgdb.DBTX, books driver.Books) error {
	if !books.Unconfirmed || len(books.Recorded) == 0 {
		return nil
	}
	return d.q.ConfirmCommits(ctx, on)
}

// rollbackAndConfirm is confirm for the end of a transaction that has written nothing. No row stays
// locked while the standbys are waited for.
func rollbackAndConfirm(ctx context.Context, conn *pgxpool.Conn) error {
	var batch pgx.Batch
	batch.Queue("rollback")
	batch.Queue(pgdb.ConfirmCommits)
	return conn.SendBatch(ctx, &batch).Close()
}

// An INSERT of a quota waits for another transaction that has inserted the same one and has not
// ended. No statement passes over such a row: it is not to be seen. So a batch waits for it for
// quotaTimeout. Then the open quotas are found, one after the other, and the batch goes on without
// them. To its orders they are locked.

const (
	quotaTimeout = "10" // milliseconds

	// findTime is how long open quotas are looked for. Those that are left then are taken for open.
	findTime = 50 * time.Millisecond

	// findTimeout is how long each is waited for, in milliseconds.
	findTimeout = "1"
)

// quotaOpenError is how a batch ends that met an open quota. It has nothing locked.
type quotaOpenError struct{ error }

func (e *quotaOpenError) Unwrap() error { return e.error }

func isQuotaOpen(err error) bool {
	var open *quotaOpenError
	return errors.As(err, &open)
}

// addMissing adds what makes quotas that are missing. done is called when it has made them.
func (s *statements) addMissing(quotas []driver.Quota, done func()) {
	skus, buyers := quotaColumns(quotas)
	*s = append(*s, statement{sql: pgdb.AddQuotas, args: []any{skus, buyers}, done: func(string) { done() }})
}

// closedQuotas returns those quotas that no open transaction of others has inserted. It inserts
// those that are missing, one by one, and takes them back.
func (d *database) closedQuotas(ctx context.Context, conn *pgxpool.Conn, quotas []driver.Quota) ([]driver.Quota, error) {
	began := time.Now()
	there := make(map[driver.Quota]int64)
	try := func(add func(*statements)) error {
		var trip statements
		trip.add(postgres.BeginReadCommitted)
		trip.add(bound, findTimeout)
		add(&trip)
		trip.add("rollback")
		err := d.inBatch(conn)(ctx, trip)
		if err != nil {
			postgres.RollbackConn(ctx, conn.Conn())
		}
		return err
	}
	if err := try(func(trip *statements) { trip.addQuotas(pgdb.ReadQuotas, quotas, there) }); err != nil {
		return nil, err
	}
	open := make(map[driver.Quota]bool)
	missing := slices.DeleteFunc(slices.Clone(quotas), func(q driver.Quota) bool { _, known := there[q]; return known })
	for len(missing) > 0 && time.Since(began) < findTime {
		n := 0 // are not open
		err := try(func(trip *statements) {
			for i := range missing {
				trip.addMissing(missing[i:i+1], func() { n++ })
			}
		})
		switch missing = missing[n:]; {
		case len(missing) > 0 && postgres.IsLocked(err):
			open[missing[0]] = true
			missing = missing[1:]
		case err != nil:
			return nil, err
		}
	}
	for _, q := range missing {
		open[q] = true
	}
	return slices.DeleteFunc(slices.Clone(quotas), func(q driver.Quota) bool { return open[q] }), nil
}
