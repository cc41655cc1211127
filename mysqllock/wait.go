package mysqllock

import (
	"context"
	"fmt"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/internal/member"
)

// Wait notes that a process waits for a key. Nobody is told here; it is for people to see (List).
func (e *engine) Wait(ctx context.Context, key string, id member.ID, ttl time.Duration) error {
	return fault.NoWrite(e.once(ctx, func(on mysqldb.DBTX) error {
		return e.q.WaitForLease(ctx, on, []byte(key), id[:], ttl.Microseconds())
	}))
}

// StopWaiting ends it.
func (e *engine) StopWaiting(ctx context.Context, key string, id member.ID) error {
	return fault.NoWrite(e.once(ctx, func(on mysqldb.DBTX) error {
		return e.q.StopWaiting(ctx, on, []byte(key), id[:])
	}))
}

// OthersWait tells whether another member that is alive waits for a key.
func (e *engine) OthersWait(ctx context.Context, key string, id member.ID) (waits bool, err error) {
	err = e.read(ctx, func(on mysqldb.DBTX) (err error) {
		waits, err = e.q.OthersWait(ctx, on, []byte(key), id[:])
		return err
	})
	return waits, err
}

// Listen is not to be had: these servers tell nobody anything unasked.
func (e *engine) Listen(context.Context, func(), func(key string)) error {
	return fmt.Errorf("%w: MySQL and MariaDB have no notifications: keys that are waited for are polled", dblock.ErrUnsupported)
}
