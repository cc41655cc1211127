package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// town has the notifications that were sent.
type town struct {
	mu     sync.Mutex
	sends  []time.Time // when each began
	fails  []error     // what the next ones return
	told   []string
	took   time.Duration
	events int // troubles
}

func (o *town) send(_ context.Context, news []driver.Notification) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sends = append(o.sends, time.Now())
	time.Sleep(o.took)
	if len(o.fails) > 0 {
		err := o.fails[0]
		o.fails = o.fails[1:]
		return err
	}
	for _, n := range news {
		o.told = append(o.told, n.Queue)
	}
	return nil
}

func (o *town) sender() *sender {
	return newSender(o.send, func(string, error) { o.events++ })
}

// burst announces one queue again and again. It fails unless a notification follows each time,
// soon, and there are few of them.
func burst(told func() []time.Time, tell func(driver.Notification)) error {
	var at []time.Time
	began := time.Now()
	for range 2000 {
		time.Sleep(rand.N(3 * time.Millisecond))
		at = append(at, time.Now())
		tell(driver.Notification{Queue: "q"})
	}
	took := time.Since(began)
	pause(time.Second)
	sends := told()
	if most := int(took/sendEvery) + 2; len(sends) > most {
		return fmt.Errorf("%d tellings in %v, more than %d", len(sends), took, most)
	}
	for i, t := range at {
		next, _ := slices.BinarySearchFunc(sends, t, time.Time.Compare)
		if next == len(sends) || sends[next].Sub(t) > sendBusy+2*time.Millisecond {
			return fmt.Errorf("nothing was told after news %d of %d", i+1, len(at))
		}
	}
	return nil
}

// pause lets everything happen that happens meanwhile.
func pause(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestWhatIsToldInABurstIsFewAndNoneIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &town{took: time.Millisecond}
		sender := o.sender()
		if err := burst(func() []time.Time { return o.sends }, sender.send); err != nil {
			t.Error(err)
		}
		sender.close(t.Context())
	})
}

// Without the notification that follows a burst its last change is lost.
func TestControlOnlyTheFirstOfABurstIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &town{took: time.Millisecond}
		sender := o.sender()
		var last time.Time
		err := burst(func() []time.Time { return o.sends }, func(n driver.Notification) {
			if time.Since(last) >= 2*sendBusy {
				last = time.Now()
				sender.send(n)
			}
		})
		if err == nil {
			t.Error("nothing was lost")
		}
		sender.close(t.Context())
	})
}

func TestTheFirstIsToldAtOnceAndOthersTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &town{}
		sender := o.sender()
		began := time.Now()
		sender.send(driver.Notification{Queue: "a"})
		synctest.Wait()
		if len(o.sends) != 1 || !o.sends[0].Equal(began) {
			t.Errorf("told at %v", o.sends)
		}
		for _, name := range []string{"b", "c", "b"} {
			sender.send(driver.Notification{Queue: name})
		}
		pause(time.Second)
		slices.Sort(o.told)
		if len(o.sends) != 2 || !slices.Equal(o.told, []string{"a", "b", "c"}) {
			t.Errorf("%d tellings, of %v", len(o.sends), o.told)
		}
		sender.send(driver.Notification{Queue: "d"})
		sender.send(driver.Notification{Queue: "e"})
		sender.close(t.Context()) // waits for no pause
		sender.send(driver.Notification{Queue: "f"})
		if slices.Sort(o.told); !slices.Equal(o.told, []string{"a", "b", "c", "d", "e"}) {
			t.Errorf("at the end %v were told", o.told)
		}
	})
}

func TestTellingIsTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bad := errors.New("a bad day")
		o := &town{fails: slices.Repeat([]error{bad}, sendTries-1)}
		sender := o.sender()
		sender.send(driver.Notification{Queue: "a"})
		pause(time.Minute)
		if !slices.Equal(o.told, []string{"a"}) || o.events != 0 {
			t.Errorf("%v were told, and %d troubles", o.told, o.events)
		}
		o.fails, o.told = slices.Repeat([]error{bad}, sendTries), nil
		sender.send(driver.Notification{Queue: "b"})
		pause(time.Minute)
		if len(o.told) != 0 || o.events != 1 {
			t.Errorf("%v were told, and %d troubles", o.told, o.events)
		}
		o.fails, o.sends = []error{fmt.Errorf("%w: here", dblock.ErrUnsupported)}, nil
		sender.send(driver.Notification{Queue: "c"})
		pause(time.Minute)
		sender.send(driver.Notification{Queue: "d"})
		pause(time.Minute)
		if len(o.sends) != 1 || o.events != 1 {
			t.Errorf("where nobody can be told there were %d tellings, and %d troubles", len(o.sends), o.events)
		}
		sender.close(t.Context())
	})
}

func TestCloseWaitsForNoTellingThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sender := newSender(func(ctx context.Context, _ []driver.Notification) error {
			<-ctx.Done()
			return ctx.Err()
		}, func(string, error) {})
		sender.send(driver.Notification{Queue: "a"})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		sender.close(ctx)
	})
}
