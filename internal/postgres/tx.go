package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/sqlerr"
)

// BeginReadCommitted begins a transaction, whatever the defaults of the session.
const BeginReadCommitted = "begin isolation level read committed read write"

// SetLockTimeout bounds how long the statements of a transaction wait for a lock. KeepLockTimeout
// keeps the bound that there is, and RestoreLockTimeout sets it again.
const (
	SetLockTimeout     = "select pg_catalog.set_config('lock_timeout', $1, true)"
	KeepLockTimeout    = "select pg_catalog.set_config('dblock.lock_timeout', pg_catalog.current_setting('lock_timeout'), true)"
	RestoreLockTimeout = "select pg_catalog.set_config('lock_timeout', pg_catalog.current_setting('dblock.lock_timeout'), true)"
)

// Beginner is a pool or a connection.
type Beginner interface {
	BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error)
}

// InTx runs fn in a READ COMMITTED transaction, and commits it if fn says so. A statement of fn
// waits for a lock for that time; 0: while ctx lives.
func InTx(ctx context.Context, db Beginner, wait time.Duration, fn func(pgx.Tx) (commit bool, err error)) error {
	ms := wait.Milliseconds()
	if wait > 0 {
		ms = max(ms, 1) // 0 would be no bound
	}
	tx, err := db.BeginTx(ctx, pgx.TxOptions{BeginQuery: fmt.Sprintf(BeginReadCommitted+"; set local lock_timeout = %d", ms)})
	if err != nil {
		return sqlerr.Unwritten(err)
	}
	commit, err := fn(tx)
	if err != nil || !commit {
		Rollback(ctx, tx)
		return sqlerr.Unwritten(err)
	}
	return tx.Commit(ctx)
}

// ConnOf returns the connection that db is, nil for a pool and for types of the host's. isNil: db
// is nil.
func ConnOf(db any) (conn *pgx.Conn, isNil bool) {
	switch db := db.(type) {
	case nil:
		return nil, true
	case *pgxpool.Pool:
		return nil, db == nil
	case *pgx.Conn:
		return db, db == nil
	case *pgxpool.Conn:
		if db == nil {
			return nil, true
		}
		return db.Conn(), false
	}
	return nil, false
}

// InTransaction reports whether conn is in a transaction. It is false for nil and for a closed
// connection.
func InTransaction(conn *pgx.Conn) bool {
	return conn != nil && !conn.IsClosed() && conn.PgConn().TxStatus() != 'I'
}

// Rollback rolls tx back, also if ctx has ended. pgx closes the connection if the server does not
// confirm it.
func Rollback(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := Ending(ctx)
	defer cancel()
	_ = tx.Rollback(ctx)
}

// RollbackConn rolls back the transaction of a connection that was begun by a statement. If that
// fails, releasing the connection closes it.
func RollbackConn(ctx context.Context, conn *pgx.Conn) {
	if conn.IsClosed() {
		return
	}
	ctx, cancel := Ending(ctx)
	defer cancel()
	_, _ = conn.Exec(ctx, "rollback")
}

// CloseDriverConn closes a connection of pgx's stdlib on the side of pgx. One from a pgxpool would
// go back there when database/sql throws it away.
func CloseDriverConn(driverConn any) {
	if c, ok := driverConn.(interface{ Conn() *pgx.Conn }); ok {
		CloseConn(c.Conn())
	}
}

// CloseConn closes a connection, and waits for a moment until a statement that was under way is
// cancelled.
func CloseConn(conn *pgx.Conn) {
	ctx, cancel := Ending(context.Background())
	defer cancel()
	_ = conn.Close(ctx)
	select {
	case <-conn.PgConn().CleanupDone():
	case <-ctx.Done():
	}
}

// Ending returns the context of a statement that ends something. It is sent even if ctx has ended,
// and is not waited for without end while the network is silent.
func Ending(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), time.Second)
}

// The protocol reports that a session is in a transaction, and not in which one. After ROLLBACK AND
// CHAIN, or a ROLLBACK and a BEGIN, it is in another one: what was written before is gone or
// committed, and locks are released. So dblock's transactions begin with a setting that ends with
// them, and check it before they commit.
const (
	// MarkTx is the first statement of a transaction.
	MarkTx = "set local dblock.transaction = 'begun'"

	// CheckTx fails if the transaction is not the one that MarkTx began. See IsTxEnded. It names
	// what it calls with its schema, because the search_path is the host's.
	CheckTx = "select case when coalesce(pg_catalog.current_setting('dblock.transaction', true), '') operator(pg_catalog.<>) 'begun'" +
		" then pg_catalog.current_setting('" + noSetting + "') end"

	noSetting = "dblock.transaction_was_ended"
)

// IsTxEnded reports that CheckTx has failed, and with it the transaction.
func IsTxEnded(err error) bool {
	var server *pgconn.PgError
	const undefinedObject = "42704"
	return errors.As(err, &server) && server.Code == undefinedObject && strings.Contains(server.Message, noSetting)
}

// MarkedTx returns the options with which pgx sends MarkTx when the transaction begins, and CheckTx
// before it commits. It costs no round trip.
func MarkedTx(o pgx.TxOptions) pgx.TxOptions {
	begin := "begin"
	if o.IsoLevel != "" {
		begin += " isolation level " + string(o.IsoLevel)
	}
	if o.AccessMode != "" {
		begin += " " + string(o.AccessMode)
	}
	if o.DeferrableMode != "" {
		begin += " " + string(o.DeferrableMode)
	}
	return pgx.TxOptions{BeginQuery: begin + "; " + MarkTx, CommitQuery: CheckTx + "; commit"}
}
