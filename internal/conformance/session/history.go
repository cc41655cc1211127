package session

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// section is for how long a caller counted on a lock.
type section struct {
	key          string
	from, to     time.Time
	shared, lost bool
}

// holdFor counts on a lock for a while, or until it is lost, and releases it.
func holdFor(t *testing.T, lock *dblock.Lock, d time.Duration) section {
	one := section{key: lock.Key(), from: time.Now()}
	suite.SleepFor(lock.Context(), d)
	one.to = time.Now()
	one.lost = errors.Is(lock.Release(t.Context()), dblock.ErrLost)
	return one
}

// sections are those of all callers.
type sections struct {
	mu  sync.Mutex
	all []section
}

func (n *sections) add(one section) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, one)
}

func (n *sections) len() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.all)
}

// beside counts the sections that began during another process's, and those that overlap it
// although their release returned nil.
func (n *sections) beside(other section) (begun, kept int) {
	for _, a := range n.all {
		if !a.from.Before(other.from) && a.from.Before(other.to) {
			begun++
		}
		if !a.lost && a.from.Before(other.to) && other.from.Before(a.to) {
			kept++
		}
	}
	return begun, kept
}

// overlaps are the longest between two sections that lost nothing, and between two of which one
// did. Readers may overlap.
func (n *sections) overlaps() (never, afterLoss time.Duration) {
	slices.SortFunc(n.all, func(a, b section) int { return a.from.Compare(b.from) })
	for i, a := range n.all {
		for _, b := range n.all[i+1:] {
			if !b.from.Before(a.to) {
				break
			}
			if a.key != b.key || a.shared && b.shared {
				continue
			}
			both := min(a.to.Sub(b.from), b.to.Sub(b.from))
			if a.lost || b.lost {
				afterLoss = max(afterLoss, both)
			} else {
				never = max(never, both)
			}
		}
	}
	return never, afterLoss
}

// excludesThroughKills has processes compete for few keys while the server ends their connections:
// two count on a key at once only if the release of one of them says that the lock was lost, and
// for no longer than it takes to find that out.
func excludesThroughKills(t *testing.T, s *env) {
	const idle = 3 * time.Second
	noticed := idle / 3 // until then a holder does not hear of the loss
	if s.Postgres() {
		noticed = 100 * time.Millisecond
	}
	ctx, stop := context.WithCancel(suite.Soon(t))
	var n sections
	var callers sync.WaitGroup
	for range 3 {
		l := s.process(t, SessionOptions{IdleTimeout: idle, Poll: 20 * time.Millisecond})
		for c := range 4 {
			callers.Go(func() { s.holdNowAndThen(t, ctx, l, fmt.Sprint("k", c%2), &n) })
		}
	}
	for kills := 0; ctx.Err() == nil && (kills < 6 || n.len() < 100); time.Sleep(noticed/4 + rand.N(noticed)) { // some get their work done
		if id := s.holder(t, fmt.Sprint("k", kills%2)); id != 0 {
			_ = s.EndSession(t.Context(), id, false)
			kills++
		}
	}
	stop()
	callers.Wait()
	never, afterLoss := n.overlaps()
	assert.Zero(t, never, "two had a key, and neither had lost it")
	assert.Less(t, afterLoss, noticed+time.Second, "two had a key, and one had lost it")
	var control sections // as if half of the callers had taken another key's lock
	for _, a := range n.all {
		control.add(section{key: "same", from: a.from, to: a.to})
	}
	never, _ = control.overlaps()
	assert.NotZero(t, never, "no sections of different keys overlapped: this test could not fail")
}

// holdNowAndThen counts on a lock again and again, shared or alone.
func (s *env) holdNowAndThen(t *testing.T, ctx context.Context, l dblock.Locker, key string, n *sections) {
	for ctx.Err() == nil {
		mode := s.anyMode()
		lock, err := l.Acquire(ctx, key, mode...)
		if errors.Is(err, dblock.ErrUnavailable) || errors.Is(err, dblock.ErrNotAcquired) {
			continue
		}
		if !assert.NoError(t, err) {
			return
		}
		one := holdFor(t, lock, rand.N(10*time.Millisecond))
		one.shared = len(mode) > 0
		n.add(one)
	}
}

// anyMode draws one of the modes that the server has.
func (s *env) anyMode() (mode []dblock.Option) {
	if s.Postgres() && rand.N(2) == 0 {
		mode = append(mode, dblock.WithShared())
	}
	return mode
}

// mutex is the state of a lock without tokens.
type mutex struct{ readers, writers int }

func (m mutex) Next(s suite.Step) []suite.State {
	sign := map[suite.What]int{suite.Granted: 1, suite.Left: -1}[s.What]
	if s.Mode == dblock.Shared {
		m.readers += sign
	} else {
		m.writers += sign
	}
	if m.readers < 0 || m.writers < 0 || m.writers > 1 || m.writers == 1 && m.readers > 0 {
		return nil
	}
	return []suite.State{m}
}

// isLinearizable: there is an order of all grants and releases in which each is what a lock would
// do.
func isLinearizable(t *testing.T, s *env) {
	h := suite.History{Began: time.Now()}
	procs := []dblock.Locker{s.process(t, quick), s.process(t, quick), s.process(t, quick)}
	suite.Crowd(12, func(c int) {
		for range 40 {
			mode := s.anyMode()
			one := suite.Step{What: suite.Granted, Key: fmt.Sprint("k", rand.N(2))}
			if len(mode) > 0 {
				one.Mode = dblock.Shared
			}
			from := h.Now()
			lock, err := procs[c%3].Acquire(suite.Soon(t), one.Key, mode...)
			if !assert.NoError(t, err) {
				return
			}
			h.Note(c, from, h.Now(), one)
			one.What, from = suite.Left, h.Now()
			suite.Release(t, lock)
			h.Note(c, from, h.Now(), one)
		}
	})
	if !h.IsRight(t, mutex{}) {
		t.Error("no lock would have done that: ", h.Wrong(mutex{}))
	}
	grant := suite.Step{What: suite.Granted, Key: "k0"}
	h.ForgeriesAreNoticed(t, mutex{}, map[string][]porcupine.Operation{
		"a second grant": h.And(grant, grant), "a release of nothing": h.And(suite.Step{What: suite.Left, Key: "k0"}),
	})
}
