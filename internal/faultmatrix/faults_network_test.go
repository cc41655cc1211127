package faultmatrix

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
)

var networkFaults = []Fault{
	{Name: "none", Inject: func(ctx context.Context, _ *env) (int, error) { return lasting(ctx) }},
	{Name: "reply lost", Inject: strikeCalls(faultconn.CutAfter)},
	{Name: "reply lost at COMMIT", Inject: cutCommits},
	{Name: "connection cut before a call", Inject: strikeCalls(faultconn.CutBefore)},
	{Name: "connection stalled", Inject: strikeCalls(faultconn.Stall)},
	{Name: "request that arrives late", Inject: strikeCalls(faultconn.Late)},
	{Name: "all connections cut at once", Inject: func(ctx context.Context, e *env) (int, error) {
		return until(ctx, 400*time.Millisecond, func() (int, error) { return e.link.cut(), nil })
	}},
	{Name: "slow network", Inject: func(ctx context.Context, e *env) (int, error) {
		e.link.slow(30*time.Millisecond, 0)
		return lasting(ctx)
	}},
	{Name: "packets in pieces", Inject: func(ctx context.Context, e *env) (int, error) {
		e.link.slow(0, 7)
		return lasting(ctx)
	}},
	{Name: "silent network", Inject: func(ctx context.Context, e *env) (int, error) {
		e.link.silent()
		return lasting(ctx)
	}},
	{Name: "connection refused", Inject: func(ctx context.Context, e *env) (int, error) {
		e.link.refuse()
		n, err := lasting(ctx)
		return n, errors.Join(err, e.link.accept())
	}},
}

// strikeCalls strikes random calls of all connections, one at a time.
func strikeCalls(mode faultconn.Mode) func(context.Context, *env) (int, error) {
	return func(ctx context.Context, e *env) (int, error) {
		d := &e.link.dialer
		round := 0
		return until(ctx, 0, func() (int, error) {
			d.Arm(1+rand.IntN(40), mode, nil)
			time.Sleep(40 * time.Millisecond)
			if round++; mode == faultconn.Late && round%8 == 0 {
				d.Release()
			}
			if d.Disarm() {
				return 1, nil
			}
			return 0, nil
		})
	}
}

// cutCommits has the replies to COMMIT get lost. Drivers spell it in their own way.
func cutCommits(ctx context.Context, e *env) (int, error) {
	text := "COMMIT"
	if e.kind == devdb.Postgres {
		text = "commit"
	}
	d := &e.link.dialer
	return until(ctx, 0, func() (int, error) {
		d.ArmAt(text, 1, faultconn.CutAfter)
		time.Sleep(20 * time.Millisecond)
		if d.Disarm() {
			return 1, nil
		}
		return 0, nil
	})
}
