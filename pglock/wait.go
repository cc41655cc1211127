package pglock

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/internal/member"
)

// channel is what is notified of keys that were given back while somebody waited.
const channel = "dblock_released"

// Wait notes that this process waits for keys.
func (e *engine) Wait(ctx context.Context, keys []string, m member.ID, ttl time.Duration) error {
	return e.q.WaitForLeases(ctx, e.on(e.pool), id(m), micros(ttl), keys)
}

// StopWaiting ends that.
func (e *engine) StopWaiting(ctx context.Context, keys []string, m member.ID) error {
	return e.q.StopWaiting(ctx, e.on(e.pool), keys, id(m))
}

// OthersWait tells whether another member that is alive waits for a key.
func (e *engine) OthersWait(ctx context.Context, key string, m member.ID) (bool, error) {
	return e.q.OthersWait(ctx, e.on(e.pool), key, id(m))
}

// Listen uses a connection of its own. Behind a pooler in transaction mode nothing is heard there, and then
// the poll has to do: so it sends itself something first.
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
	if err := e.hearsItself(ctx, conn); err != nil {
		return err
	}
	ready()
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		if n.Channel == channel {
			wake(n.Payload)
		}
	}
}

// hearsItself begins to listen, and makes sure that what another connection sends comes.
func (e *engine) hearsItself(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, heardWithin)
	defer cancel()
	own := "dblock_" + member.NewID().String()
	for _, c := range []string{own, channel} {
		if _, err := conn.Exec(ctx, "listen "+pgx.Identifier{c}.Sanitize()); err != nil {
			return err
		}
	}
	if err := e.q.NotifyNothing(ctx, e.on(e.pool), own); err != nil {
		return err
	}
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		if n.Channel == own {
			break
		}
	}
	_, err := conn.Exec(ctx, "unlisten "+pgx.Identifier{own}.Sanitize())
	return err
}

// heardWithin is how long a notification may take, on however busy a server.
const heardWithin = 5 * time.Second
