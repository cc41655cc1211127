package dblock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
)

// candidate is an Elector on a Locker of its own, as in a process, with the calls of its Observer.
type candidate struct {
	*dblock.Elector
	locks *dblocktest.LeaseLocker
	fails chan error        // what the next calls of Acquire return, before the Locker is asked
	terms chan dblock.Fence // one for each call of fn

	mu     sync.Mutex
	failed []error
}

func newCandidate(t *testing.T, s *dblocktest.Server, o dblock.ElectorOptions) *candidate {
	t.Helper()
	c := &candidate{fails: make(chan error, 2), terms: make(chan dblock.Fence, 100)}
	var err error
	if c.locks, err = s.NewLeaseLocker(dblocktest.LeaseOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.locks.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	o.Failed = func(err error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.failed = append(c.failed, err)
	}
	if c.Elector, err = dblock.NewElector(failing{c.locks, c.fails}, "leader", o); err != nil {
		t.Fatal(err)
	}
	return c
}

// failing is a Locker whose Acquire may fail with what a lease's never does.
type failing struct {
	*dblocktest.LeaseLocker
	errs chan error
}

func (f failing) Acquire(ctx context.Context, key string, opts ...dblock.Option) (*dblock.Lock, error) {
	select {
	case err := <-f.errs:
		return nil, err
	default:
		return f.LeaseLocker.Acquire(ctx, key, opts...)
	}
}

// lead is an fn that leads until its term ends, and says then why.
func (c *candidate) lead(ctx context.Context, term dblock.Fence) error {
	c.terms <- term
	<-ctx.Done()
	return context.Cause(ctx)
}

// run runs the candidate until ctx ends, and sends what Run returned.
func (c *candidate) run(ctx context.Context, fn func(context.Context, dblock.Fence) error) chan error {
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx, fn) }()
	return ended
}

func (c *candidate) told() []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

var errStop = errors.New("stop")

// inBubble runs a test in time that passes at once.
func inBubble(t *testing.T, f func(t *testing.T, s *dblocktest.Server, ctx context.Context, stop func(error))) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancelCause(t.Context())
		t.Cleanup(func() { stop(errStop) })
		f(t, dblocktest.NewServer(nil), ctx, stop)
	})
}

func TestElectorTakesOver(t *testing.T) {
	inBubble(t, func(t *testing.T, s *dblocktest.Server, ctx context.Context, stop func(error)) {
		a, b := newCandidate(t, s, dblock.ElectorOptions{}), newCandidate(t, s, dblock.ElectorOptions{})
		endA := a.run(ctx, a.lead)
		first := <-a.terms
		endB := b.run(ctx, b.lead)
		synctest.Wait()
		if f, ok := a.Leading(); !ok || f != first {
			t.Errorf("a leads as %v (%v), want %v", f, ok, first)
		}
		if _, ok := b.Leading(); ok {
			t.Error("both lead")
		}
		for n, of := range []*candidate{a, b, a, b} { // the other one takes over
			next := []*candidate{b, a}[n%2]
			of.locks.StopHeartbeats()
			began := time.Now()
			second := <-next.terms
			if second.Token <= first.Token || s.Check(second) != nil || !errors.Is(s.Check(first), dblock.ErrFenced) {
				t.Errorf("the term %v after %v", second, first)
			}
			if took := time.Since(began); took > 11*time.Second { // the TTL is 10 s
				t.Errorf("taken over after %v", took)
			}
			of.locks.ResumeHeartbeats()
			first = second
			time.Sleep(time.Minute) // both are up
		}
		stop(errStop)
		if err := <-endA; err != errStop {
			t.Errorf("a's Run returned %v", err)
		}
		if err := <-endB; err != errStop {
			t.Errorf("b's Run returned %v", err)
		}
		if _, err := a.Leader(t.Context()); !errors.Is(err, dblock.ErrNotHeld) {
			t.Errorf("after all: %v", err)
		}
	})
}

// What fn returns in its term ends Run; what it returns after its term does not.
func TestElectorHeedsFn(t *testing.T) {
	errOwn := errors.New("fn's own")
	inBubble(t, func(t *testing.T, s *dblocktest.Server, ctx context.Context, stop func(error)) {
		c := newCandidate(t, s, dblock.ElectorOptions{})
		for _, want := range []error{nil, errOwn, dblock.ErrUnavailable, context.Canceled} {
			got := c.Run(ctx, func(context.Context, dblock.Fence) error { return want })
			if got != want {
				t.Errorf("fn returned %v, Run %v", want, got)
			}
			if _, err := c.Leader(ctx); !errors.Is(err, dblock.ErrNotHeld) {
				t.Errorf("fn returned %v, and leads yet: %v", want, err)
			}
		}
		var causes []error
		end := c.run(ctx, func(ctx context.Context, term dblock.Fence) error {
			switch causes = append(causes, nil); len(causes) {
			case 1, 2:
				c.locks.Lose("leader")
				<-ctx.Done()
				causes[len(causes)-1] = context.Cause(ctx)
				return []error{errOwn, nil}[len(causes)-1]
			case 3: // it learns of it from a guard
				return errors.Join(errOwn, dblock.ErrFenced)
			case 5: // its context may have had no time to end
				c.locks.Lose("leader")
				return context.Canceled
			case 4:
				return &dblock.LostError{Key: "leader", Reason: dblock.ReasonStolen}
			}
			stop(errStop)
			<-ctx.Done()
			causes[5] = context.Cause(ctx)
			return errOwn
		})
		if err := <-end; err != errStop {
			t.Errorf("Run returned %v", err)
		}
		if len(causes) != 6 || !errors.Is(causes[0], dblock.ErrLost) || !errors.Is(causes[1], dblock.ErrLost) || causes[5] != errStop {
			t.Errorf("fn's contexts ended by %v", causes)
		}
		if told := c.told(); len(told) != 4 || !errors.Is(told[0], errOwn) || !errors.Is(told[1], dblock.ErrFenced) ||
			!errors.Is(told[2], dblock.ErrLost) || !errors.Is(told[3], errOwn) {
			t.Errorf("told %v", told)
		}
	})
}

func TestElectorGivesBackInAPanic(t *testing.T) {
	inBubble(t, func(t *testing.T, s *dblocktest.Server, ctx context.Context, _ func(error)) {
		c := newCandidate(t, s, dblock.ElectorOptions{})
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic is gone")
				}
			}()
			_ = c.Run(ctx, func(context.Context, dblock.Fence) error { panic("fn") })
		}()
		if err := c.Run(ctx, func(context.Context, dblock.Fence) error { return nil }); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

func TestElectorResigns(t *testing.T) {
	inBubble(t, func(t *testing.T, s *dblocktest.Server, ctx context.Context, _ func(error)) {
		a, b := newCandidate(t, s, dblock.ElectorOptions{}), newCandidate(t, s, dblock.ElectorOptions{})
		if err := a.Resign(ctx); !errors.Is(err, dblock.ErrNotHeld) {
			t.Errorf("who never led resigns: %v", err)
		}
		var why []error
		a.run(ctx, func(ctx context.Context, term dblock.Fence) error {
			err := a.lead(ctx, term)
			time.Sleep(time.Second) // it tidies up
			why = append(why, err)
			return err
		})
		last := <-a.terms
		b.run(ctx, b.lead)
		synctest.Wait()
		for range 10 { // a resigns, and b leads; b resigns, and a leads
			began := time.Now()
			if err := a.Resign(ctx); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took != time.Second {
				t.Errorf("fn takes 1s to return, Resign returned after %v", took)
			}
			if _, ok := a.Leading(); ok {
				t.Error("who has resigned leads")
			}
			next := <-b.terms
			if next.Token <= last.Token || time.Since(began) > 1100*time.Millisecond {
				t.Errorf("the term %v after %v, after %v", next, last, time.Since(began))
			}
			time.Sleep(time.Minute)
			if err := b.Resign(ctx); err != nil {
				t.Fatal(err)
			}
			last = <-a.terms
			time.Sleep(time.Minute)
		}
		for _, err := range why {
			if err != dblock.ErrResigned {
				t.Errorf("fn's context ended by %v", err)
			}
		}
		if told := append(a.told(), b.told()...); len(told) != 0 {
			t.Errorf("told %v", told)
		}
	})
}

// Two that resign one shortly after the other: one of them leads again soon, as another one has led
// since it resigned.
func TestElectorsResignAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, s *dblocktest.Server, ctx context.Context, _ func(error)) {
		a, b := newCandidate(t, s, dblock.ElectorOptions{}), newCandidate(t, s, dblock.ElectorOptions{})
		a.run(ctx, a.lead)
		<-a.terms
		b.run(ctx, b.lead)
		synctest.Wait()
		for range 10 {
			if err := a.Resign(ctx); err != nil {
				t.Fatal(err)
			}
			<-b.terms
			began := time.Now()
			if err := b.Resign(ctx); err != nil {
				t.Fatal(err)
			}
			select {
			case <-a.terms:
			case <-b.terms:
				a, b = b, a
			}
			if took := time.Since(began); took > 200*time.Millisecond {
				t.Errorf("no candidate led for %v", took)
			}
			time.Sleep(time.Minute)
		}
	})
}

// A candidate that is alone leads again once it has stood back.
func TestElectorStandsBackAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, s *dblocktest.Server, ctx context.Context, _ func(error)) {
		c := newCandidate(t, s, dblock.ElectorOptions{YieldTime: 5 * time.Second})
		c.run(ctx, c.lead)
		<-c.terms
		began := time.Now()
		if err := c.Resign(ctx); err != nil {
			t.Fatal(err)
		}
		if err := c.Resign(ctx); !errors.Is(err, dblock.ErrNotHeld) {
			t.Errorf("twice: %v", err)
		}
		<-c.terms
		if took := time.Since(began); took < 5*time.Second || took > 6*time.Second {
			t.Errorf("back after %v", took)
		}
		c.locks.Lose("leader")
		<-c.terms
	})
}

// Resign is bounded by its context, and has an effect all the same.
func TestElectorResignsInFn(t *testing.T) {
	inBubble(t, func(t *testing.T, s *dblocktest.Server, ctx context.Context, _ func(error)) {
		a, b := newCandidate(t, s, dblock.ElectorOptions{}), newCandidate(t, s, dblock.ElectorOptions{})
		a.run(ctx, func(ctx context.Context, term dblock.Fence) error {
			a.terms <- term
			err := a.Resign(ctx)
			if !errors.Is(err, dblock.ErrResigned) {
				t.Errorf("in fn: %v", err)
			}
			return err
		})
		<-a.terms
		b.run(ctx, b.lead)
		<-b.terms
		bounded, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		c := newCandidate(t, dblocktest.NewServer(nil), dblock.ElectorOptions{})
		c.run(ctx, func(ctx context.Context, term dblock.Fence) error {
			c.terms <- term
			<-ctx.Done()
			time.Sleep(time.Hour)
			return nil
		})
		<-c.terms
		if err := c.Resign(bounded); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("told %v", err)
		}
		if _, ok := c.Leading(); ok {
			t.Error("it leads yet")
		}
		time.Sleep(time.Hour)
		<-c.terms
	})
}

// Run tries again after what passes, and returns what does not.
func TestElectorTriesAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, s *dblocktest.Server, ctx context.Context, _ func(error)) {
		c := newCandidate(t, s, dblock.ElectorOptions{})
		temporary := []error{dblock.ErrBusy, dblock.ErrConflict, dblock.ErrUnavailable, dblock.ErrOutcomeUnknown, dblock.ErrOverloaded}
		c.fails <- temporary[0] // after this one and the next Acquire of a lease goes on by itself
		c.fails <- temporary[1]
		for _, err := range temporary[2:] {
			c.locks.Fail(err)
		}
		began := time.Now()
		end := c.run(ctx, c.lead)
		<-c.terms
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("it led after %v", took)
		}
		told := c.told()
		for i, want := range temporary {
			if len(told) != len(temporary) || !errors.Is(told[i], want) {
				t.Fatalf("told %v, want %v", told, temporary)
			}
		}
		if err := c.locks.Close(ctx); err != nil {
			t.Error(err)
		}
		if err := <-end; !errors.Is(err, dblock.ErrClosed) {
			t.Errorf("Run of a closed Locker returned %v", err)
		}
	})
}
