package faultmatrix

import (
	"context"
	"errors"
	"sync"
	"time"
)

var processFaults = []Fault{
	{Name: "process killed", Inject: func(ctx context.Context, e *env) (int, error) {
		return until(ctx, 300*time.Millisecond, func() (int, error) { return 1, e.kill(ctx, e.any()) })
	}},
	{Name: "process frozen past the TTL", Inject: func(ctx context.Context, e *env) (int, error) {
		return freeze(e, e.any(), faultTime+ttl)
	}},
	{Name: "process frozen for a moment", Inject: func(ctx context.Context, e *env) (int, error) {
		return until(ctx, 50*time.Millisecond, func() (int, error) { return freeze(e, e.any(), 300*time.Millisecond) })
	}},
	{Name: "process replaced in good order", Inject: func(ctx context.Context, e *env) (int, error) {
		return until(ctx, 100*time.Millisecond, func() (int, error) { return 1, e.retire(ctx, e.any()) })
	}},
	{Name: "clock step of the client", ClockSteps: true, Inject: stepClocks},
	{Name: "pool exhausted", Inject: exhaust},
}

func freeze(_ *env, c *child, d time.Duration) (int, error) {
	if err := suspend(c.cmd.Process); err != nil {
		return 0, err
	}
	time.Sleep(d)
	return 1, resume(c.cmd.Process)
}

// exhaust takes all connections of each process' pool.
func exhaust(_ context.Context, e *env) (int, error) {
	var all sync.WaitGroup
	var errs []error
	for _, c := range e.children {
		errs = append(errs, c.send("hog %v", faultTime))
	}
	all.Go(func() { e.worker.hog(faultTime) })
	all.Wait()
	return 1 + len(e.children), errors.Join(errs...)
}
