package lease

import (
	"context"
	"errors"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/ctxerr"
)

// unused is the time after which Sweep removes unused rows.
const unused = time.Hour

// longBound bounds the statements that read or delete many rows.
const longBound = time.Minute

// Sweep removes rows that were not used for an hour.
func (a *Admin) Sweep(ctx context.Context) (removed int64, err error) {
	err = a.change(ctx, longBound, "what nobody has used", func(ctx context.Context) (err error) {
		removed, err = a.Inspector.Sweep(ctx, unused)
		return err
	})
	return removed, err
}

// sweeperKey is the lease of the process that sweeps.
const sweeperKey = "dblock sweeper"

// RunSweeper sweeps every so often until ctx ends, in one process of all that call it.
func (l *Locker) RunSweeper(ctx context.Context, every time.Duration) error {
	if every < time.Second {
		return &dblock.InvalidError{Field: "every", Reason: every.String() + " is shorter than 1s"}
	}
	for {
		err := dblock.Do(ctx, l, sweeperKey, func(ctx context.Context, _ *dblock.Lock) error {
			for {
				if _, err := l.Sweep(ctx); err != nil {
					return err
				}
				if err := l.exclusive.sleep(ctx, every); err != nil {
					return err
				}
			}
		})
		if ctx.Err() != nil {
			return ctxerr.Of(ctx)
		}
		if errors.Is(err, dblock.ErrClosed) {
			return err
		}
		if err := l.exclusive.sleep(ctx, every); err != nil { // the database is away, or the lock was lost: another one sweeps
			return err
		}
	}
}
