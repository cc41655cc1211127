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

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
)

// tenure is for how long a caller counted on a lock.
type tenure struct {
	key      string
	from, to time.Time
	shared   bool
	lost     bool
}

// tenures are those of all callers.
type tenures struct {
	mu  sync.Mutex
	all []tenure
}

func (n *tenures) add(one tenure) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, one)
}

// overlaps are the longest of those where nobody had lost anything, and of those where somebody had. Readers may overlap.
func (n *tenures) overlaps() (never, afterLoss time.Duration) {
	slices.SortFunc(n.all, func(a, b tenure) int { return a.from.Compare(b.from) })
	for i, a := range n.all {
		for _, b := range n.all[i+1:] {
			if !b.from.Before(a.to) {
				break
			}
			if a.key != b.key || a.shared && b.shared {
				continue
			}
			end := a.to
			if b.to.Before(end) {
				end = b.to
			}
			if both := end.Sub(b.from); a.lost || b.lost {
				afterLoss = max(afterLoss, both)
			} else {
				never = max(never, both)
			}
		}
	}
	return never, afterLoss
}

// excludesThroughKills has processes compete for few keys while the server ends their connections: two count on a key at once
// only if the release of one of them says that the lock was lost, and for no longer than it takes to find that out.
func excludesThroughKills(t *testing.T, s *env) {
	const idle = 3 * time.Second
	noticed := idle / 3 // until then a holder does not hear of the loss
	if s.e.Kind == devdb.Postgres {
		noticed = 100 * time.Millisecond
	}
	within := noticed + time.Second // for a busy machine
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
	defer stop()
	var n tenures
	var callers sync.WaitGroup
	for range 3 {
		l := s.process(t, SessionOptions{IdleTimeout: idle, Poll: 20 * time.Millisecond})
		for c := range 4 {
			callers.Go(func() { s.holdNowAndThen(t, ctx, l, fmt.Sprint("k", c%2), &n) })
		}
	}
	kills := 0
	for ; ctx.Err() == nil; kills++ {
		if id := s.holder(t, fmt.Sprint("k", kills%2)); id != 0 {
			_ = s.end(t.Context(), id, false)
		}
		time.Sleep(noticed/2 + rand.N(2*noticed)) // some of them get their work done
	}
	callers.Wait()
	never, afterLoss := n.overlaps()
	t.Logf("%d kills, %d tenures; two counted on a key for %v where one had lost it", kills, len(n.all), afterLoss)
	if never > 0 || afterLoss > within {
		t.Errorf("two had a key for %v where nobody had lost it, and for %v after a loss, want 0 and %v", never, afterLoss, within)
	}
	if len(n.all) < 50 {
		t.Errorf("only %d tenures: this shows nothing", len(n.all))
	}
	without := tenures{all: []tenure{}}
	for _, a := range n.all { // the control: as if half of the callers had taken another key's lock
		without.add(tenure{key: "same", from: a.from, to: a.to})
	}
	if never, _ := without.overlaps(); never == 0 {
		t.Error("of different keys none overlapped: this test could not fail")
	}
}

// holdNowAndThen counts on a lock until it is lost, or for a while.
func (s *env) holdNowAndThen(t *testing.T, ctx context.Context, l dblock.Locker, key string, n *tenures) {
	for ctx.Err() == nil {
		var opts []dblock.Option
		one := tenure{key: key, shared: s.e.Kind == devdb.Postgres && rand.N(3) == 0}
		if one.shared {
			opts = append(opts, dblock.WithShared())
		}
		lock, err := l.Acquire(ctx, key, opts...)
		if errors.Is(err, dblock.ErrUnavailable) || errors.Is(err, dblock.ErrNotAcquired) {
			continue
		}
		if err != nil {
			t.Error(err)
			return
		}
		one.from = time.Now()
		select {
		case <-lock.Context().Done():
		case <-time.After(rand.N(10 * time.Millisecond)):
		}
		one.to = time.Now()
		one.lost = errors.Is(lock.Release(t.Context()), dblock.ErrLost)
		n.add(one)
	}
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

// sessionIsLinearizable: there is an order of all grants and releases in which each is what a lock would do.
func sessionIsLinearizable(t *testing.T, s *env) {
	h := suite.History{Began: time.Now()}
	var callers sync.WaitGroup
	for p := range 3 {
		l := s.process(t, SessionOptions{Poll: 20 * time.Millisecond})
		for c := range 4 {
			callers.Go(func() {
				for range 40 {
					s.holdAndNote(t, l, &h, p*4+c)
				}
			})
		}
	}
	callers.Wait()
	if !h.IsRight(t, mutex{}) {
		t.Error("no lock would have done that: ", h.Wrong(mutex{}))
	}
	grant := suite.Step{What: suite.Granted, Key: "k0"}
	h.ForgeriesAreNoticed(t, mutex{}, map[string][]porcupine.Operation{
		"a second grant": h.And(grant, grant), "a release of nothing": h.And(suite.Step{What: suite.Left, Key: "k0"}),
	})
	t.Log(&h)
}

func (s *env) holdAndNote(t *testing.T, l dblock.Locker, h *suite.History, client int) {
	one := suite.Step{What: suite.Granted, Key: fmt.Sprint("k", rand.N(2))}
	var opts []dblock.Option
	if s.e.Kind == devdb.Postgres && rand.N(2) == 0 {
		one.Mode, opts = dblock.Shared, append(opts, dblock.WithShared())
	}
	from := h.Now()
	lock, err := l.Acquire(suite.Soon(t), one.Key, opts...)
	if err != nil {
		t.Error(err)
		return
	}
	h.Note(client, from, h.Now(), one)
	one.What, from = suite.Left, h.Now()
	suite.Release(t, lock)
	h.Note(client, from, h.Now(), one)
}
