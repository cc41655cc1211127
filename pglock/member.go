package pglock

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/internal/member"
)

// Join makes the member's row.
func (e *engine) Join(ctx context.Context, m member.ID, label string, ttl time.Duration) error {
	return e.q.Join(ctx, e.on(e.pool), id(m), label, micros(ttl))
}

// Beat moves the member's end.
func (e *engine) Beat(ctx context.Context, m member.ID, ttl time.Duration) (beat int64, alive bool, err error) {
	beat, err = e.q.Beat(ctx, e.on(e.pool), micros(ttl), id(m))
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, nil
	}
	return beat, err == nil, err
}

// Leave deletes the member's row.
func (e *engine) Leave(ctx context.Context, m member.ID) error {
	return e.q.Leave(ctx, e.on(e.pool), id(m))
}

// Broken counts the pool's connections: a heartbeat takes one of them, which the pool has looked at.
func (e *engine) Broken() int64 { return e.pool.Broken() }
