package mysqllock

import (
	"context"
	"database/sql"
	"time"

	"github.com/dblock-go/dblock/internal/migratelock"
)

// MigrationOptions say what a MigrationLocker is for.
type MigrationOptions struct {
	// Name says whose migrations these are, for example the service's name: 1 to 255 bytes.
	// Processes that migrate the same tables must agree on it. Those of other names don't wait;
	// those of the same name do in whatever database of the server.
	Name string

	// Timeout is how long to wait for another process that migrates. Default 1 minute.
	Timeout time.Duration
}

// MigrationLocker lets one process at a time run a service's own migrations. It is what goose calls
// a SessionLocker, for goose.WithSessionLocker, and needs no goose. It is a lock of GET_LOCK, bound
// to the connection that migrates: the server frees it when that ends, however it ends. It needs no
// tables, and depends on no time zone and no option of the DSN.
//
// Call goose's Provider.GetDBVersion before Up: Up makes the version table before it locks, so that
// of processes that start at once on an empty database some would fail.
//
// Such a lock is local to one server. Where several take writes (Galera, Group Replication in
// multi-primary mode), run migrations against one of them.
type MigrationLocker struct{ of migratelock.MySQL }

// NewMigrationLocker makes one. Its error is a *dblock.InvalidError.
func NewMigrationLocker(o MigrationOptions) (*MigrationLocker, error) {
	if err := migratelock.CheckService(o.Name, o.Timeout); err != nil {
		return nil, err
	}
	return &MigrationLocker{migratelock.MySQL{Database: migratelock.Service(o.Name), Timeout: o.Timeout}}, nil
}

// SessionLock waits until conn holds the lock.
//
// Errors: dblock.ErrBusy if the timeout has passed; ctx's if it ended; dblock.ErrUnsupported
// if the session holds the lock already, as a proxy may share sessions. After others than the first
// two conn is closed.
func (l *MigrationLocker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	return l.of.SessionLock(ctx, conn)
}

// SessionUnlock releases the lock, whether ctx has ended or not, within 5 s. An error says that
// this could not be confirmed, and that conn was closed for it, which frees the lock, too. What was
// migrated stays migrated.
func (l *MigrationLocker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	return l.of.SessionUnlock(ctx, conn)
}

var _ interface { // goose's lock.SessionLocker
	SessionLock(ctx context.Context, conn *sql.Conn) error
	SessionUnlock(ctx context.Context, conn *sql.Conn) error
} = (*MigrationLocker)(nil)
