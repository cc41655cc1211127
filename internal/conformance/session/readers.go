package session

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	locksuite "github.com/dblock-go/dblock/internal/conformance/lock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// readersTryBesideAWriter: while a writer waits readers are refused, each of them at once.
func readersTryBesideAWriter(t *testing.T, s *env) {
	a, b := s.process(t, SessionOptions{}), s.process(t, SessionOptions{})
	reads := suite.Acquire(t, a, "k", dblock.WithShared())
	ctx, giveUp := context.WithCancel(suite.Soon(t))
	gone := make(chan error, 1)
	go func() {
		_, err := b.Acquire(ctx, "k")
		gone <- err
	}()
	locksuite.KeptOut(t, a, "k")
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		_, err := a.TryAcquire(ctx, "k", dblock.WithShared())
		if held := suite.IsHeld(t, err, "k"); held.Wait != nil {
			t.Errorf("one that does not wait has waited: %v", err)
		}
		cancel()
	}
	giveUp()
	suite.IsHeld(t, <-gone, "k")
	suite.Release(t, suite.Acquire(t, a, "k", dblock.WithShared()))
	suite.Release(t, reads)
}

// readersHearOfAWriter: readers who wait for a writer that itself had to wait hear of its release.
func readersHearOfAWriter(t *testing.T, s *env) {
	a, b := s.process(t, SessionOptions{Poll: time.Minute}), s.process(t, SessionOptions{Poll: time.Minute})
	for n := range 20 {
		reads := suite.Acquire(t, a, "k", dblock.WithShared())
		wrote := make(chan *dblock.Lock, 1)
		go func() { wrote <- suite.Acquire(t, b, "k") }()
		locksuite.KeptOut(t, a, "k")
		next := make(chan *dblock.Lock, 1)
		go func() { next <- suite.Acquire(t, a, "k", dblock.WithShared()) }()
		suite.Release(t, reads)
		writes := <-wrote
		s.waitsFor(t, "k", 2)
		began := time.Now()
		suite.Release(t, writes)
		suite.Release(t, <-next)
		if took := time.Since(began); took > 30*time.Second {
			t.Fatalf("round %d: the reader heard of it after %v", n, took)
		}
	}
}

// waitsFor waits until so many sessions say that they wait for a key.
func (s *env) waitsFor(t *testing.T, key string, n int) {
	t.Helper()
	for ctx := suite.Soon(t); s.waiters(t, key) < n; {
		if ctx.Err() != nil {
			t.Fatalf("%d wait, want %d", s.waiters(t, key), n)
		}
	}
}

// aWriterInLineIsLetIn: readers of one process that come and go don't keep out a writer that waits at the server.
func aWriterInLineIsLetIn(t *testing.T, s *env) {
	o := SessionOptions{ServerQueue: true, MaxConns: mostInLine}
	a, b := s.process(t, o), s.process(t, o)
	ctx, stop := context.WithCancel(suite.Soon(t))
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for ctx.Err() == nil {
				lock, err := a.Acquire(ctx, "k", dblock.WithShared())
				if err != nil {
					if ctx.Err() == nil && !errors.Is(err, dblock.ErrNotAcquired) {
						t.Error(err)
					}
					continue
				}
				time.Sleep(5 * time.Millisecond)
				suite.Release(t, lock)
			}
		})
	}
	for range 3 { // more than one may wait
		readers.Go(func() {
			began := time.Now()
			lock, err := b.Acquire(ctx, "k")
			if err != nil {
				t.Errorf("a writer was not let in for %v: %v", time.Since(began), err)
				return
			}
			suite.Release(t, lock)
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("a writer was let in after %v", took)
			}
		})
	}
	time.AfterFunc(5*time.Second, stop)
	readers.Wait()
}
