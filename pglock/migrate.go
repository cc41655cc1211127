package pglock

import (
	"context"
	"database/sql"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/internal/migratelock"
	"github.com/dblock-go/dblock/internal/postgres"
)

// MigrationOptions say what a MigrationLocker is for.
type MigrationOptions struct {
	// Name says whose migrations these are, for example the service's name: 1 to 255 bytes.
	// Processes that migrate the same tables must agree on it. Those of other names, and of other
	// databases, don't wait.
	Name string

	// Timeout is how long to wait for another process that migrates. Default 1 minute.
	Timeout time.Duration
}

// MigrationLocker lets one process at a time run a service's own migrations. It is what goose calls
// a SessionLocker, for goose.WithSessionLocker, and needs no goose. It is an advisory lock, bound
// to the connection that migrates: the server frees it when that ends, however it ends. It needs
// none of dblock's tables, and a direct connection.
//
// It takes connections of pgx's stdlib, and of any other driver for Postgres. A pooler shows in
// those of pgx alone. With another driver, or one that wraps pgx's, a pooler in transaction mode
// may keep the lock after its release: no other session gets it then, until the pooler closes the
// session.
type MigrationLocker struct{ of migratelock.Postgres }

// NewMigrationLocker makes one. Its error is a *dblock.InvalidError.
func NewMigrationLocker(o MigrationOptions) (*MigrationLocker, error) {
	if err := migratelock.CheckService(o.Name, o.Timeout); err != nil {
		return nil, err
	}
	return &MigrationLocker{migratelock.Postgres{Schema: migratelock.Service(o.Name), Timeout: o.Timeout, Close: postgres.CloseDriverConn}}, nil
}

// SessionLock waits until conn holds the lock. It asks again and again, so that a holder's CREATE
// INDEX CONCURRENTLY does not wait for the waiters.
//
// Errors: dblock.ErrBusy if the timeout has passed; ctx's if it ended; dblock.ErrUnsupported
// behind a pooler, on a standby, and on servers whose advisory locks exclude no session. After
// others than the first two conn is closed.
func (l *MigrationLocker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	if err := excludes(ctx, conn); err != nil {
		return l.of.Refuse(ctx, conn, err)
	}
	return l.of.SessionLock(ctx, conn)
}

// SessionUnlock releases the lock, whether ctx has ended or not, within 5 s. An error says that
// this could not be confirmed, and that conn was closed for it, which frees the lock, too. What was
// migrated stays migrated.
func (l *MigrationLocker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	return l.of.SessionUnlock(ctx, conn)
}

// excludes refuses a connection on which an advisory lock excludes no session, as far as its driver
// shows that.
func excludes(ctx context.Context, conn *sql.Conn) error {
	return conn.Raw(func(driverConn any) error {
		c, ok := driverConn.(interface{ Conn() *pgx.Conn }) // a *stdlib.Conn
		if !ok {
			return nil
		}
		if err := postgres.CheckConnPath(ctx, c.Conn().PgConn()); err != nil {
			return err
		}
		server, err := postgres.Probe(ctx, c.Conn())
		if err != nil {
			return err
		}
		return server.SessionLocks()
	})
}

var _ interface { // goose's lock.SessionLocker
	SessionLock(ctx context.Context, conn *sql.Conn) error
	SessionUnlock(ctx context.Context, conn *sql.Conn) error
} = (*MigrationLocker)(nil)
