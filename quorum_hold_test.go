package dblock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
)

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
		isLost(t, lock, dblock.ReasonEvicted)
		if !lock.ValidUntil().IsZero() {
			t.Errorf("valid until %v", lock.ValidUntil())
		}
		if !nodes[2].isFree(t, "k") {
			t.Error("the third node is held after the release")
		}

		lock = get(t, q, "k")
		synctest.Wait()
		nodes[0].goDown()
		time.Sleep(time.Minute)
		if lock.Context().Err() != nil {
			t.Error("lost with the heartbeats of one node")
		}
		nodes[2].goDown()
		until := lock.ValidUntil()
		<-lock.Context().Done()
		if time.Now().After(until) || time.Until(until) > 4*time.Second { // the last heartbeat was on its way
			t.Errorf("lost at %v, valid until %v", time.Now(), until)
		}
		isLost(t, lock, dblock.ReasonExpired)
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
		nodes[2].answersAfter(time.Minute) // and what is granted after Release is released
		lock = get(t, q, "k")
		time.Sleep(time.Second)
		giveBack(t, lock)
		time.Sleep(2 * time.Minute)
		if !nodes[2].isFree(t, "k") {
			t.Error("what came late is held")
		}
	})
}

// ValidUntil is the end that a majority reaches, less the drift; without heartbeats it is known to
// the nanosecond.
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
		if until := lock.ValidUntil(); !until.Equal(began.Add(9*time.Second - 700*time.Millisecond)) {
			t.Errorf("valid for %v", until.Sub(began))
		}
		isLost(t, lock, dblock.ReasonTimeUp)
		if took := time.Since(began); took != 8300*time.Millisecond {
			t.Errorf("lost after %v", took)
		}
		began = time.Now()
		lock = get(t, q, "k", dblock.WithoutRenewal(10*time.Second))
		if until := lock.ValidUntil(); !until.Equal(began.Add(8998 * time.Millisecond)) { // the margin of 1 s and 2 ms
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
		isLost(t, lock, dblock.ReasonTimeUp)
		if took := time.Since(began); took != 58998*time.Millisecond {
			t.Errorf("a minute at most ended after %v", took)
		}
	})
}

// What is over when it is granted is released.
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
		if until := lock.ValidUntil(); !until.Equal(began.Add(3 * time.Second)) {
			t.Errorf("valid for %v", until.Sub(began))
		}
		isLost(t, lock, dblock.ReasonTimeUp)
		if took := time.Since(began); took != 3*time.Second {
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
		isLost(t, lock, dblock.ReasonTimeUp)
		if took := time.Since(began); took != 18*time.Second {
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

// A Quorum goes by the clock of its nodes.
func TestQuorumGoesByItsNodesClock(t *testing.T) {
	t.Parallel()
	clock := dblocktest.NewClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	var lockers []dblock.Locker
	for range 3 {
		l, err := dblocktest.NewServer(clock).NewLeaseLocker(dblocktest.LeaseOptions{})
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
