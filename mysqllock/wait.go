package mysqllock

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/mysqltext"
)

// Wait notes that a process waits for keys. Nobody is told by it; it is for people to see (List), and for a process
// that has had its turn (OthersWait).
func (e *engine) Wait(ctx context.Context, keys []string, id member.ID, ttl time.Duration) error {
	var args []any
	for _, key := range slices.Sorted(slices.Values(keys)) {
		args = append(args, []byte(key), id[:], ttl.Microseconds())
	}
	return fault.NoWrite(e.once(ctx, func(on mysqldb.DBTX) error {
		_, err := on.ExecContext(ctx, mysqltext.Rows(mysqldb.WaitForLeases, len(keys)), args...)
		return err
	}))
}

// StopWaiting ends it.
func (e *engine) StopWaiting(ctx context.Context, keys []string, id member.ID) error {
	of := make([][]byte, len(keys))
	for i, key := range slices.Sorted(slices.Values(keys)) {
		of[i] = []byte(key)
	}
	return fault.NoWrite(e.once(ctx, func(on mysqldb.DBTX) error {
		return e.q.StopWaiting(ctx, on, of, id[:])
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
	return fmt.Errorf("%w: MySQL and MariaDB have no notifications: keys that are waited for are watched", dblock.ErrUnsupported)
}
