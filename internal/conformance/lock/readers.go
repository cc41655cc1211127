package lock

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// ReadersShare: readers of two processes hold a key together, and a writer waits for the last one.
func (readerTests) ReadersShare(t *testing.T, p Place) {
	a, b := p.two(t)
	shared := dblock.WithShared()
	before := suite.Acquire(t, a, "k")
	suite.Release(t, before)
	first, near := suite.Acquire(t, a, "k", shared), suite.Acquire(t, a, "k", shared)
	second := suite.Acquire(t, b, "k", shared)
	suite.IsTaken(t, b, "k")
	for _, lock := range []*dblock.Lock{first, near} {
		suite.IsTaken(t, a, "k")
		suite.Release(t, lock)
	}
	suite.IsTaken(t, a, "k")
	suite.Release(t, second)
	after := suite.Acquire(t, b, "k")
	suite.IsTaken(t, a, "k", shared)
	suite.IsTaken(t, b, "k", shared)
	suite.Release(t, after)
	suite.IsFree(t, a, "k", shared)
	suite.IsFree(t, b, "k", shared)
	if a.Caps().Fencing {
		assert.Greater(t, token(t, first), token(t, before))
		assert.Equal(t, []int64{token(t, first), token(t, first)}, []int64{token(t, near), token(t, second)})
		assert.Greater(t, token(t, after), token(t, first))
	}
}

// WaitsForReaders: a writer that waits keeps new readers out. When it gives up, they may come
// again.
func (readerTests) WaitsForReaders(t *testing.T, p Place) {
	a, b := p.two(t)
	shared := dblock.WithShared()
	reader := suite.Acquire(t, a, "k", shared)
	ctx, giveUp := context.WithCancel(suite.Soon(t))
	gone := suite.Begin(func() (*dblock.Lock, error) { return b.Acquire(ctx, "k") })
	KeptOut(t, a, "k")
	giveUp()
	_, err := gone()
	assert.ErrorIs(t, err, context.Canceled)
	assert.True(t, isAny(err, dblock.ErrNotAcquired, dblock.ErrOutcomeUnknown), "%v", err)
	suite.IsFree(t, a, "k", shared)
	suite.Until(t, "readers are let in at once", func() bool { return !isRefused(t, a, "k") })

	writer := suite.Waiter(t, b, "k")
	KeptOut(t, a, "k")
	var writing atomic.Bool
	next := suite.Waiter(t, a, "k", shared) // it may come before the writer, if that is not queued yet
	nextDone := suite.Beside(func() {
		lock := next()
		assert.False(t, writing.Load(), "a reader beside a writer")
		suite.Release(t, lock)
	})
	suite.Release(t, reader)
	lock := writer()
	writing.Store(true)
	assert.ErrorIs(t, suite.Second(a.TryAcquire(t.Context(), "k", shared)), dblock.ErrNotAcquired)
	writing.Store(false)
	suite.Release(t, lock)
	nextDone()
}

// isRefused reports whether a reader is refused.
func isRefused(t *testing.T, l dblock.Locker, key string) bool {
	t.Helper()
	lock, err := l.TryAcquire(t.Context(), key, dblock.WithShared())
	if err != nil {
		require.ErrorIs(t, err, dblock.ErrNotAcquired)
		return true
	}
	suite.Release(t, lock)
	return false
}

// KeptOut waits until a writer that waits keeps readers out.
func KeptOut(t *testing.T, l dblock.Locker, key string) {
	t.Helper()
	suite.Until(t, "readers are kept out", func() bool { return isRefused(t, l, key) })
}

// AWriterIsLetIn: a writer that waits gets its turn although readers come and go without a gap.
func (readerTests) AWriterIsLetIn(t *testing.T, p Place) {
	l := p.process(t, LeaseOptions{})
	ctx, stop := context.WithCancel(suite.Soon(t))
	var readers sync.WaitGroup
	defer readers.Wait()
	defer stop()
	var reads atomic.Int64
	for range 3 {
		r := p.process(t, LeaseOptions{})
		for range 4 {
			readers.Go(func() {
				for ctx.Err() == nil {
					if lock, err := r.Acquire(ctx, "k", dblock.WithShared()); err == nil {
						reads.Add(1)
						time.Sleep(5 * time.Millisecond)
						suite.Release(t, lock)
					}
				}
			})
		}
	}
	suite.Until(t, "readers come and go", func() bool { return reads.Load() >= 50 })
	lock, err := l.Acquire(ctx, "k")
	if assert.NoError(t, err) {
		suite.Release(t, lock)
	}
}

// ReadersDontUpgrade: a reader that asks for the exclusive lock below its own would wait for
// itself.
func (readerTests) ReadersDontUpgrade(t *testing.T, p Place) {
	l := p.process(t, LeaseOptions{})
	outer := suite.Acquire(t, l, "k", dblock.WithShared())
	for _, opts := range [][]dblock.Option{{}, {dblock.WithReentrant()}, {dblock.WithShared()}} {
		_, err := l.Acquire(outer.Context(), "k", opts...)
		assert.ErrorIs(t, err, dblock.ErrDeadlock)
		assert.Equal(t, dblock.ModeShared, suite.As[*dblock.DeadlockError](t, err).Mode)
	}
	inner := suite.Must(l.Acquire(outer.Context(), "k", dblock.WithShared(), dblock.WithReentrant()))(t)
	suite.Release(t, outer)
	assert.Error(t, suite.Second(l.TryAcquire(t.Context(), "k")), "beside a reentrant reader")
	suite.Release(t, inner)
	writer := suite.Acquire(t, l, "k")
	assert.ErrorIs(t, suite.Second(l.Acquire(writer.Context(), "k", dblock.WithShared())), dblock.ErrDeadlock)
	suite.Release(t, writer)
}

// ReadersDontWait: readers of one process all hold the key before one of them releases it.
func (readerTests) ReadersDontWait(t *testing.T, p Place) {
	const crowd = 50
	l := p.process(t, LeaseOptions{})
	writer := suite.Acquire(t, l, "k")
	ctx := suite.Soon(t)
	var in sync.WaitGroup
	in.Add(crowd)
	readers := suite.Beside(func() {
		suite.Crowd(crowd, func(int) {
			lock, err := l.Acquire(ctx, "k", dblock.WithShared())
			in.Done()
			if assert.NoError(t, err) {
				in.Wait()
				suite.Release(t, lock)
			}
		})
	})
	suite.Release(t, writer)
	readers()
}

// deadGiveWay: holders that die, or whose time ends, do not keep another process out. opts are
// those of a holder, whole are those of a caller that any holder keeps out.
func deadGiveWay(t *testing.T, p Place, opts, whole []dblock.Option) {
	t.Helper()
	a, b := p.two(t)
	dead := []*dblock.Lock{suite.Acquire(t, a, "dies", opts...), suite.Acquire(t, a, "dies", opts...)}
	p.ForgetMembers(t)
	suite.IsFree(t, b, "dies", whole...)
	for _, lock := range dead {
		err := p.Check(t.Context(), a, lock)
		assert.True(t, isAny(err, dblock.ErrFenced, dblock.ErrLost), "a guard of the dead: %v", err)
		_ = lock.Release(t.Context()) // it learns of its loss by its next heartbeat
	}
	ends := suite.Acquire(t, a, "ends", append(opts, dblock.WithMaxHold(50*time.Millisecond))...)
	suite.IsFree(t, b, "ends", whole...)
	suite.IsLost(t, ends, dblock.ReasonTimeUp)

	lasts := suite.Acquire(t, a, "lasts", append(opts, dblock.WithoutRenewal(2*time.Second))...)
	p.ForgetMembers(t)
	if next, err := b.TryAcquire(t.Context(), "lasts", whole...); err == nil {
		assert.False(t, time.Now().Before(lasts.ValidUntil()), "acquired beside a holder whose time has not ended")
		suite.Release(t, next)
	}
	suite.IsFree(t, b, "lasts", whole...)
	suite.IsLost(t, lasts, dblock.ReasonTimeUp)
}

func (contract) DeadReadersGiveWay(t *testing.T, p Place) {
	deadGiveWay(t, p, []dblock.Option{dblock.WithShared()}, nil)
	a, b := p.two(t)
	writer := suite.Acquire(t, a, "writer dies")
	p.ForgetMembers(t)
	suite.IsFree(t, b, "writer dies", dblock.WithShared())
	_ = writer.Release(t.Context())
}

// ADeadWriterLeavesReaders: a writer dies while it waits for readers. The next one waits for them,
// too.
func (contract) ADeadWriterLeavesReaders(t *testing.T, p Place) {
	a, b := p.two(t)
	c := p.process(t, LeaseOptions{})
	reader := suite.Acquire(t, a, "k", dblock.WithShared(), dblock.WithoutRenewal(time.Minute))
	ctx, stop := context.WithCancel(suite.Soon(t))
	waits := suite.Beside(func() { _, _ = b.Acquire(ctx, "k") })
	KeptOut(t, c, "k")
	p.ForgetMembers(t)
	assert.Error(t, suite.Second(c.TryAcquire(t.Context(), "k")))
	stop()
	waits()
	suite.Release(t, reader)
	suite.IsFree(t, c, "k")
}

func (contract) GuardsReaders(t *testing.T, p Place) {
	a, b := p.two(t)
	first, second := suite.Acquire(t, a, "k", dblock.WithShared()), suite.Acquire(t, b, "k", dblock.WithShared())
	assert.NoError(t, p.Check(t.Context(), a, first))
	assert.NoError(t, p.Check(t.Context(), b, second))
	suite.Release(t, first)
	assert.NoError(t, p.Check(t.Context(), b, second))
	p.ForgetMembers(t)
	suite.IsFree(t, a, "k")
	err := p.Check(t.Context(), b, second)
	assert.True(t, isAny(err, dblock.ErrFenced, dblock.ErrLost), "a reader that was declared dead: %v", err)
	_ = second.Release(t.Context()) // it learns of its loss by its next heartbeat
}

// ASweepLeavesReaders sweeps keys that were read, and none that is being read.
func (contract) ASweepLeavesReaders(t *testing.T, p Place) {
	l := p.process(t, LeaseOptions{})
	reader := suite.Acquire(t, l, "read", dblock.WithShared())
	for i := range 3 {
		suite.IsFree(t, l, fmt.Sprint("was read", i), dblock.WithShared())
	}
	p.AgeLeases(t)
	assert.EqualValues(t, 3, suite.Must(l.Sweep(t.Context()))(t))
	suite.IsTaken(t, l, "read")
	suite.IsFree(t, l, "read", dblock.WithShared())
	suite.Release(t, reader)
	suite.IsFree(t, l, "read")
	suite.IsFree(t, l, "was read0")
}

func (contract) ShowsReaders(t *testing.T, p Place) {
	l := p.process(t, LeaseOptions{Label: "process"})
	reader := suite.Acquire(t, l, "k", dblock.WithShared(), dblock.WithLabel("reader"))
	other := suite.Acquire(t, l, "k", dblock.WithShared())
	held := suite.Must(l.Held(t.Context()))(t)
	var labels []string
	for _, h := range held {
		labels = append(labels, h.Holder.Label)
		assert.Equal(t, "k", h.Key)
		assert.Equal(t, dblock.ModeShared, h.Mode)
		assert.Equal(t, dblock.ModeShared, h.Fence.Mode)
		assert.Equal(t, token(t, reader), h.Fence.Token)
		assert.Positive(t, h.Remaining)
	}
	assert.ElementsMatch(t, []string{"reader", "process"}, labels)
	assert.Contains(t, labels, suite.IsTaken(t, l, "k").Holder.Label)
	assert.NoError(t, l.ForceRelease(t.Context(), "k", token(t, reader)))
	suite.IsFree(t, l, "k")
	endedFor(t, reader.Release(t.Context()), dblock.ReasonStolen)
	endedFor(t, other.Release(t.Context()), dblock.ReasonStolen)
}

// ReadersStayOneCrowd: of writers that wait for a reader one gives up and one dies. Later readers
// have the reader's token, and pass the fence together. A writer that is let in fences them all
// off.
func (faultTests) ReadersStayOneCrowd(t *testing.T, v *env) {
	a, b := v.two(t)
	first := suite.Acquire(t, a, "k", dblock.WithShared(), dblock.WithoutRenewal(time.Hour))
	require.NoError(t, v.fence(t, v.e.AdvanceFence, first, "report"))
	for _, dies := range []bool{false, true} {
		ctx, giveUp := context.WithCancel(suite.Soon(t))
		waits := suite.Beside(func() { _, _ = b.Acquire(ctx, "k") })
		KeptOut(t, a, "k")
		if dies {
			v.ForgetMembers(t)
		}
		giveUp()
		waits()
		next := suite.Acquire(t, v.process(t, LeaseOptions{}), "k", dblock.WithShared())
		assert.Equal(t, token(t, first), token(t, next))
		assert.NoError(t, v.fence(t, v.e.AdvanceFence, next, "report"))
		suite.Release(t, next)
	}
	assert.NoError(t, v.fence(t, v.e.CheckFence, first, "report"))
	suite.Release(t, first)
	writer := suite.Acquire(t, v.process(t, LeaseOptions{}), "k")
	assert.NoError(t, v.fence(t, v.e.AdvanceFence, writer, "report"))
	assert.Greater(t, token(t, writer), token(t, first))
	assert.ErrorIs(t, v.fence(t, v.e.CheckFence, first, "report"), dblock.ErrFenced)
	suite.Release(t, writer)
}

// AWriterLeavesNoTrace: after a writer waited, and was served or gave up, readers of another
// process get the key at once, and not when the writer's mark has ended, which lasts for a second.
func (leaseTests) AWriterLeavesNoTrace(t *testing.T, v *env) {
	reader, writer := v.two(t)
	later := v.process(t, LeaseOptions{})
	shared := dblock.WithShared()
	for _, served := range []bool{true, false} {
		took := time.Minute
		for n := 0; n < 20 && took > 500*time.Millisecond; n++ { // a busy machine may be late, and not always
			first := suite.Acquire(t, reader, "k", shared)
			ctx, giveUp := context.WithCancel(suite.Soon(t))
			acquired := suite.Begin(func() (*dblock.Lock, error) { return writer.Acquire(ctx, "k") })
			KeptOut(t, later, "k")
			if served {
				suite.Release(t, first)
			} else {
				giveUp()
			}
			if lock, _ := acquired(); lock != nil {
				suite.Release(t, lock)
			}
			giveUp()
			began := time.Now()
			suite.IsFree(t, later, "k", shared)
			took = min(took, time.Since(began))
			if !served {
				suite.Release(t, first)
			}
		}
		assert.LessOrEqual(t, took, 500*time.Millisecond, "readers after a writer waited; served: %v", served)
	}
}
