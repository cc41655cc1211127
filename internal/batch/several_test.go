package batch

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
)

// lock has a statement of each key stand aside.
func (r *rig) lock(t *testing.T, keys ...string) (locked []statement, ends []chan error) {
	t.Helper()
	for n, key := range keys {
		ends = append(ends, r.do(t.Context(), key, 80+n), r.do(t.Context(), key, 90+n))
		r.sends(t, 80+n).answer() // the only one that can't stand aside
		locked = append(locked, r.sends(t, 90+n))
		if !Yield(locked[n].ctx) {
			t.Fatal("the statement can't stand aside")
		}
	}
	return locked, ends
}

// newCartRig is a rig whose requests with a key such as "cart:a,b" contend for a and b, and share a
// lane.
func newCartRig() *rig {
	return newRig(func(o *Options[order, int]) {
		skus := func(o order) []string {
			list, _ := strings.CutPrefix(o.key, "cart:")
			return strings.Split(list, ",")
		}
		o.Key = func(o order) string {
			if strings.HasPrefix(o.key, "cart:") {
				return "carts"
			}
			return o.key
		}
		o.Others = func(o order) []string {
			if strings.HasPrefix(o.key, "cart:") {
				return skus(o)
			}
			return nil
		}
		o.Waiters = 4
	})
}

func (r *rig) sends(t *testing.T, numbers ...int) statement {
	t.Helper()
	s := r.next(t)
	if got := s.numbers(); !slices.Equal(got, numbers) {
		t.Fatalf("sent %v, want %v", got, numbers)
	}
	return s
}

// wantsIdle: a queue keeps nothing of what it has done.
func (r *rig) wantsIdle(t *testing.T) {
	t.Helper()
	r.quiet(t)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.lanes)+len(r.ready)+len(r.stands)+len(r.wanted) > 0 || r.running+r.waiting > 0 {
		t.Errorf("left are %d lanes, %d of them ready, %d that stand, %d wanted, %d statements, %d calls",
			len(r.lanes), len(r.ready), len(r.stands), len(r.wanted), r.running, r.waiting)
	}
}

// TestACartWaitsForStatementsOfItsKeys, and what comes later for one of its keys waits behind it.
func TestACartWaitsForStatementsOfItsKeys(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newCartRig()
		ends := []chan error{r.do(t.Context(), "a", 0)}
		a := r.sends(t, 0)
		ends = append(ends, r.do(t.Context(), "cart:a,b", 1))
		r.quiet(t)
		ends = append(ends, r.do(t.Context(), "b", 2), r.do(t.Context(), "c", 3))
		r.sends(t, 3).answer() // it shares no key with the cart
		r.quiet(t)
		a.answer()
		cart := r.next(t)
		if got := cart.numbers(); !slices.Contains(got, 1) {
			t.Fatalf("sent %v, want the cart", got)
		}
		ends = append(ends, r.do(t.Context(), "a", 4))
		r.quiet(t)
		cart.answer()
		r.next(t).answer()
		if len(cart.batch) == 1 { // b had no part in the cart's statement
			r.next(t).answer()
		}
		for _, end := range ends {
			want(t, end, nil)
		}
		r.wantsIdle(t)
	})
}

// TestCartsGoTogether: while the first of many carts waits, no statement begins that carries a key
// of another one. So all of them go in the next statement.
func TestCartsGoTogether(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newCartRig()
		var ends []chan error
		for n, key := range []string{"a", "b", "c"} {
			ends = append(ends, r.do(t.Context(), key, n))
		}
		var singles []statement
		for range 3 {
			singles = append(singles, r.next(t))
		}
		for n, key := range []string{"cart:a,x", "cart:b,x", "cart:c,x"} {
			ends = append(ends, r.do(t.Context(), key, 10+n))
		}
		singles[1].answer()
		singles[2].answer()
		ends = append(ends, r.do(t.Context(), "b", 20), r.do(t.Context(), "c", 21))
		r.quiet(t)
		singles[0].answer()
		carts := r.next(t)
		for n := range 3 {
			if !slices.Contains(carts.numbers(), 10+n) {
				t.Errorf("sent %v, want all carts", carts.numbers())
			}
		}
		carts.answer()
		for synctest.Wait(); len(r.sent) > 0; synctest.Wait() {
			r.next(t).answer()
		}
		for _, end := range ends {
			want(t, end, nil)
		}
		r.wantsIdle(t)
	})
}

// TestACartDoesNotWaitForASlowStatement, nor for long for one that stands aside.
func TestACartDoesNotWaitForASlowStatement(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for what, most := range map[string]time.Duration{"slow": carriesFor, "aside": asideFor} {
			r := newCartRig()
			ends := []chan error{r.do(t.Context(), "a", 8), r.do(t.Context(), "a", 0)}
			r.sends(t, 8).answer() // the only one that can't stand aside
			a := r.sends(t, 0)
			if what == "aside" && !Yield(a.ctx) {
				t.Fatal("the statement can't stand aside")
			}
			ends = append(ends, r.do(t.Context(), "cart:a,b", 1))
			time.Sleep(most - time.Millisecond)
			r.quiet(t)
			time.Sleep(2 * time.Millisecond)
			r.sends(t, 1).answer()
			a.answer()
			for _, end := range ends {
				want(t, end, nil)
			}
			time.Sleep(carriesFor)
			r.wantsIdle(t)
		}
	})
}

// TestAWithdrawnCartWantsNothing: the caller of the cart that waits leaves, and what waited behind
// it goes on.
func TestAWithdrawnCartWantsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newCartRig()
		a := r.do(t.Context(), "a", 0)
		first := r.sends(t, 0)
		ctx, leave := context.WithCancel(t.Context())
		cart := r.do(ctx, "cart:a,b", 1)
		b := r.do(t.Context(), "b", 2)
		r.quiet(t)
		leave()
		want(t, cart, context.Canceled)
		r.sends(t, 2).answer()
		first.answer()
		want(t, a, nil)
		want(t, b, nil)
		time.Sleep(carriesFor)
		r.wantsIdle(t)
	})
}

// TestOneCartGoesAtOnce: on its caller's goroutine, and its keys are carried meanwhile.
func TestOneCartGoesAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newCartRig()
		cart := r.do(t.Context(), "cart:a,b", 1)
		s := r.sends(t, 1)
		b := r.do(t.Context(), "b", 2)
		r.quiet(t)
		s.answer()
		r.sends(t, 2).answer()
		want(t, cart, nil)
		want(t, b, nil)
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
		want(t, r.do(t.Context(), "cart:a,b", 3), dblock.ErrClosed)
		r.wantsIdle(t)
	})
}

// TestACartThatStandsAsideLetsItsOtherKeysGo: soon, and others are sent while it waits.
func TestACartThatStandsAsideLetsItsOtherKeysGo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newCartRig()
		ends := []chan error{r.do(t.Context(), "cart:a,b", 8), r.do(t.Context(), "cart:a,b", 0)}
		r.sends(t, 8).answer() // the only one that can't stand aside
		cart := r.sends(t, 0)
		ends = append(ends, r.do(t.Context(), "b", 1))
		if !Yield(cart.ctx) {
			t.Fatal("the statement can't stand aside")
		}
		time.Sleep(holdsFor - time.Millisecond)
		r.quiet(t)
		time.Sleep(2 * time.Millisecond)
		r.sends(t, 1).answer()
		cart.answer()
		for _, end := range ends {
			want(t, end, nil)
		}
		time.Sleep(carriesFor)
		r.wantsIdle(t)
	})
}

// TestACartThatWaitsForALockStopsNoOtherCart: it waits in the lane of what is locked, for as long
// as that takes. Carts that come later and share none of its locked keys are sent meanwhile.
func TestACartThatWaitsForALockStopsNoOtherCart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newCartRig()
		r.o.Common = "carts"
		locked, ends := r.lock(t, "a", "b")
		for n := range 10 {
			ends = append(ends, r.do(t.Context(), []string{"cart:a,x", "cart:x,b"}[n%2], n))
			r.quiet(t)
			ends = append(ends, r.do(t.Context(), "cart:x,y", 10+n))
			r.sends(t, 10+n).answer()
		}
		ctx, leave := context.WithCancel(t.Context())
		gone := r.do(ctx, "cart:a,b", 50)
		leave()
		want(t, gone, context.Canceled)
		locked[0].answer()
		r.sends(t, 0, 2, 4, 6, 8).answer()
		locked[1].answer()
		r.sends(t, 1, 3, 5, 7, 9).answer()
		for _, end := range ends {
			want(t, end, nil)
		}
		r.wantsIdle(t)
	})
}

// TestACartWaitsOnceForStatementsAside: however often another one begins to wait for its key.
func TestACartWaitsOnceForStatementsAside(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newCartRig()
		ends := []chan error{r.do(t.Context(), "a", 8), r.do(t.Context(), "a", 0)}
		r.sends(t, 8).answer()
		a := r.sends(t, 0)
		if !Yield(a.ctx) {
			t.Fatal("the statement can't stand aside")
		}
		ends = append(ends, r.do(t.Context(), "cart:a,b", 1))
		time.Sleep(asideFor / 2)
		r.mu.Lock()
		r.laneOf("a").carried() // another one has begun, and ends at once
		r.laneOf("a").flying--
		r.mu.Unlock()
		time.Sleep(asideFor/2 + time.Millisecond)
		r.sends(t, 1).answer()
		a.answer()
		for _, end := range ends {
			want(t, end, nil)
		}
		time.Sleep(carriesFor)
		r.wantsIdle(t)
	})
}

// TestACartLeavesALaneThatIsFree: it waits for one of its keys in the lane of another one, which is
// free again. Calls behind it are sent.
func TestACartLeavesALaneThatIsFree(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newCartRig()
		r.o.Common = "carts"
		locked, ends := r.lock(t, "a", "b")
		ends = append(ends, r.do(t.Context(), "cart:a,b", 1), r.do(t.Context(), "a", 2))
		r.quiet(t)
		locked[0].answer()
		r.sends(t, 2).answer()
		ends = append(ends, r.do(t.Context(), "a", 3))
		r.sends(t, 3).answer()
		locked[1].answer()
		r.sends(t, 1).answer()
		for _, end := range ends {
			want(t, end, nil)
		}
		r.wantsIdle(t)
	})
}

// TestACartWhoseKeysAreLockedInTurnsIsAnswered: it moves between their lanes for MaxWait.
func TestACartWhoseKeysAreLockedInTurnsIsAnswered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newCartRig()
		r.o.Common, r.o.MaxWait = "carts", 4*time.Second
		locked, ends := r.lock(t, "a", "b")
		cart := r.do(t.Context(), "cart:a,b", 1)
		for n := range 4 {
			r.quiet(t)
			time.Sleep(time.Second)
			locked[n%2].answer()
			if n < 3 {
				again, more := r.lock(t, []string{"a", "b"}[n%2])
				locked[n%2], ends = again[0], append(ends, more...)
			}
		}
		time.Sleep(asideFor)
		r.sends(t, 1).alone("a")
		want(t, cart, dblock.ErrBusy)
		locked[0].answer()
		for _, end := range ends {
			want(t, end, nil)
		}
		time.Sleep(carriesFor)
		r.wantsIdle(t)
	})
}
