package batch

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
)

// alone answers every request of a statement Alone.
func (s statement) alone(behind string) {
	answers := make([]Result[int], len(s.batch))
	for i := range answers {
		answers[i] = Result[int]{Alone: true, Behind: behind}
	}
	s.reply <- result{answers: answers}
}

func TestAStatementAsideLeavesItsPlace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(func(o *Options[order, int]) { o.MaxInFlight, o.Waiters = 1, 1 })
		ends := []chan error{r.do(t.Context(), "x", 0), r.do(t.Context(), "a", 1)}
		r.next(t).answer()
		a := r.next(t)
		ends = append(ends, r.do(t.Context(), "b", 2), r.do(t.Context(), "a", 3))
		r.quiet(t)
		if r.IsBlocked("a") || !Yield(a.ctx) || !Yield(a.ctx) || !r.IsBlocked("a") || r.IsBlocked("b") {
			t.Fatal("the only statement can't stand aside, or its key is not known as blocked")
		}
		b := r.next(t)
		if got := b.numbers(); !slices.Equal(got, []int{2}) {
			t.Fatalf("sent %v, want b's alone: a second statement of a's would wait, too", got)
		}
		if Yield(b.ctx) {
			t.Error("two statements stand aside, where one may")
		}
		b.answer()
		r.quiet(t)
		closed := make(chan error, 1)
		go func() { closed <- r.Close(t.Context()) }()
		a.answer()
		rest := r.next(t)
		if got := rest.numbers(); !slices.Equal(got, []int{3}) || r.IsBlocked("a") {
			t.Fatalf("sent %v, want what waited for a", got)
		}
		rest.answer()
		want(t, closed, nil)
		for _, end := range ends {
			want(t, end, nil)
		}
	})
}

func TestCloseWaitsForWhatStandsAside(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(func(o *Options[order, int]) { o.MaxInFlight, o.Waiters = 1, 1 })
		ends := []chan error{r.do(t.Context(), "x", 0), r.do(t.Context(), "a", 1)}
		r.next(t).answer()
		a := r.next(t)
		if !Yield(a.ctx) {
			t.Fatal("it may not stand aside")
		}
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.Close(impatient); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("closed with a statement in flight: %v", err)
		}
		a.answer()
		if err := errors.Join(<-ends[0], <-ends[1], r.Close(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// TestALoneCallerNeverStandsAside: nor does one that is called by a statement of another queue, in
// whose name it would.
func TestALoneCallerNeverStandsAside(t *testing.T) {
	bubble(t, func(t *testing.T) {
		outer := newRig(func(o *Options[order, int]) { o.MaxInFlight, o.Waiters = 1, 1 })
		ends := []chan error{outer.do(t.Context(), "x", 0), outer.do(t.Context(), "a", 1)}
		outer.next(t).answer()
		a := outer.next(t)
		if got := Key(a.ctx); got != "a" {
			t.Errorf("the statement's key is %q", got)
		}
		inner := newRig(func(o *Options[order, int]) { o.Waiters = 1 })
		ends = append(ends, inner.do(a.ctx, "b", 2))
		b := inner.next(t)
		if Yield(b.ctx) || Key(b.ctx) != "" || Yield(t.Context()) || Key(t.Context()) != "" {
			t.Error("a lone caller stands aside, or has a key")
		}
		b.answer()
		a.answer()
		for _, end := range ends {
			want(t, end, nil)
		}
	})
}

func TestAStatementOfSeveralKeysHasNone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(func(o *Options[order, int]) { o.MaxInFlight = 1 })
		ends := []chan error{r.do(t.Context(), "x", 0), r.do(t.Context(), "a", 1), r.do(t.Context(), "b", 2)}
		r.next(t).answer()
		s := r.next(t)
		if got := Key(s.ctx); got != "" || len(s.batch) != 2 {
			t.Errorf("%v has the key %q", s.batch, got)
		}
		s.answer()
		for _, end := range ends {
			want(t, end, nil)
		}
	})
}

// TestARequestWaitsBehindWhatWasLocked: it is asked again with what else waits for that, at the
// head, and with nothing else.
func TestARequestWaitsBehindWhatWasLocked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(func(o *Options[order, int]) { o.MaxInFlight, o.MaxWait = 1, time.Second })
		ends := []chan error{r.do(t.Context(), "x", 0), r.do(t.Context(), "a", 1), r.do(t.Context(), "a", 2)}
		r.next(t).answer()
		a := r.next(t)
		ends = append(ends, r.do(t.Context(), "b", 3), r.do(t.Context(), "a", 4), r.do(t.Context(), "c", 5))
		answers := echo(a.batch)
		answers[0] = Result[int]{Alone: true, Behind: "b"}
		a.reply <- result{answers: answers}
		for _, wanted := range [][]int{{1, 3}, {5, 4}} {
			s := r.next(t)
			if got := s.numbers(); !slices.Equal(got, wanted) {
				t.Fatalf("sent %v, want %v", got, wanted)
			}
			s.answer()
		}
		for _, end := range ends {
			want(t, end, nil)
		}
	})
}

// TestAKeyThatStaysLockedRests twice as long each time, from 10 ms to 250 ms, and until MaxWait.
// Other keys go on meanwhile.
func TestAKeyThatStaysLockedRests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(func(o *Options[order, int]) { o.MaxInFlight, o.MaxWait = 1, time.Second })
		began := time.Now()
		locked := r.do(t.Context(), "a", 1)
		r.next(t).alone("")
		for _, at := range []int64{0, 10, 30, 70, 150, 310, 560, 810} {
			s := <-r.sent
			if got := time.Since(began).Milliseconds(); got != at || !s.again {
				t.Fatalf("asked again after %d ms, want %d", got, at)
			}
			s.alone("")
			other := r.do(t.Context(), "b", 2)
			r.next(t).answer()
			want(t, other, nil)
			if !r.IsBlocked("a") || r.IsBlocked("b") {
				t.Error("the key that rests is not the one that is known as blocked")
			}
		}
		(<-r.sent).alone("")
		want(t, locked, dblock.ErrBusy)
		if got := time.Since(began).Milliseconds(); got != 1060 || r.IsBlocked("a") {
			t.Errorf("busy after %d ms", got)
		}
		next := r.do(t.Context(), "a", 3)
		r.next(t).answer()
		want(t, next, nil)
	})
}

// TestTheReasonOfAWaitIsKept: a call that was answered Alone for a reason of Run's is late before
// it is asked again, as another statement takes long. Its error is that reason.
func TestTheReasonOfAWaitIsKept(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(func(o *Options[order, int]) { o.MaxInFlight, o.MaxWait = 1, time.Second })
		why := errors.New("conflicts")
		ends := []chan error{r.do(t.Context(), "a", 1)} // a single caller first, and one in the queue
		r.next(t).reply <- result{answers: []Result[int]{{Alone: true, Err: why}}}
		again := r.next(t)
		ends = append(ends, r.do(t.Context(), "b", 2), r.do(t.Context(), "c", 3))
		again.reply <- result{answers: []Result[int]{{Alone: true, Err: why}}}
		slow := r.next(t)
		time.Sleep(2 * time.Second)
		slow.answer()
		want(t, ends[0], why)
		want(t, ends[1], nil)
		want(t, ends[2], nil)
	})
}

// TestAnAnswerEndsTheRests has a key locked twice: the second time its first rest is as short as
// before.
func TestAnAnswerEndsTheRests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(func(o *Options[order, int]) { o.MaxWait = time.Second })
		for range 2 {
			began := time.Now()
			end := r.do(t.Context(), "a", 1)
			for range 4 {
				(<-r.sent).alone("")
			}
			(<-r.sent).answer()
			want(t, end, nil)
			if got := time.Since(began).Milliseconds(); got != 70 {
				t.Errorf("answered after %d ms, want 70", got)
			}
			r.quiet(t)
		}
		if len(r.lanes) != 0 || len(r.ready) != 0 || r.waiting != 0 {
			t.Errorf("left: %d lanes, %d ready, %d waiting", len(r.lanes), len(r.ready), r.waiting)
		}
	})
}

// TestALoneCallerThatHasToWaitIsQueued: the statement that asks again does not end with the caller,
// and one that has left while its key rests is not asked for again.
func TestALoneCallerThatHasToWaitIsQueued(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(func(o *Options[order, int]) { o.MaxWait = time.Second })
		ctx, cancel := context.WithCancel(t.Context())
		end := r.do(ctx, "a", 1)
		s := r.next(t)
		if s.ctx.Done() == nil {
			t.Error("the statement of a lone caller outlives that caller")
		}
		s.alone("")
		if s = r.next(t); s.ctx.Done() != nil {
			t.Error("the statement that asks again hangs on the caller's context")
		}
		s.alone("")
		r.quiet(t)
		cancel()
		want(t, end, ErrNotSent)
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		r.quiet(t)
		if len(r.lanes) != 0 || len(r.ready) != 0 || r.waiting != 0 {
			t.Errorf("left: %d lanes, %d ready, %d waiting", len(r.lanes), len(r.ready), r.waiting)
		}
	})
}
