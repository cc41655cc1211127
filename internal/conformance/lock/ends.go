package lock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// beatCuts are those that strike what no caller waits for.
func beatCuts(cold bool) (all []suite.Cut) {
	for _, c := range suite.Cuts(cold) {
		if !c.Cancels() {
			all = append(all, c)
		}
	}
	return all
}

// aJoinCutAnywhere cuts the first acquisition of a process, which joins with it.
func aJoinCutAnywhere(t *testing.T, v *env) {
	v.cutEverywhere(t, beatCuts(true), 4, func(x *cutLeases) (bool, error) {
		struck, err := x.acquire(exclusive)
		return struck, errors.Join(err, x.goesOn())
	})
}

// aBeatCutAnywhere cuts heartbeats.
func aBeatCutAnywhere(t *testing.T, v *env) {
	v.cutEverywhere(t, beatCuts(false), 2, held(exclusive, func(x *cutLeases, lock *dblock.Lock) (bool, error) {
		x.Arm()
		beats(t, lock)
		struck := x.Heal()
		beats(t, lock)
		if err := x.isNotHeldTwice(lock, exclusive); err != nil {
			return struck, err
		}
		told := lock.Release(t.Context())
		if told != nil && (!struck || !errors.Is(told, dblock.ErrLost)) {
			return struck, fmt.Errorf("struck %v, and yet: %w", struck, told)
		}
		return struck, errors.Join(x.isFreeSoon(told, exclusive), x.goesOn())
	}))
}

// aLeaveCutAnywhere cuts a Close with a lock in use.
func aLeaveCutAnywhere(t *testing.T, v *env) {
	v.cutEverywhere(t, beatCuts(false), 2, held(exclusive, func(x *cutLeases, lock *dblock.Lock) (bool, error) {
		x.GiveUp() // no caller waits for its users
		x.Arm()
		reset := time.AfterFunc(cutTTL, x.Dialer.CloseAll) // a pool waits long for a server that is stalled
		told := x.Close(x.Ctx)
		reset.Stop()
		struck := x.Heal()
		if lock.Context().Err() == nil || !errors.Is(told, context.Canceled) {
			return struck, fmt.Errorf("closed with a lock in use: %w", told)
		}
		err := x.isFreeSoon(nil, exclusive)
		_ = lock.Release(t.Context())
		return struck, err
	}))
}

// beats waits until a heartbeat is confirmed to the lock's process, or the lock is lost.
func beats(t *testing.T, lock *dblock.Lock) {
	ctx := suite.Soon(t)
	for before := lock.ValidUntil(); !lock.ValidUntil().After(before); {
		select {
		case <-lock.Context().Done():
			return
		case <-ctx.Done():
			t.Errorf("%q is neither kept nor lost", lock.Key())
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// goesOn acquires another key.
func (x *cutLeases) goesOn() error {
	for ctx := suite.Soon(x.t); ; {
		lock, err := x.Acquire(ctx, "another one, "+x.Key())
		switch {
		case err == nil:
			if err := lock.Release(x.t.Context()); !errors.Is(err, dblock.ErrLost) {
				return err
			}
		case ctx.Err() != nil || !errors.Is(err, dblock.ErrOutcomeUnknown) && !errors.Is(err, dblock.ErrUnavailable):
			return fmt.Errorf("the process does not go on: %w", err)
		}
	}
}

// lateBeats counts how often a Locker reports late heartbeats.
type lateBeats struct{ calls, lines atomic.Int64 }

func (b *lateBeats) options() LeaseOptions {
	return LeaseOptions{
		TTL: 6 * time.Second, Log: slog.New(slog.NewTextHandler(b, nil)),
		Observer: dblock.Observer{HeartbeatLate: func(time.Duration, error) { b.calls.Add(1) }},
	}
}

// Write counts a line of the log.
func (b *lateBeats) Write(line []byte) (int, error) {
	b.lines.Add(1)
	return len(line), nil
}

// grow waits for more calls and more lines.
func (b *lateBeats) grow(t *testing.T) {
	t.Helper()
	calls, lines := b.calls.Load(), b.lines.Load()
	suite.Until(t, "late heartbeats are reported", func() bool { return b.calls.Load() > calls && b.lines.Load() > lines })
}

// heartbeatsReachAllLockers: each Locker of a pool and TTL reports late heartbeats to its Observer
// and its Log, until it is closed.
func heartbeatsReachAllLockers(t *testing.T, v *env) {
	var late, lateOther lateBeats
	var dialer faultconn.Dialer
	l, other, closePool, err := v.e.OpenPair(t.Context(), v.DSN, &dialer, late.options(), lateOther.options())
	require.NoError(t, err)
	defer closePool()
	suite.IsFree(t, l, "k") // it joins
	dialer.Refuse()
	late.grow(t)
	suite.Until(t, "the other one reports them, too", func() bool {
		return lateOther.calls.Load() > 0 && lateOther.lines.Load() > 0
	})
	dialer.Accept()
	require.NoError(t, other.Close(suite.Soon(t)))
	suite.IsFree(t, l, "k")
	closed := lateOther.calls.Load()
	dialer.Refuse()
	late.grow(t)
	dialer.Accept()
	assert.Equal(t, closed, lateOther.calls.Load())
	_ = l.Close(suite.Soon(t)) // its connection may be one of those that were closed
}

// blockedLog is the handler of a Log that blocks, as standard error does into a pipe that is full.
type blockedLog struct {
	slog.Handler
	until chan struct{}
}

func (h blockedLog) Handle(context.Context, slog.Record) error {
	<-h.until
	return nil
}

// aBlockedHostKeepsNoLock: a process whose Log and Observer block loses its server. When another
// process has the keys, all its locks have ended.
func aBlockedHostKeepsNoLock(t *testing.T, v *env) {
	host := blockedLog{slog.NewTextHandler(io.Discard, nil), make(chan struct{})}
	var dialer faultconn.Dialer
	l := v.processOn(t, &dialer, LeaseOptions{TTL: cutTTL, Log: slog.New(host), Observer: dblock.Observer{
		Lost:          func(string, time.Duration, dblock.Reason) { <-host.until },
		HeartbeatLate: func(time.Duration, error) { <-host.until },
	}})
	defer func() {
		close(host.until)
		dialer.Accept()
	}()
	other := v.process(t, LeaseOptions{})
	locks := []*dblock.Lock{suite.Acquire(t, l, "a"), suite.Acquire(t, l, "b"), suite.Acquire(t, l, "c")}
	dialer.Refuse()
	for _, lock := range locks {
		next := suite.Acquire(t, other, lock.Key())
		suite.IsLost(t, lock, dblock.Expired)
		suite.Release(t, next)
	}
}

// expiresAllOrNothing locks the row of one of two keys: ExpireIn writes nothing then, and neither
// key is free at its end.
func expiresAllOrNothing(t *testing.T, v *env) {
	a, b := v.process(t, LeaseOptions{}), v.process(t, LeaseOptions{})
	lock := acquireSet(t, a, []string{"s1", "s2"})
	unlock := v.Locked(t, "SELECT 1 FROM dblock_lease WHERE lease_key = 's2' FOR UPDATE")
	const d = 100 * time.Millisecond
	err := lock.ExpireIn(t.Context(), d)
	assert.True(t, errors.Is(err, dblock.ErrBusy) || errors.Is(err, dblock.ErrLost), err)
	unlock()
	time.Sleep(2 * d)
	suite.IsTaken(t, b, "s1")
	suite.IsTaken(t, b, "s2")
	_ = lock.Release(t.Context()) // the lock has ended for its own process, as the server was slow to refuse
}

// endsBeforeTheServer compares the end that a process believes in with the one that the server has,
// in each mode and for each way to set it.
func endsBeforeTheServer(t *testing.T, v *env) {
	const d, margin = 30 * time.Second, 2 * time.Second
	l := v.process(t, LeaseOptions{TTL: 2 * time.Minute, Margin: margin})
	left := "EXTRACT(epoch FROM held_until - clock_timestamp()) * 1000"
	if !v.Postgres() {
		left = "TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), held_until) / 1000"
	}
	for table, mode := range map[string]dblock.Option{
		"dblock_lease": dblock.WithLabel(""), "dblock_reader": dblock.WithShared(), "dblock_permit": dblock.WithPermits(1, 2),
	} {
		for how, end := range map[string]dblock.Option{
			"max": dblock.WithMaxHold(d), "detached": dblock.WithoutRenewal(d), "moved": dblock.WithLabel(""),
		} {
			key := strings.TrimPrefix(table, "dblock_") + " " + how
			lock := suite.Acquire(t, l, key, mode, end)
			if how == "moved" {
				require.NoError(t, lock.ExpireIn(t.Context(), d))
			}
			query := "SELECT round(%s) FROM %s WHERE lease_key = '%s' AND handle IS NOT NULL"
			server := v.Count(t, fmt.Sprintf(query, left, table, key))
			own := time.Until(lock.ValidUntil()) // measured later: it only gets less
			assert.GreaterOrEqual(t, time.Duration(server)*time.Millisecond-own, margin-time.Second, key)
			assert.NoError(t, context.Cause(lock.Context()), key)
			suite.Release(t, lock)
		}
	}
}
