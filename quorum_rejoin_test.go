package dblock_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/root"
)

// A held lock regains the nodes that it has lost: it outlives a restart of all of them, one by one.
func TestQuorumOutlivesARollingRestart(t *testing.T) {
	onCluster(t, func(t *testing.T, c cluster) {
		q, nodes := c.process(t, "", dblock.QuorumOptions{})
		other, _ := c.process(t, "", dblock.QuorumOptions{})
		lock := get(t, q, "k")
		synctest.Wait()
		for range 2 {
			for i, n := range nodes {
				n.goDown()
				time.Sleep(time.Minute) // its lock has expired
				n.comeBack()
				time.Sleep(5 * time.Second)
				if err := context.Cause(lock.Context()); err != nil {
					t.Fatalf("node %d was restarted: %v", i, err)
				}
				if n.isFree(t, "k") {
					t.Errorf("node %d was not regained", i)
				}
				if _, err := other.TryAcquire(t.Context(), "k"); !errors.Is(err, dblock.ErrNotAcquired) {
					t.Errorf("node %d was restarted, and another process: %v", i, err)
				}
			}
		}
		giveBack(t, lock)
		giveBack(t, get(t, other, "k"))
	})
}

// What is regained ends when the lock does, by the node's own clock too.
func TestQuorumRegainsForTheRest(t *testing.T) {
	onCluster(t, func(t *testing.T, c cluster) {
		q, nodes := c.process(t, "", dblock.QuorumOptions{})
		for name, opt := range map[string]dblock.Option{
			"max": dblock.WithMaxHold(2 * time.Minute), "detached": dblock.WithoutRenewal(2 * time.Minute),
		} {
			began := time.Now()
			lock := get(t, q, name, opt)
			synctest.Wait()
			for _, n := range nodes[1:] {
				n.Lose(name)
				time.Sleep(10 * time.Second)
				if n.isFree(t, name) {
					t.Errorf("%s: a node was not regained", name)
				}
			}
			isLost(t, lock, dblock.ReasonTimeUp)
			if took := time.Since(began); took < 118*time.Second || took > 2*time.Minute {
				t.Errorf("%s: lost after %v", name, took)
			}
		}
		lock := get(t, q, "moved")
		synctest.Wait()
		if err := lock.ExpireIn(t.Context(), time.Minute); err != nil {
			t.Error(err)
		}
		began := time.Now()
		nodes[2].Lose("moved")
		time.Sleep(10 * time.Second)
		if h, err := nodes[2].Holder(t.Context(), "moved"); err != nil || h.Remaining > 50*time.Second {
			t.Errorf("regained as %+v, %v", h, err)
		}
		isLost(t, lock, dblock.ReasonTimeUp)
		if took := time.Since(began); took > time.Minute {
			t.Errorf("lost after %v", took)
		}
	})
}

// After a moment without a majority another process may have had the lock: nothing is regained
// then.
func TestQuorumRegainsNothingOnceLost(t *testing.T) {
	onCluster(t, func(t *testing.T, c cluster) {
		q, nodes := c.process(t, "", dblock.QuorumOptions{})
		nodes[2].answersAfter(10 * time.Second) // it joins late, as a node that is asked again does
		lock := get(t, q, "k")
		time.Sleep(time.Second)
		nodes[0].Lose("k")
		isLost(t, lock, dblock.ReasonStolen)
		time.Sleep(time.Minute)
		for i, n := range nodes {
			if !n.isFree(t, "k") {
				t.Errorf("node %d is held", i)
			}
		}
	})
}

// Close releases what its callers did not release, though the nodes stay open.
func TestQuorumCloseReleases(t *testing.T) {
	onCluster(t, func(t *testing.T, c cluster) {
		q, nodes := c.process(t, "", dblock.QuorumOptions{})
		other, _ := c.process(t, "", dblock.QuorumOptions{})
		lock := get(t, q, "k")
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := q.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("while a lock is in use: %v", err)
		}
		synctest.Wait()
		for i, n := range nodes {
			if !n.isFree(t, "k") {
				t.Errorf("node %d is held", i)
			}
		}
		next := get(t, other, "k")
		isLost(t, lock, dblock.ReasonClosed)
		synctest.Wait() // all nodes have answered
		if nodes[0].isFree(t, "k") {
			t.Error("the late release has freed what the next process holds")
		}
		giveBack(t, next)
	})
}

// slowRelease is a node that grants everything and takes an hour to release it.
type slowRelease struct{ endNode }

func (n *slowRelease) TryAcquire(ctx context.Context, key string, opts ...dblock.Option) (*dblock.Lock, error) {
	r, err := root.NewRequest(key, opts)
	if err != nil {
		return nil, err
	}
	lock, _ := root.NewLock(ctx, n, r, slowHold{endHold{&n.endNode, time.Now().Add(time.Hour)}})
	return lock, nil
}

type slowHold struct{ endHold }

func (slowHold) Release(context.Context, bool) error {
	time.Sleep(time.Hour)
	return nil
}

// The end of a wait is not put off by a node that takes its time to release what was of no use.
func TestQuorumAcquireEndsInTime(t *testing.T) {
	onCluster(t, func(t *testing.T, c cluster) {
		_, holders := c.process(t, "", dblock.QuorumOptions{})
		_, nodes := c.process(t, "", dblock.QuorumOptions{})
		for _, n := range holders[:2] {
			defer giveBack(t, get(t, n.LeaseLocker, "k"))
		}
		q, err := dblock.NewQuorum([]dblock.Locker{nodes[0], nodes[1], &slowRelease{}}, dblock.QuorumOptions{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
		defer cancel()
		began := time.Now()
		if _, err := q.Acquire(ctx, "k"); !errors.Is(err, dblock.ErrNotAcquired) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("told %v", err)
		}
		if took := time.Since(began); took > 150*time.Millisecond {
			t.Errorf("Acquire with 150 ms took %v", took)
		}
		if err := q.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Callers of one process are served in the order of their calls, and the nodes are asked once for
// all of them.
func TestQuorumHandsOff(t *testing.T) {
	onCluster(t, func(t *testing.T, c cluster) {
		q, nodes := c.process(t, "", dblock.QuorumOptions{})
		first := get(t, q, "k")
		synctest.Wait()
		before, err := nodes[0].Holder(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		var served []int
		var work sync.WaitGroup
		for i := range 20 {
			work.Go(func() {
				lock := get(t, q, "k")
				served = append(served, i) // under the lock
				if h, err := nodes[0].Holder(t.Context(), "k"); err != nil || h.Fence.Token != before.Fence.Token {
					t.Errorf("caller %d: %+v, %v", i, h, err)
				}
				giveBack(t, lock)
			})
			synctest.Wait()
		}
		giveBack(t, first)
		work.Wait()
		if !slices.IsSorted(served) || len(served) != 20 {
			t.Errorf("served in the order %v", served)
		}
		last := get(t, q, "k")
		given, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := q.Acquire(given, "k"); !errors.Is(err, dblock.ErrNotAcquired) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the wait behind another caller ended with %v", err)
		}
		if _, err := q.TryAcquire(t.Context(), "k"); !errors.Is(err, dblock.ErrNotAcquired) {
			t.Errorf("a try behind another caller: %v", err)
		}
		giveBack(t, last)
	})
}

// A lock is handed off only to a caller that asks for the same: its own label, data or end are the
// next one's alone.
func TestQuorumHandsOffWhatIsAlike(t *testing.T) {
	onCluster(t, func(t *testing.T, c cluster) {
		q, nodes := c.process(t, "", dblock.QuorumOptions{})
		opts := [][]dblock.Option{
			nil, {dblock.WithLabel("x")}, {dblock.WithData([]byte("d"))}, nil, {dblock.WithMaxHold(time.Hour)}, {dblock.WithoutRenewal(time.Hour)}, nil,
		}
		lock := get(t, q, "k", opts[0]...)
		for _, opt := range opts[1:] {
			next := make(chan *dblock.Lock)
			go func() { next <- get(t, q, "k", opt...) }()
			synctest.Wait()
			giveBack(t, lock)
			lock = <-next
			synctest.Wait() // all nodes have answered
			r, err := root.NewRequest("k", opt)
			if err != nil {
				t.Fatal(err)
			}
			h, err := nodes[0].Holder(t.Context(), "k")
			if err != nil || string(h.Data) != string(r.Data) || r.Label != nil && h.Holder.Label != *r.Label || r.MaxHold == nil && h.Remaining > time.Minute ||
				r.Detached && h.Remaining < 59*time.Minute {
				t.Errorf("%+v is held as %+v, %v", r, h, err)
			}
		}
		if err := lock.ExpireIn(t.Context(), time.Hour); err != nil {
			t.Error(err)
		}
		next := make(chan *dblock.Lock)
		go func() { next <- get(t, q, "k") }()
		synctest.Wait()
		giveBack(t, lock)
		lock = <-next
		time.Sleep(2 * time.Hour)
		giveBack(t, lock)
	})
}

// Two processes with many callers each: none of them waits for long.
func TestQuorumStarvesNoCaller(t *testing.T) {
	onCluster(t, func(t *testing.T, c cluster) {
		const callers, rounds = 20, 30
		var mu sync.Mutex
		var waits []time.Duration
		var work sync.WaitGroup
		for range 2 {
			q, nodes := c.process(t, "", dblock.QuorumOptions{})
			for _, n := range nodes {
				n.answersAfter(time.Millisecond)
			}
			for range callers {
				work.Go(func() {
					for range rounds {
						began := time.Now()
						lock := get(t, q, "k")
						waited := time.Since(began)
						time.Sleep(2 * time.Millisecond)
						giveBack(t, lock)
						mu.Lock()
						waits = append(waits, waited)
						mu.Unlock()
					}
				})
			}
		}
		work.Wait()
		slices.Sort(waits)
		t.Logf("%d turns: median %v, p99 %v, max %v", len(waits), waits[len(waits)/2], waits[len(waits)*99/100], waits[len(waits)-1])
		if most := waits[len(waits)-1]; most > time.Second {
			t.Errorf("a caller has waited for %v", most)
		}
	})
}
