package pglock

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/internal/member"
)

// channel is what is notified of keys that were given back while somebody waited.
const channel = "dblock_released"

// Wait notes that this process waits for a key.
func (e *engine) Wait(ctx context.Context, key string, m member.ID, ttl time.Duration) error {
	return e.q.WaitForLease(ctx, e.on(e.pool), key, id(m), micros(ttl))
}

// StopWaiting ends that.
func (e *engine) StopWaiting(ctx context.Context, key string, m member.ID) error {
	return e.q.StopWaiting(ctx, e.on(e.pool), key, id(m))
}

// Listen uses a connection of its own. Behind a pooler in transaction mode nothing is heard: then the
// poll has to do.
func (e *engine) Listen(ctx context.Context, ready func(), wake func(key string)) error {
	conn, err := pgx.ConnectConfig(ctx, e.pool.Config().ConnConfig)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	if _, err := conn.Exec(ctx, "listen "+channel); err != nil {
		return err
	}
	ready() // whatever was given back before is asked for again
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		wake(n.Payload)
	}
}
