package pace

import (
	"context"
	"time"

	"github.com/dblock-go/dblock/internal/ctxerr"
)

// Sleep waits for d while ctx lives. Its error is that of ctxerr.Of.
func Sleep(ctx context.Context, d time.Duration) error {
	if err := ctxerr.Of(ctx); err != nil || d <= 0 {
		return err
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctxerr.Of(ctx)
	}
}
