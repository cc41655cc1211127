package batch

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/dblock-go/dblock"
)

// TestALateAnswerIsReported: the caller of a statement under way may leave, alone or beside others;
// the statement goes on, and its answer goes to Late, once.
func TestALateAnswerIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var late []int
		r := newRig(func(o *Options[order, int]) {
			o.MaxInFlight = 1
			o.Late = func(_ order, a Result[int]) { late = append(late, a.Value) }
		})
		ctx, cancel := context.WithCancel(t.Context())
		alone := r.do(ctx, "a", 1)
		lone := r.next(t)
		stays, leaves := r.do(t.Context(), "b", 2), r.do(ctx, "c", 3)
		cancel()
		if err := <-alone; !errors.Is(err, ErrAbandoned) || !errors.Is(err, dblock.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
			t.Errorf("left: %v", err)
		}
		if err := <-leaves; !errors.Is(err, ErrNotSent) {
			t.Errorf("left before it was sent: %v", err)
		}
		if lone.ctx.Err() != nil {
			t.Error("the statement ended with its caller")
		}
		lone.answer()
		second := r.next(t)
		second.answer()
		if err := <-stays; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if len(late) != 1 || late[0] != 1 {
			t.Errorf("late: %v", late)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestSkippedRequestWithoutCallerIsDropped: a skipped request is not sent again if its caller has
// left. Late is called, and says that nothing was written.
func TestSkippedRequestWithoutCallerIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late, lateErr := 0, error(nil)
		r := newRig(func(o *Options[order, int]) {
			o.MaxInFlight = 1
			o.Late = func(o order, got Result[int]) { late, lateErr = o.n, got.Err }
		})
		ctx, cancel := context.WithCancel(t.Context())
		first := r.do(t.Context(), "a", 1)
		s := r.next(t)
		leaves, stays := r.do(ctx, "b", 2), r.do(t.Context(), "c", 3)
		s.answer()
		both := r.next(t)
		cancel()
		if err := <-leaves; !errors.Is(err, ErrAbandoned) {
			t.Errorf("left: %v", err)
		}
		both.reply <- result{answers: []Result[int]{{Alone: true}, {Value: 3}}}
		r.quiet(t)
		if err := errors.Join(<-first, <-stays, r.Close(t.Context())); err != nil {
			t.Error(err)
		}
		if late != 2 || !errors.Is(lateErr, dblock.ErrBusy) {
			t.Errorf("late: %d, %v", late, lateErr)
		}
	})
}

// TestPostsShareStatements: what is posted is executed with what others ask for, and Close waits
// for it.
func TestPostsShareStatements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(func(o *Options[order, int]) { o.MaxInFlight, o.MaxQueue = 1, 1 })
		var got []int
		post := func(key string, n int) bool {
			return r.Post(order{key, n}, func(a int, err error) {
				if err != nil {
					t.Error(err)
				}
				got = append(got, a)
			})
		}
		if !post("a", 1) || !post("b", 2) || !post("c", 3) {
			t.Error("refused")
		}
		one := r.next(t)
		r.quiet(t)
		one.answer()
		two := r.next(t)
		closed := make(chan error, 1)
		go func() { closed <- r.Close(t.Context()) }()
		synctest.Wait()
		if post("d", 4) {
			t.Error("taken after Close")
		}
		select {
		case <-closed:
			t.Error("closed before the statement was answered")
		default:
		}
		two.answer()
		if err := <-closed; err != nil || len(one.batch) != 1 || len(two.batch) != 2 || len(got) != 3 {
			t.Errorf("%v: %v and %v, answers %v", err, one.batch, two.batch, got)
		}
	})
}
