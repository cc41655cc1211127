package pginventory

import (
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/pgpool"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// Transactions are READ COMMITTED, whatever the database's default.
var readCommitted = pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}

// beginReadCommitted is readCommitted as a statement, to be sent beside others.
const beginReadCommitted = "begin isolation level read committed read write"

// bound begins what a transaction does: it bounds its waits for locks, and has what follows look rows up by their keys, one by one.
// The server keeps plans of what is prepared. One that reads the whole table, made while that was small, would stand still with
// the table growing at tens of thousands of orders a second, until statistics are next taken, which may be a minute.
const bound = "select pg_catalog.set_config('lock_timeout', $1, true), pg_catalog.set_config('enable_seqscan', 'off', true), " +
	"pg_catalog.set_config('enable_hashjoin', 'off', true), pg_catalog.set_config('enable_mergejoin', 'off', true)"

// asTheOwners gives statements of the owner's, in the same transaction, the plans that they would have.
var asTheOwners = []string{
	"set local enable_seqscan to default", "set local enable_hashjoin to default", "set local enable_mergejoin to default",
}

// lockTimeout lets the server give up on a lock before we give up on the server: the error then
// says which of the two it was, and the connection lives on. It counts twice: who waits for a row
// that many want waits for a place at the head of the line, and then for the row.
func lockTimeout(ctx context.Context) string {
	if engine.IsBrief(ctx) {
		return briefTimeout
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		return "0"
	}
	return strconv.FormatInt(max(1, (time.Until(deadline)*2/5).Milliseconds()), 10)
}

// briefTimeout is, in milliseconds, longer than those who sell usually have a row, flush included.
const briefTimeout = "50"

// mostUnusable is how many connections of the pool are closed before its hooks are to blame.
const mostUnusable = 8

// acquire returns a connection of the host's pool. A host may have left another encoding on a
// connection, or a hook of the pool an open transaction: such a connection is closed.
func (d *database) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	for n := 1; ; n++ {
		conn, err := d.pool.Acquire(ctx)
		if err != nil {
			return nil, sqlerr.Unwritten(err)
		}
		unusable := pgpool.Usable(conn.Conn().PgConn())
		if unusable == nil {
			return conn, nil
		}
		_ = conn.Conn().Close(ctx)
		conn.Release()
		if n == mostUnusable {
			return nil, unusable
		}
	}
}

// alone runs fn outside of a transaction.
func (d *database) alone(ctx context.Context, fn func(pgdb.DBTX) error) error {
	conn, err := d.acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	return fn(d.on(conn))
}

// rollback ends the transaction even where ctx has ended. Where that fails, releasing the
// connection closes it.
func rollback(ctx context.Context, conn *pgxpool.Conn) {
	if conn.Conn().IsClosed() {
		return
	}
	ctx, cancel := ending(ctx)
	defer cancel()
	_, _ = conn.Exec(ctx, "rollback")
}

// ending bounds a rollback, which has to be sent even where ctx has ended, and must not wait for
// ever where the network goes silent.
func ending(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), time.Second)
}
