package batch

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// TestABatchThatIsBlockedEndsInTime has every statement wait for a lock for a second. A batch of 20
// is divided for MaxWait. Without Blocked it is divided until each request is alone.
func TestABatchThatIsBlockedEndsInTime(t *testing.T) {
	t.Parallel()
	const most, n = 2 * time.Second, 20
	locked := errors.New("it is locked")
	for _, bounded := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(func(o *Options[order, int]) {
				o.MaxInFlight, o.MaxWait = 1, most
				o.Classify = func(error) sqlerr.Class { return sqlerr.BadInput }
				if bounded {
					o.Blocked = func(err error) bool { return errors.Is(err, locked) }
				}
				o.Run = func(context.Context, []order, bool) ([]Result[int], error) {
					time.Sleep(time.Second)
					return nil, locked
				}
			})
			began := time.Now()
			var ends []chan error
			for i := range n + 1 {
				ends = append(ends, r.do(t.Context(), "a", i))
			}
			for _, end := range ends {
				want(t, end, locked)
			}
			took := time.Since(began)
			if bounded != (took <= 2*most) {
				t.Errorf("bounded: %v; it took %v", bounded, took)
			}
		})
	}
}

// TestACallThatStoodBehindOthersIsNotSentLate has a lane wait for a turn for longer than MaxWait.
func TestACallThatStoodBehindOthersIsNotSentLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(func(o *Options[order, int]) { o.MaxInFlight, o.MaxWait = 1, time.Second })
		late := r.do(t.Context(), "a", 1)
		other := r.do(t.Context(), "b", 2)
		r.next(t).alone("")
		s := r.next(t)
		time.Sleep(2 * time.Second)
		s.answer()
		want(t, other, nil)
		if err := <-late; !errors.Is(err, dblock.ErrBusy) {
			t.Errorf("%v, want ErrBusy", err)
		}
		r.quiet(t)
	})
}
