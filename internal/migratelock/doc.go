// Package migratelock lets one process at a time migrate a schema. Its lockers are what goose calls
// a SessionLocker: a server's own lock, bound to the connection that migrates, so that the server
// frees it when that connection ends, however it ends.
//
// goose brings none that is right for both engines: for MySQL it has only a table with expiry
// times, in which sessions of different time zones both get the lock.
//
// The package needs no driver. Connections whose lock state is unknown are closed, never pooled.
package migratelock

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/ctxerr"
	"github.com/dblock-go/dblock/internal/sqlconn"
)

// DefaultTimeout is how long a waiter waits if no Timeout is set.
const DefaultTimeout = time.Minute

// unlockBound bounds the unlock, which runs under no context of the caller.
const unlockBound = 5 * time.Second

// Closer ends the driver's own connection. It is needed where driver.ErrBadConn isn't enough: a
// connection that database/sql borrowed from another pool goes back there, with the lock.
type Closer func(driverConn any)

// name is what all processes that migrate the same schema agree on.
func name(engine, schema string) [sha256.Size]byte {
	return sha256.Sum256([]byte("dblock/migrate/" + engine + "\x00" + schema))
}

func errTimeout(waited time.Duration) error {
	return fmt.Errorf("dblock: another process is migrating this schema and did not end within %v: "+
		"try again when it is done: %w", waited, dblock.ErrBusy)
}

// errTaking says why ctx ended, if that is the reason: drivers may report only the connection that
// they closed for it.
func errTaking(ctx context.Context, err error) error {
	if ended := ctxerr.Of(ctx); ended != nil && !errors.Is(err, ended) {
		err = fmt.Errorf("%w: %w", ended, err)
	}
	return fmt.Errorf("dblock: taking the migration lock: %w", err)
}

// errUnlock: what was migrated stays migrated; the error is there because a server that can't be
// reached, or a pooler that moved the session, is worth knowing about.
func errUnlock(cause error) error {
	return fmt.Errorf("dblock: the migration lock's release was not confirmed, so its connection was closed: %w", cause)
}

// errShared: a session grants a lock that it holds as often as it is asked to.
var errShared = fmt.Errorf("%w: the session holds the lock already, for another client: a pooler in transaction mode shares "+
	"sessions, and a lock that it left behind stays until it closes them: connect directly", dblock.ErrUnsupported)

var errNotHeld = errors.New("the session did not hold the lock: is there a pooler between?")

// inTime runs ask until ctx ends. If the connection is lost, database/sql waits for the end of the
// host's transaction on it, whatever ctx does.
func inTime(ctx context.Context, ask func(context.Context) (bool, error)) (bool, error) {
	type reply struct {
		held bool
		err  error
	}
	replies := make(chan reply, 1)
	go func() {
		held, err := ask(ctx)
		replies <- reply{held, err}
	}()
	select {
	case r := <-replies:
		return r.held, r.err
	case <-ctx.Done():
		return false, ctxerr.Of(ctx)
	}
}

// unlock runs ask, which must answer true when the lock was held and is now free.
func unlock(ctx context.Context, conn *sql.Conn, end Closer, ask func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unlockBound)
	defer cancel()
	held, err := false, driver.ErrBadConn
	if sqlconn.IsValid(conn) {
		held, err = inTime(ctx, ask)
	}
	if err == nil && !held {
		err = errNotHeld
	}
	if err != nil {
		sqlconn.Discard(conn, end)
		return errUnlock(err)
	}
	return nil
}
