package dblock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
)

// node is a Locker whose answers come late, or that has no tables.
type node struct {
	*dblocktest.Locker
	late     atomic.Int64 // by so many nanoseconds
	noTables atomic.Bool
}

func (n *node) TryAcquire(ctx context.Context, key string, opts ...dblock.Option) (*dblock.Lock, error) {
	if n.noTables.Load() {
		return nil, &dblock.SchemaError{Want: 1}
	}
	lock, err := n.Locker.TryAcquire(ctx, key, opts...)
	time.Sleep(time.Duration(n.late.Load()))
	return lock, err
}

func (n *node) answersAfter(d time.Duration) { n.late.Store(int64(d)) }

// isFree tells whether nobody has a key on this node.
func (n *node) isFree(t *testing.T, key string) bool {
	t.Helper()
	_, err := n.Holder(context.Background(), key)
	if err != nil && !errors.Is(err, dblock.ErrNotHeld) {
		t.Error(err)
	}
	return err != nil
}

// cluster is three servers.
type cluster [3]*dblocktest.Server

func newCluster() (c cluster) {
	for i := range c {
		c[i] = dblocktest.NewServer(nil)
	}
	return c
}

// process is a Quorum as a process of its own has it, with its nodes.
func (c cluster) process(t *testing.T, label string, o dblock.QuorumOptions) (*dblock.Quorum, [3]*node) {
	t.Helper()
	var nodes [3]*node
	var lockers []dblock.Locker
	for i, s := range c {
		l, err := s.NewLocker(dblocktest.Options{Label: label})
		if err != nil {
			t.Fatal(err)
		}
		nodes[i] = &node{Locker: l}
		lockers = append(lockers, nodes[i])
	}
	q, err := dblock.NewQuorum(lockers, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 24*time.Hour)
		defer cancel()
		if err := q.Close(ctx); err != nil {
			t.Error(err)
		}
		for _, n := range nodes {
			if err := n.Close(ctx); err != nil {
				t.Error(err)
			}
		}
	})
	return q, nodes
}

// onCluster runs a test in time that passes at once.
func onCluster(t *testing.T, f func(t *testing.T, c cluster)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { f(t, newCluster()) })
}

func get(t *testing.T, l dblock.Locker, key string, opts ...dblock.Option) *dblock.Lock {
	t.Helper()
	lock, err := l.Acquire(t.Context(), key, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

func giveBack(t *testing.T, lock *dblock.Lock) {
	t.Helper()
	if err := lock.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

func isLost(t *testing.T, lock *dblock.Lock, want dblock.Reason) {
	t.Helper()
	<-lock.Context().Done()
	var lost *dblock.LostError
	if !errors.As(context.Cause(lock.Context()), &lost) || lost.Reason != want || lost.Key != lock.Key() {
		t.Errorf("ended by %v, want: %s", context.Cause(lock.Context()), want)
	}
	if err := lock.Release(t.Context()); !errors.Is(err, dblock.ErrLost) {
		t.Errorf("release of what was lost: %v", err)
	}
}

func TestQuorumExcludes(t *testing.T) {
	onCluster(t, func(t *testing.T, c cluster) {
		a, nodes := c.process(t, "a", dblock.QuorumOptions{})
		b, _ := c.process(t, "b", dblock.QuorumOptions{})
		if caps := a.Caps(); caps.Fencing || caps.Shared || !caps.Durable || !caps.MaxHold {
			t.Errorf("caps %+v", caps)
		}
		lock := get(t, a, "k", dblock.WithData([]byte("data")))
		if f, ok := lock.Fence(); ok {
			t.Errorf("a fence: %v", f)
		}
		synctest.Wait()
		for i, n := range nodes {
			if h, err := n.Holder(t.Context(), "k"); err != nil || h.Holder.Label != "a" || string(h.Data) != "data" {
				t.Errorf("node %d: %+v, %v", i, h, err)
			}
		}
		var held *dblock.HeldError
		if _, err := b.TryAcquire(t.Context(), "k"); !errors.As(err, &held) || held.Holder.Label != "a" || held.Holder.Token != 0 || held.Wait != nil {
			t.Errorf("while a holds it: %v", err)
		}
		bounded, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := b.Acquire(bounded, "k"); !errors.Is(err, dblock.ErrNotAcquired) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the wait ended with %v", err)
		}
		other := get(t, b, "another key")
		time.Sleep(time.Hour) // heartbeats keep them
		giveBack(t, lock)
		giveBack(t, lock) // once more is nothing
		giveBack(t, get(t, b, "k"))
		giveBack(t, other)
	})
}

// One node may be down, or hang; with two down nothing is granted, and nothing is left behind.
func TestQuorumNeedsAMajority(t *testing.T) {
	onCluster(t, func(t *testing.T, c cluster) {
		q, nodes := c.process(t, "", dblock.QuorumOptions{})
		for i := range nodes {
			nodes[i].Fail(dblock.ErrUnavailable)
			giveBack(t, get(t, q, "k"))
			nodes[i].answersAfter(time.Hour)
			began := time.Now()
			giveBack(t, get(t, q, "k"))
			if took := time.Since(began); took > time.Second {
				t.Errorf("node %d hangs, and holds others up for %v", i, took)
			}
			nodes[i].answersAfter(0)
			time.Sleep(2 * time.Hour)
		}
		for _, err := range []error{dblock.ErrUnavailable, dblock.ErrBusy, dblock.ErrOutcomeUnknown} {
			nodes[0].Fail(err)
			nodes[2].Fail(err)
			_, got := q.TryAcquire(t.Context(), "k")
			if !errors.Is(got, dblock.ErrUnavailable) || errors.Is(got, dblock.ErrBusy) || errors.Is(got, dblock.ErrOutcomeUnknown) {
				t.Errorf("two nodes say %v, the Quorum %v", err, got)
			}
			time.Sleep(time.Minute) // what is in doubt is cleared up
			for i, n := range nodes {
				if !n.isFree(t, "k") {
					t.Errorf("%v: node %d is held", err, i)
				}
			}
		}
		nodes[0].answersAfter(time.Hour)
		nodes[1].answersAfter(time.Hour)
		began := time.Now()
		if _, err := q.TryAcquire(t.Context(), "k"); !errors.Is(err, dblock.ErrUnavailable) || time.Since(began) != time.Second {
			t.Errorf("two nodes hang: %v after %v", err, time.Since(began))
		}
		bounded, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began = time.Now()
		_, err := q.Acquire(bounded, "k")
		if !errors.Is(err, dblock.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 10*time.Second {
			t.Errorf("two nodes hang, and the wait ended after %v: %v", time.Since(began), err)
		}
		nodes[0].answersAfter(0)
		nodes[1].answersAfter(0)
		time.Sleep(2 * time.Hour)
		for i, n := range nodes {
			if !n.isFree(t, "k") {
				t.Errorf("node %d granted late, and is held", i)
			}
		}
	})
}

// Errors that do not pass end a wait.
func TestQuorumGivesUpWhatCannotBe(t *testing.T) {
	onCluster(t, func(t *testing.T, c cluster) {
		q, nodes := c.process(t, "", dblock.QuorumOptions{})
		nodes[0].noTables.Store(true)
		giveBack(t, get(t, q, "k"))
		nodes[1].noTables.Store(true)
		if _, err := q.Acquire(t.Context(), "k"); !errors.Is(err, dblock.ErrSchema) {
			t.Errorf("told %v", err)
		}
		nodes[1].noTables.Store(false)
		direct := get(t, nodes[1].Locker, "k") // it stands in the way of what is called below it
		if _, err := q.Acquire(direct.Context(), "k"); !errors.Is(err, dblock.ErrDeadlock) {
			t.Errorf("told %v", err)
		}
		giveBack(t, direct)
	})
}

// The lock lives as long as a majority of its nodes does.
func TestQuorumIsLostWithItsMajority(t *testing.T) {
	onCluster(t, func(t *testing.T, c cluster) {
		q, nodes := c.process(t, "", dblock.QuorumOptions{})
		lock := get(t, q, "k")
		synctest.Wait() // the third one has joined
		nodes[0].Lose("k")
		synctest.Wait()
		if lock.Context().Err() != nil || !lock.ValidUntil().After(time.Now()) {
			t.Error("lost with one node of three")
		}
		nodes[1].Evict()
		isLost(t, lock, dblock.Evicted)
		if !lock.ValidUntil().IsZero() {
			t.Errorf("valid until %v", lock.ValidUntil())
		}
		if !nodes[2].isFree(t, "k") {
			t.Error("the third node is held after the release")
		}

		lock = get(t, q, "k")
		synctest.Wait()
		nodes[0].StopHeartbeats()
		time.Sleep(time.Minute)
		if lock.Context().Err() != nil {
			t.Error("lost with the heartbeats of one node")
		}
		nodes[2].StopHeartbeats()
		until := lock.ValidUntil()
		<-lock.Context().Done()
		if time.Now().After(until) || time.Until(until) > 4*time.Second { // the last heartbeat was on its way
			t.Errorf("lost at %v, valid until %v", time.Now(), until)
		}
		isLost(t, lock, dblock.Expired)
	})
}

// A node that answers late joins, and can make up for another one.
func TestQuorumLetsLateNodesJoin(t *testing.T) {
	onCluster(t, func(t *testing.T, c cluster) {
		q, nodes := c.process(t, "", dblock.QuorumOptions{})
		nodes[2].answersAfter(500 * time.Millisecond)
		lock := get(t, q, "k")
		time.Sleep(time.Second)
		nodes[0].Lose("k")
		synctest.Wait()
		if lock.Context().Err() != nil {
			t.Error("lost, though two nodes have it")
		}
		giveBack(t, lock)
		nodes[2].answersAfter(time.Minute) // and what comes after the release is given back
		lock = get(t, q, "k")
		time.Sleep(time.Second)
		giveBack(t, lock)
		time.Sleep(2 * time.Minute)
		if !nodes[2].isFree(t, "k") {
			t.Error("what came late is held")
		}
	})
}

// ValidUntil is the end that a majority reaches, less the drift; without heartbeats it can be told to the nanosecond.
func TestQuorumValidUntil(t *testing.T) {
	onCluster(t, func(t *testing.T, c cluster) {
		q, _ := c.process(t, "", dblock.QuorumOptions{})
		drifting, slow := c.process(t, "", dblock.QuorumOptions{Drift: 700 * time.Millisecond})
		for i, n := range slow {
			n.answersAfter(time.Duration(i+1) * 100 * time.Millisecond)
		}
		began := time.Now()
		lock := get(t, drifting, "k", dblock.WithoutRenewal(10*time.Second))
		if took := time.Since(began); took != 200*time.Millisecond {
			t.Errorf("two of three have answered after %v", took)
		}
		if until := lock.ValidUntil(); !until.Equal(began.Add(10*time.Second - 700*time.Millisecond)) {
			t.Errorf("valid for %v", until.Sub(began))
		}
		isLost(t, lock, dblock.Ended)
		if took := time.Since(began); took != 9300*time.Millisecond {
			t.Errorf("lost after %v", took)
		}
		began = time.Now()
		lock = get(t, q, "k", dblock.WithoutRenewal(10*time.Second))
		if until := lock.ValidUntil(); !until.Equal(began.Add(9898 * time.Millisecond)) { // 1 % and 2 ms
			t.Errorf("valid for %v", until.Sub(began))
		}
		giveBack(t, lock)

		lock = get(t, q, "k")
		synctest.Wait()
		for range 3 {
			time.Sleep(time.Minute)
			if left := time.Until(lock.ValidUntil()); left < 5*time.Second || left > 9*time.Second-2*time.Millisecond { // of a TTL of 10 s
				t.Errorf("valid for %v", left)
			}
		}
		giveBack(t, lock)
		began = time.Now()
		lock = get(t, q, "k", dblock.WithMaxHold(time.Minute))
		isLost(t, lock, dblock.Ended)
		if took := time.Since(began); took != 59398*time.Millisecond {
			t.Errorf("a minute at most ended after %v", took)
		}
	})
}

// What is over when it is granted is given back.
func TestQuorumRefusesWhatCameTooLate(t *testing.T) {
	onCluster(t, func(t *testing.T, c cluster) {
		q, nodes := c.process(t, "", dblock.QuorumOptions{})
		for _, n := range nodes {
			n.answersAfter(200 * time.Millisecond)
		}
		lock, err := q.TryAcquire(t.Context(), "k", dblock.WithoutRenewal(150*time.Millisecond))
		if !errors.Is(err, dblock.ErrUnavailable) {
			t.Errorf("%v, %v", lock, err)
		}
		synctest.Wait()
		for i, n := range nodes {
			if !n.isFree(t, "k") {
				t.Errorf("node %d is held", i)
			}
		}
	})
}

func TestQuorumExpiresOnAMajority(t *testing.T) {
	onCluster(t, func(t *testing.T, c cluster) {
		q, nodes := c.process(t, "", dblock.QuorumOptions{Drift: time.Second})
		lock := get(t, q, "k")
		synctest.Wait()
		nodes[1].Lose("k")
		began := time.Now()
		if err := lock.ExpireIn(t.Context(), time.Minute); err != nil {
			t.Error(err)
		}
		if err := lock.ExpireIn(t.Context(), 5*time.Second); err != nil {
			t.Error(err)
		}
		if until := lock.ValidUntil(); !until.Equal(began.Add(4 * time.Second)) {
			t.Errorf("valid for %v", until.Sub(began))
		}
		isLost(t, lock, dblock.Ended)
		if took := time.Since(began); took != 4*time.Second {
			t.Errorf("lost after %v", took)
		}
		if err := lock.ExpireIn(t.Context(), time.Minute); !errors.Is(err, dblock.ErrLost) {
			t.Errorf("of what is lost: %v", err)
		}
		lock = get(t, q, "k", dblock.WithMaxHold(20*time.Second))
		began = time.Now()
		if err := lock.ExpireIn(t.Context(), time.Hour); err != nil {
			t.Error(err)
		}
		isLost(t, lock, dblock.Ended)
		if took := time.Since(began); took != 19*time.Second {
			t.Errorf("20 s at most ended after %v", took)
		}
	})
}

// Release is bounded, works under a context that has ended, and goes on behind its caller.
func TestQuorumReleases(t *testing.T) {
	onCluster(t, func(t *testing.T, c cluster) {
		var released, acquired, lost int
		q, nodes := c.process(t, "", dblock.QuorumOptions{Observer: dblock.Observer{
			Acquired: func(string, time.Duration) { acquired++ }, Released: func(string, time.Duration) { released++ },
			Lost: func(string, time.Duration, dblock.Reason) { lost++ },
		}})
		ctx, cancel := context.WithCancel(t.Context())
		lock, err := q.Acquire(ctx, "k")
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		cancel()
		if err := lock.Release(ctx); err != nil {
			t.Error(err)
		}
		for i, n := range nodes {
			if !n.isFree(t, "k") {
				t.Errorf("node %d is held", i)
			}
		}
		if released != 1 || acquired != 1 || lost != 0 {
			t.Errorf("told %d, %d, %d", acquired, released, lost)
		}
	})
}

func TestQuorumNeverWaitsForItself(t *testing.T) {
	onCluster(t, func(t *testing.T, c cluster) {
		q, nodes := c.process(t, "", dblock.QuorumOptions{})
		lock := get(t, q, "k")
		var deadlock *dblock.DeadlockError
		if _, err := q.Acquire(lock.Context(), "k"); !errors.As(err, &deadlock) || !strings.Contains(deadlock.Where, "quorum_test.go") {
			t.Errorf("told %v", err)
		}
		again, err := q.TryAcquire(lock.Context(), "k", dblock.WithReentrant())
		if err != nil {
			t.Fatal(err)
		}
		giveBack(t, lock)
		if nodes[0].isFree(t, "k") {
			t.Error("given back with the first of two")
		}
		giveBack(t, again)
		if !nodes[0].isFree(t, "k") {
			t.Error("held after the last of two")
		}
	})
}

func TestQuorumCloses(t *testing.T) {
	onCluster(t, func(t *testing.T, c cluster) {
		q, nodes := c.process(t, "", dblock.QuorumOptions{})
		other, _ := c.process(t, "", dblock.QuorumOptions{})
		lock, taken := get(t, q, "k"), get(t, other, "taken")
		waiting := make(chan error)
		go func() {
			_, err := q.Acquire(t.Context(), "taken")
			waiting <- err
		}()
		time.Sleep(time.Minute)
		bounded, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := q.Close(bounded); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("while a lock is in use: %v", err)
		}
		if err := <-waiting; !errors.Is(err, dblock.ErrClosed) {
			t.Errorf("who waited was told %v", err)
		}
		isLost(t, lock, dblock.Closed)
		if _, err := q.TryAcquire(t.Context(), "k"); !errors.Is(err, dblock.ErrClosed) {
			t.Errorf("told %v", err)
		}
		if err := q.Close(t.Context()); err != nil {
			t.Error(err)
		}
		giveBack(t, taken)
		giveBack(t, get(t, nodes[0], "k")) // nodes stay open
	})
}

// A Quorum goes by the clock of its nodes.
func TestQuorumGoesByItsNodesClock(t *testing.T) {
	t.Parallel()
	clock := dblocktest.NewClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	var lockers []dblock.Locker
	for range 3 {
		l, err := dblocktest.NewServer(clock).NewLocker(dblocktest.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close(context.Background()) }()
		lockers = append(lockers, l)
	}
	q, err := dblock.NewQuorum(lockers, dblock.QuorumOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = q.Close(context.Background()) }()
	kept, short := get(t, q, "kept"), get(t, q, "short", dblock.WithoutRenewal(time.Hour))
	clock.Advance(59 * time.Minute)
	if kept.Context().Err() != nil || short.Context().Err() != nil {
		t.Error("lost within the hour")
	}
	clock.Advance(time.Minute)
	if !errors.Is(context.Cause(short.Context()), dblock.ErrLost) {
		t.Error("held after its hour")
	}
	_ = short.Release(t.Context())
	giveBack(t, kept)
}

// oneOfThree is a Quorum without its majority: whoever answers first makes the lock.
type oneOfThree struct{ nodes [3]*node }

func (o oneOfThree) Acquire(ctx context.Context, key string, opts ...dblock.Option) (lock *dblock.Lock, err error) {
	for {
		for _, n := range o.nodes {
			if lock, err = n.TryAcquire(ctx, key, opts...); err == nil {
				return lock, nil
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// crowd has processes work under one key, and returns how often two did so at once.
func (c cluster) crowd(t *testing.T, majority bool) (turns, overlaps int64) {
	t.Helper()
	const processes = 5
	var inside, met, n atomic.Int64
	done := make(chan struct{})
	for i := range processes {
		q, nodes := c.process(t, fmt.Sprint(i), dblock.QuorumOptions{})
		acquire := q.Acquire
		if !majority {
			acquire = oneOfThree{nodes}.Acquire
		}
		go func() {
			defer func() { done <- struct{}{} }()
			for turn := range 20 {
				if i == 0 && turn%3 == 0 {
					nodes[turn%len(nodes)].Fail(dblock.ErrOutcomeUnknown)
				}
				lock, err := acquire(t.Context(), "k")
				if err != nil {
					t.Errorf("told %v", err)
					return
				}
				if inside.Add(1) > 1 {
					met.Add(1)
				}
				n.Add(1)
				time.Sleep(5 * time.Millisecond)
				inside.Add(-1)
				giveBack(t, lock)
			}
		}()
	}
	for range processes {
		<-done
	}
	return n.Load(), met.Load()
}

func TestQuorumServesACrowd(t *testing.T) {
	onCluster(t, func(t *testing.T, c cluster) {
		if turns, overlaps := c.crowd(t, true); turns != 100 || overlaps != 0 {
			t.Errorf("%d turns, and two at once in %d of them", turns, overlaps)
		}
	})
}

func TestControlOneOfThreeMeets(t *testing.T) {
	onCluster(t, func(t *testing.T, c cluster) {
		if _, overlaps := c.crowd(t, false); overlaps == 0 {
			t.Error("never two at once: the test with a majority shows nothing")
		}
	})
}

// forgetful is a Locker of a server that forgets.
type forgetful struct{ *dblocktest.Locker }

func (forgetful) Caps() dblock.Caps { return dblock.Caps{NotDurable: "fsync = off"} }

func TestQuorumRefusesWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	a, b, c := dblocktest.New(t), dblocktest.New(t), dblocktest.New(t)
	for name, x := range map[string]struct {
		nodes []dblock.Locker
		o     dblock.QuorumOptions
		want  error
		says  string
	}{
		"none":             {nil, dblock.QuorumOptions{}, dblock.ErrInvalid, "there are 0"},
		"one":              {[]dblock.Locker{a}, dblock.QuorumOptions{}, dblock.ErrInvalid, "there are 1"},
		"two":              {[]dblock.Locker{a, b}, dblock.QuorumOptions{}, dblock.ErrInvalid, "there are 2"},
		"four":             {[]dblock.Locker{a, b, c, dblocktest.New(t)}, dblock.QuorumOptions{}, dblock.ErrInvalid, "there are 4"},
		"one twice":        {[]dblock.Locker{a, b, a}, dblock.QuorumOptions{}, dblock.ErrInvalid, "nodes[0] again"},
		"nil":              {[]dblock.Locker{a, nil, c}, dblock.QuorumOptions{}, dblock.ErrInvalid, "nodes[1]"},
		"a nil pointer":    {[]dblock.Locker{a, b, (*dblocktest.Locker)(nil)}, dblock.QuorumOptions{}, dblock.ErrInvalid, "nodes[2]"},
		"a short timeout":  {[]dblock.Locker{a, b, c}, dblock.QuorumOptions{NodeTimeout: 1}, dblock.ErrInvalid, "NodeTimeout"},
		"a long timeout":   {[]dblock.Locker{a, b, c}, dblock.QuorumOptions{NodeTimeout: time.Hour}, dblock.ErrInvalid, "NodeTimeout"},
		"a negative drift": {[]dblock.Locker{a, b, c}, dblock.QuorumOptions{Drift: -1}, dblock.ErrInvalid, "Drift"},
		"one that forgets": {[]dblock.Locker{a, b, forgetful{c}}, dblock.QuorumOptions{}, dblock.ErrUnsupported, "nodes[2]"},
		"and how":          {[]dblock.Locker{forgetful{a}, b, c}, dblock.QuorumOptions{}, dblock.ErrUnsupported, "fsync = off"},
	} {
		q, err := dblock.NewQuorum(x.nodes, x.o)
		if q != nil || !errors.Is(err, x.want) || !strings.Contains(err.Error(), x.says) {
			t.Errorf("%s: %v, %v", name, q, err)
		}
		if x.want == dblock.ErrInvalid && !errors.As(err, new(*dblock.InvalidError)) {
			t.Errorf("%s: no InvalidError but %v", name, err)
		}
	}
	q, err := dblock.NewQuorum([]dblock.Locker{a, b, c}, dblock.QuorumOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.Acquire(t.Context(), "k", dblock.WithShared()); !errors.Is(err, dblock.ErrUnsupported) {
		t.Errorf("shared: %v", err)
	}
	if _, err := q.TryAcquire(t.Context(), ""); !errors.Is(err, dblock.ErrInvalid) {
		t.Errorf("no key: %v", err)
	}
	if _, err := q.Acquire(t.Context(), "k", dblock.WithMaxHold(1)); !errors.Is(err, dblock.ErrInvalid) {
		t.Errorf("a hold of a nanosecond: %v", err)
	}
	if _, err := dblock.NewElector(q, "k", dblock.ElectorOptions{}); !errors.Is(err, dblock.ErrUnsupported) {
		t.Errorf("an Elector of a Quorum: %v", err)
	}
}
