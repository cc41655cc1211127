package dblock_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
)

// node is a Locker whose answers come late, or that has no tables, or is down.
type node struct {
	*dblocktest.LeaseLocker
	late     atomic.Int64 // by so many nanoseconds
	noTables atomic.Bool
	down     atomic.Bool
}

func (n *node) TryAcquire(ctx context.Context, key string, opts ...dblock.Option) (*dblock.Lock, error) {
	if n.noTables.Load() {
		return nil, &dblock.SchemaError{Want: 1}
	}
	if n.down.Load() {
		return nil, dblock.ErrUnavailable
	}
	lock, err := n.LeaseLocker.TryAcquire(ctx, key, opts...)
	time.Sleep(time.Duration(n.late.Load()))
	return lock, err
}

func (n *node) answersAfter(d time.Duration) { n.late.Store(int64(d)) }

// goDown has no heartbeat get through, and no call.
func (n *node) goDown() {
	n.down.Store(true)
	n.StopHeartbeats()
}

// comeBack ends goDown.
func (n *node) comeBack() {
	n.ResumeHeartbeats()
	n.down.Store(false)
}

// isFree reports whether a key is free on this node.
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
		l, err := s.NewLeaseLocker(dblocktest.LeaseOptions{Label: label})
		if err != nil {
			t.Fatal(err)
		}
		nodes[i] = &node{LeaseLocker: l}
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
		_, err := b.TryAcquire(t.Context(), "k")
		if !errors.As(err, &held) || held.Holder.Label != "a" || held.Holder.Token != 0 || held.Wait != nil {
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
		for _, err := range []error{dblock.ErrUnavailable, dblock.ErrBusy, dblock.ErrConflict, dblock.ErrOutcomeUnknown} {
			nodes[0].Fail(err)
			nodes[2].Fail(err)
			_, got := q.TryAcquire(t.Context(), "k")
			if !errors.Is(got, dblock.ErrUnavailable) || errors.Is(got, dblock.ErrBusy) || errors.Is(got, dblock.ErrOutcomeUnknown) {
				t.Errorf("two nodes say %v, the Quorum %v", err, got)
			}
			time.Sleep(time.Minute) // unresolved operations are reconciled
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
		direct := get(t, nodes[1].LeaseLocker, "k") // it stands in the way of what is called below it
		if _, err := q.Acquire(direct.Context(), "k"); !errors.Is(err, dblock.ErrDeadlock) {
			t.Errorf("told %v", err)
		}
		giveBack(t, direct)
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
		synctest.Wait() // all three nodes have answered
		giveBack(t, lock)
		if nodes[0].isFree(t, "k") {
			t.Error("given back with the first of two")
		}
		giveBack(t, again)
		synctest.Wait()
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
		isLost(t, lock, dblock.ReasonClosed)
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
