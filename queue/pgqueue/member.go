package pgqueue

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/internal/member"
)

// Join makes the member's row.
func (d *database) Join(ctx context.Context, m member.ID, label string, ttl time.Duration) error {
	return d.q.Join(ctx, d.on(d.heart), id(m), label, ttl.Microseconds())
}

// Beat moves the member's end.
func (d *database) Beat(ctx context.Context, m member.ID, ttl time.Duration) (beat int64, alive bool, err error) {
	beat, err = d.q.Beat(ctx, d.on(d.heart), ttl.Microseconds(), id(m))
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, nil
	}
	return beat, err == nil, err
}

// Leave deletes the member's row.
func (d *database) Leave(ctx context.Context, m member.ID) error {
	return d.q.Leave(ctx, d.on(d.heart), id(m))
}

// Evict is two statements, each in a snapshot of its own.
func (d *database) Evict(ctx context.Context, m member.ID) (gone bool, err error) {
	if err := d.q.Evict(ctx, d.on(d.pool), id(m)); err != nil {
		return false, err
	}
	stands, err := d.Stands(ctx, m)
	return !stands, err
}

// Stands reads the member's row.
func (d *database) Stands(ctx context.Context, m member.ID) (bool, error) {
	return d.q.MemberStands(ctx, d.on(d.pool), id(m))
}

// Broken counts the connections of both pools.
func (d *database) Broken() int64 { return d.heart.Broken() + d.pool.Broken() }
