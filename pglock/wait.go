package pglock

import (
	"context"
	"time"

	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/pglisten"
)

// channel is what is notified of keys that were given back while somebody waited.
const channel = "dblock_released"

// Wait notes that this process waits for keys.
func (e *engine) Wait(ctx context.Context, keys []string, m member.ID, ttl time.Duration) error {
	return e.q.WaitForLeases(ctx, e.on(e.pool), id(m), micros(ttl), keys)
}

// StopWaiting ends that.
func (e *engine) StopWaiting(ctx context.Context, keys []string, m member.ID) error {
	return e.q.StopWaiting(ctx, e.on(e.pool), id(m), keys)
}

// OthersWait tells whether another member that is alive waits for a key.
func (e *engine) OthersWait(ctx context.Context, key string, m member.ID) (bool, error) {
	return e.q.OthersWait(ctx, e.on(e.pool), key, id(m))
}

// Listen uses a connection of its own. Where nothing is heard the poll has to do.
func (e *engine) Listen(ctx context.Context, ready func(), wake func(key string)) error {
	return pglisten.Listen(ctx, e.pool.Pool, channel, ready, wake)
}
