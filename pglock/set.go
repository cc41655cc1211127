package pglock

import (
	"context"

	"github.com/dblock-go/dblock/internal/lease"
)

// AcquireAll is one statement.
func (e *engine) AcquireAll(ctx context.Context, by lease.By, asks []lease.Ask) ([]lease.Answer, error) {
	return e.acquireMany(ctx, by, asks, true)
}

// MakeFree makes the rows of keys.
func (e *engine) MakeFree(ctx context.Context, keys []string) error {
	return e.q.MakeFreeLeases(ctx, e.db, keys)
}

// ReleaseAll is one statement.
func (e *engine) ReleaseAll(ctx context.Context, backs []lease.Back) ([]lease.Returned, error) {
	return e.releaseMany(ctx, backs, true)
}
