package batch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// order is a request of these tests: a key and a number that says when it was sent.
type order struct {
	key string
	n   int
}

// statement is one call of Run that the test has not answered yet.
type statement struct {
	ctx   context.Context
	batch []order
	again bool
	reply chan result
}

type result struct {
	answers []Result[int]
	err     error
}

// answer echoes each request's number, as a server would that grants all.
func (s statement) answer() {
	s.reply <- result{answers: echo(s.batch)}
}

func echo(batch []order) []Result[int] {
	answers := make([]Result[int], len(batch))
	for i, o := range batch {
		answers[i].Value = o.n
	}
	return answers
}

func (s statement) numbers() []int {
	var ns []int
	for _, o := range s.batch {
		ns = append(ns, o.n)
	}
	return ns
}

// rig is a Queue whose statements the test sees and answers by hand.
type rig struct {
	*Queue[order, int]
	sent chan statement
}

func newRig(change func(*Options[order, int])) *rig {
	r := &rig{sent: make(chan statement, 100)}
	o := Options[order, int]{
		Key: func(o order) string { return o.key },
		Run: func(ctx context.Context, batch []order, again bool) ([]Result[int], error) {
			s := statement{ctx, slices.Clone(batch), again, make(chan result)}
			r.sent <- s
			got := <-s.reply
			return got.answers, got.err
		},
	}
	if change != nil {
		change(&o)
	}
	r.Queue = New(o)
	return r
}

// do sends one request from a goroutine of its own and returns where its end will show.
func (r *rig) do(ctx context.Context, key string, n int) chan error {
	end := make(chan error, 1)
	go func() {
		got, err := r.Do(ctx, order{key, n})
		if err == nil && got != n {
			err = fmt.Errorf("request %d was given the answer of %d", n, got)
		}
		end <- err
	}()
	synctest.Wait() // it is queued or sent now: the order of arrival is certain
	return end
}

func (r *rig) next(t *testing.T) statement {
	t.Helper()
	synctest.Wait()
	select {
	case s := <-r.sent:
		return s
	default:
		t.Fatal("no statement was sent")
		return statement{}
	}
}

func (r *rig) quiet(t *testing.T) {
	t.Helper()
	synctest.Wait()
	select {
	case s := <-r.sent:
		t.Fatalf("a statement went out too early: %v", s.batch)
	default:
	}
}

func want(t *testing.T, end chan error, target error) {
	t.Helper()
	if err := <-end; !errors.Is(err, target) {
		t.Fatalf("got %v, want %v", err, target)
	}
}

// bubble runs f where synctest.Wait reports that every goroutine has come to rest.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

type marker struct{}

func TestLoneCallerRunsOnItsOwnGoroutine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var ownContext bool
		q := New(Options[order, int]{
			Key: func(o order) string { return o.key },
			Run: func(ctx context.Context, batch []order, _ bool) ([]Result[int], error) {
				ownContext = ctx.Value(marker{}) == "mine"
				return echo(batch), nil
			},
		})
		got, err := q.Do(context.WithValue(t.Context(), marker{}, "mine"), order{"a", 7})
		if err != nil || got != 7 || !ownContext {
			t.Fatalf("got %d, %v, own context: %v", got, err, ownContext)
		}
		if len(q.lanes) != 0 {
			t.Fatalf("%d lanes are kept for keys that nobody uses", len(q.lanes))
		}
	})
}

func TestCrowdSharesTheNextStatement(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(nil)
		first := r.do(t.Context(), "a", 0)
		s := r.next(t)
		var rest []chan error
		for n := 1; n <= 50; n++ {
			rest = append(rest, r.do(t.Context(), "a", n))
		}
		r.quiet(t)
		s.answer()
		want(t, first, nil)
		s = r.next(t)
		if got := s.numbers(); len(got) != 50 || !slices.IsSorted(got) {
			t.Fatalf("the crowd of 50 went out as %v", got)
		}
		s.answer()
		for _, end := range rest {
			want(t, end, nil)
		}
		r.quiet(t)
	})
}

func TestMaxBatchBoundsAStatement(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(func(o *Options[order, int]) { o.MaxBatch = 20 })
		ends := []chan error{r.do(t.Context(), "a", 0)}
		s := r.next(t)
		for n := 1; n <= 50; n++ {
			ends = append(ends, r.do(t.Context(), "a", n))
		}
		for _, size := range []int{1, 20, 20, 10} {
			if len(s.batch) != size {
				t.Fatalf("a statement carries %d requests, want %d", len(s.batch), size)
			}
			s.answer()
			if size != 10 {
				s = r.next(t)
			}
		}
		for _, end := range ends {
			want(t, end, nil)
		}
	})
}

func TestAdmissionIsBoundedButWhatEndsAHoldIsNot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(func(o *Options[order, int]) {
			o.MaxQueue = 2
			o.Ends = func(o order) bool { return o.n >= 100 }
		})
		ends := []chan error{r.do(t.Context(), "a", 0), r.do(t.Context(), "a", 1), r.do(t.Context(), "a", 2)}
		want(t, r.do(t.Context(), "a", 3), dblock.ErrOverloaded)
		ends = append(ends, r.do(t.Context(), "a", 100))
		r.next(t).answer()
		s := r.next(t)
		if got := s.numbers(); !slices.Equal(got, []int{1, 2, 100}) {
			t.Fatalf("sent %v", got)
		}
		s.answer()
		for _, end := range ends {
			want(t, end, nil)
		}
	})
}

func TestCancelledWhileQueuedIsNeverExecuted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(nil)
		first := r.do(t.Context(), "a", 0)
		ctx, cancel := context.WithCancel(t.Context())
		gone := r.do(ctx, "a", 1)
		stays := r.do(t.Context(), "a", 2)
		cancel()
		err := <-gone
		if !errors.Is(err, context.Canceled) || errors.Is(err, dblock.ErrOutcomeUnknown) {
			t.Fatalf("got %v", err)
		}
		r.next(t).answer()
		s := r.next(t)
		if got := s.numbers(); !slices.Equal(got, []int{2}) {
			t.Fatalf("sent %v, want only the call that stayed", got)
		}
		s.answer()
		want(t, first, nil)
		want(t, stays, nil)
		want(t, r.do(ctx, "a", 3), context.Canceled)
		r.quiet(t)
	})
}

func TestAllCancelledLeavesNothingBehind(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(nil)
		first := r.do(t.Context(), "a", 0)
		ctx, cancel := context.WithCancel(t.Context())
		var gone []chan error
		for n := range 10 {
			gone = append(gone, r.do(ctx, "a", n))
		}
		cancel()
		for _, end := range gone {
			want(t, end, context.Canceled)
		}
		r.next(t).answer()
		want(t, first, nil)
		r.quiet(t)
		if len(r.lanes) != 0 || len(r.ready) != 0 || r.waiting != 0 || r.running != 0 {
			t.Fatalf("left: %d lanes, %d ready, %d waiting, %d running", len(r.lanes), len(r.ready), r.waiting, r.running)
		}
	})
}

func TestCancelledAfterSendingIsUnknown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(nil)
		first := r.do(t.Context(), "a", 0)
		ctx, cancel := context.WithCancel(t.Context())
		sent := r.do(ctx, "a", 1)
		r.next(t).answer()
		s := r.next(t)
		if s.ctx.Done() != nil {
			t.Fatal("a shared statement hangs on one caller's context")
		}
		cancel()
		err := <-sent
		if !errors.Is(err, dblock.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v", err)
		}
		s.answer()
		want(t, first, nil)
	})
}

func TestAnswersBesideAnErrorDoNotCount(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(nil)
		broken := errors.New("connection lost at CommandComplete")
		end := r.do(t.Context(), "a", 1)
		s := r.next(t)
		s.reply <- result{answers: echo(s.batch), err: broken}
		want(t, end, broken)
	})
}

func TestOneBadRequestNeverFailsItsNeighbours(t *testing.T) {
	bubble(t, func(t *testing.T) {
		poison := errors.New("poison")
		statements := 0
		held := make(chan struct{})
		q := New(Options[order, int]{
			Key:      func(o order) string { return o.key },
			Classify: func(error) sqlerr.Class { return sqlerr.BadInput },
			Run: func(_ context.Context, batch []order, _ bool) ([]Result[int], error) {
				statements++
				if statements == 1 {
					<-held
				}
				if slices.ContainsFunc(batch, func(o order) bool { return o.n == 13 }) {
					return nil, poison
				}
				return echo(batch), nil
			},
		})
		r := &rig{Queue: q}
		ends := map[int]chan error{}
		for n := range 101 {
			ends[n] = r.do(t.Context(), "a", n)
		}
		close(held)
		for n, end := range ends {
			if n == 13 {
				want(t, end, poison)
			} else {
				want(t, end, nil)
			}
		}
		if statements > 1+2*8 {
			t.Errorf("%d statements to find one bad request in a hundred", statements)
		}
	})
}

func TestOtherErrorsAreNotTriedInHalves(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(func(o *Options[order, int]) {
			o.Classify = func(error) sqlerr.Class { return sqlerr.Unavailable }
		})
		ends := []chan error{r.do(t.Context(), "a", 0), r.do(t.Context(), "a", 1), r.do(t.Context(), "a", 2)}
		down := errors.New("server down")
		for range 2 {
			s := r.next(t)
			s.reply <- result{err: down}
		}
		for _, end := range ends {
			want(t, end, down)
		}
		r.quiet(t)
	})
}

func TestStatementsInFlightAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(func(o *Options[order, int]) { o.MaxInFlight = 2 })
		var ends []chan error
		for n := range 8 {
			ends = append(ends, r.do(t.Context(), "hot", n))
		}
		a := r.next(t)
		r.quiet(t) // one for one key, whatever waits
		ends = append(ends, r.do(t.Context(), "other", 8))
		b := r.next(t)
		ends = append(ends, r.do(t.Context(), "third", 9))
		r.quiet(t) // two in all
		a.answer()
		b.answer()
		for answered := 2; answered < len(ends); {
			s := r.next(t)
			answered += len(s.batch)
			s.answer()
		}
		for _, end := range ends {
			want(t, end, nil)
		}
	})
}

func TestTwoStatementsMayCarryOneKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(func(o *Options[order, int]) { o.PerKey, o.MaxBatch = 2, 3 })
		var ends []chan error
		for n := range 9 {
			ends = append(ends, r.do(t.Context(), "hot", n))
		}
		a, b := r.next(t), r.next(t)
		r.quiet(t)
		b.answer() // the second one may come first
		c := r.next(t)
		if got := c.numbers(); !slices.Equal(got, []int{2, 3, 4}) {
			t.Fatalf("sent %v, want those that waited, in their order", got)
		}
		r.quiet(t)
		a.answer()
		c.answer()
		d, e := r.next(t), r.next(t) // a lane that has more than fits goes out twice
		if got := append(d.numbers(), e.numbers()...); len(got) != 4 {
			t.Fatalf("sent %v, want the last four", got)
		}
		e.answer()
		d.answer()
		for _, end := range ends {
			want(t, end, nil)
		}
	})
}

// TestAKeyBesideOthersIsInOneStatement: a second one would find the key's row locked and, beside
// others, have to pass it over.
func TestAKeyBesideOthersIsInOneStatement(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(func(o *Options[order, int]) { o.PerKey, o.MaxInFlight = 2, 2 })
		ends := []chan error{r.do(t.Context(), "a", 0), r.do(t.Context(), "b", 1)}
		a, b := r.next(t), r.next(t)
		ends = append(ends, r.do(t.Context(), "c", 2), r.do(t.Context(), "d", 3))
		a.answer()
		shared := r.next(t)
		ends = append(ends, r.do(t.Context(), "c", 4))
		b.answer()
		r.quiet(t)
		ends = append(ends, r.do(t.Context(), "e", 5), r.do(t.Context(), "c", 6))
		e := r.next(t)
		if got := e.numbers(); !slices.Equal(got, []int{5}) {
			t.Fatalf("sent %v, want e's alone: c is under way", got)
		}
		shared.answer()
		rest := r.next(t)
		if got := rest.numbers(); !slices.Equal(got, []int{4, 6}) {
			t.Fatalf("sent %v, want what waited for c", got)
		}
		rest.answer()
		e.answer()
		for _, end := range ends {
			want(t, end, nil)
		}
	})
}

func TestASecondStatementOfAKeyCarriesNoOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(func(o *Options[order, int]) { o.PerKey, o.MaxInFlight = 2, 2 })
		ends := []chan error{r.do(t.Context(), "hot", 0), r.do(t.Context(), "a", 1)}
		hot, a := r.next(t), r.next(t)
		for n, key := range []string{"b", "hot", "c", "hot"} {
			ends = append(ends, r.do(t.Context(), key, 2+n))
		}
		a.answer()
		others := r.next(t)
		if got := others.numbers(); !slices.Equal(got, []int{2, 4}) {
			t.Fatalf("sent %v, want b's and c's", got)
		}
		others.answer()
		second := r.next(t)
		if got := second.numbers(); !slices.Equal(got, []int{3, 5}) {
			t.Fatalf("sent %v, want the hot key's", got)
		}
		second.answer()
		hot.answer()
		for _, end := range ends {
			want(t, end, nil)
		}
	})
}

func TestKeysShareAStatement(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(func(o *Options[order, int]) { o.MaxInFlight = 2 })
		ends := []chan error{r.do(t.Context(), "a", 0), r.do(t.Context(), "b", 1)}
		a, b := r.next(t), r.next(t)
		for n, key := range []string{"a", "c", "d", "a", "c"} {
			ends = append(ends, r.do(t.Context(), key, 2+n))
		}
		b.answer()
		shared := r.next(t) // not with a, which is under way
		if got := shared.numbers(); !slices.Equal(got, []int{3, 6, 4}) {
			t.Fatalf("sent %v, want c's two and d's one together", got)
		}
		a.answer()
		rest := r.next(t)
		if got := rest.numbers(); !slices.Equal(got, []int{2, 5}) {
			t.Fatalf("sent %v, want a's two", got)
		}
		shared.answer()
		rest.answer()
		for _, end := range ends {
			want(t, end, nil)
		}
	})
}

func TestWhatWasSkippedIsAskedAgainAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(func(o *Options[order, int]) { o.MaxInFlight = 1 })
		ends := []chan error{r.do(t.Context(), "x", 0)}
		s := r.next(t)
		for n, key := range []string{"a", "b", "b", "c"} {
			ends = append(ends, r.do(t.Context(), key, 1+n))
		}
		s.answer()
		s = r.next(t)
		answers := echo(s.batch)
		for i, o := range s.batch {
			answers[i].Alone = o.key == "b"
		}
		s.reply <- result{answers: answers}
		want(t, ends[1], nil)
		want(t, ends[4], nil)
		s = r.next(t)
		if got := s.numbers(); !slices.Equal(got, []int{2, 3}) || !s.again {
			t.Fatalf("asked again: %v (%v), want b's two, in their order", got, s.again)
		}
		s.answer()
		for _, n := range []int{0, 2, 3} {
			want(t, ends[n], nil)
		}
	})
}

func TestLockedEvenAloneIsBusy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(nil)
		end := r.do(t.Context(), "a", 1)
		s := r.next(t)
		s.reply <- result{answers: []Result[int]{{Alone: true}}}
		want(t, end, dblock.ErrBusy)
	})
}

func TestKeysTakeTurns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(func(o *Options[order, int]) { o.MaxInFlight, o.MaxBatch = 1, 10 })
		ends := []chan error{r.do(t.Context(), "hot", 0)}
		s := r.next(t)
		for n := 1; n <= 40; n++ {
			ends = append(ends, r.do(t.Context(), "hot", n))
		}
		ends = append(ends, r.do(t.Context(), "cold", 99))
		s.answer()
		served := 1
		for statements := 1; served < len(ends); statements++ {
			s = r.next(t)
			served += len(s.batch)
			if slices.Contains(s.numbers(), 99) && statements > 2 {
				t.Fatalf("one cold order waited for %d statements of a hot key", statements)
			}
			s.answer()
		}
		for _, end := range ends {
			want(t, end, nil)
		}
	})
}

func TestCloseWaitsForWhatIsUnderWay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(nil)
		ends := []chan error{r.do(t.Context(), "a", 0), r.do(t.Context(), "a", 1)}
		closed := make(chan error, 1)
		go func() { closed <- r.Close(t.Context()) }()
		synctest.Wait()
		want(t, r.do(t.Context(), "a", 2), dblock.ErrClosed)
		impatient, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.Close(impatient); !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v", err)
		}
		r.next(t).answer()
		r.next(t).answer()
		want(t, closed, nil)
		for _, end := range ends {
			want(t, end, nil)
		}
	})
}

func TestEveryCallIsAnsweredOnce(t *testing.T) {
	t.Parallel()
	q := New(Options[order, int]{
		MaxBatch: 7, PerKey: 2,
		Key: func(o order) string { return o.key },
		Run: func(_ context.Context, batch []order, _ bool) ([]Result[int], error) {
			answers := echo(batch)
			keys := map[string]bool{}
			for _, o := range batch {
				keys[o.key] = true
			}
			for i, o := range batch {
				answers[i].Alone = len(keys) > 1 && o.n%5 == 0
			}
			return answers, nil
		},
	})
	ends := make(chan error)
	const callers, each = 64, 200
	for c := range callers {
		go func() {
			for n := range each {
				o := order{strings.Repeat("k", 1+(c*n)%9), c*each + n}
				if got, err := q.Do(context.Background(), o); err != nil || got != o.n {
					ends <- fmt.Errorf("request %d: got %d, %v", o.n, got, err)
					return
				}
			}
			ends <- nil
		}()
	}
	for range callers {
		if err := <-ends; err != nil {
			t.Error(err)
		}
	}
	if err := q.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
