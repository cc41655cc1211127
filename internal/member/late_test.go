package member

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/clock"
)

// leaping is a clock whose timers are late: time has passed, as in a process that was stopped,
// before any of them fires.
type leaping struct {
	clock.Real
	ahead atomic.Int64
}

func (c *leaping) Now() time.Time { return c.Real.Now().Add(time.Duration(c.ahead.Load())) }

// stopping is a server whose client is stopped once, between the execution of a heartbeat and its
// answer.
type stopping struct {
	*server
	stop func()
}

func (s stopping) Heartbeat(ctx context.Context, id ID, ttl time.Duration) (int64, bool, error) {
	beat, alive, err := s.server.Heartbeat(ctx, id, ttl)
	if beat == 2 {
		s.stop()
	}
	return beat, alive, err
}

// TestAnAnswerThatIsReadTooLate: the trust of a life has ended before its heartbeat's answer is
// read, and others have seen that. The answer does not revive it, though the server has confirmed
// the heartbeat in time.
func TestAnAnswerThatIsReadTooLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c leaping
		o, err := Options{TTL: ttl, Margin: time.Second, Clock: &c}.WithDefaults("Options")
		if err != nil {
			t.Fatal(err)
		}
		var inc *Incarnation
		m := New(stopping{newServer(), func() {
			c.ahead.Store(int64(ttl - time.Second - ttl/3)) // it was sent when a third of the TTL had passed since the last one
			if !inc.Lost() {
				t.Error("a life is trusted for too long")
			}
		}}, o)
		var late atomic.Int32
		m.Listen(Listener{Observer: dblock.Observer{HeartbeatLate: func(remaining time.Duration, err error) {
			if late.Add(1); remaining != 0 || err == nil {
				t.Errorf("a late heartbeat is reported with %v and %v", remaining, err)
			}
		}}})
		inc, why := join(t, m)
		time.Sleep(2*ttl/3 + time.Second)
		if !inc.Lost() {
			t.Error("a life that was lost is trusted again")
		}
		if got := why.get(); got != dblock.ReasonExpired {
			t.Errorf("it has ended with %v", got)
		}
		if got := late.Load(); got != 1 {
			t.Errorf("a late heartbeat was reported %d times", got)
		}
		_ = m.Close(context.Background())
	})
}

// slow is a server that answers a heartbeat after a while.
type slow struct {
	*server
	took time.Duration
	sent func()
}

func (s slow) Heartbeat(ctx context.Context, id ID, ttl time.Duration) (int64, bool, error) {
	s.sent()
	time.Sleep(s.took)
	return s.server.Heartbeat(ctx, id, ttl)
}

// TestHeartbeatsAreSentAThirdOfTheTTLApart: however long an answer takes. With one that takes
// longer than that the next follows soon.
func TestHeartbeatsAreSentAThirdOfTheTTLApart(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ took, apart time.Duration }{
		{0, ttl / 3}, {ttl / 4, ttl / 3}, {ttl * 2 / 5, ttl*2/5 + ttl/24},
	} {
		synctest.Test(t, func(t *testing.T) {
			o, err := Options{TTL: ttl, Margin: time.Second}.WithDefaults("Options")
			if err != nil {
				t.Fatal(err)
			}
			var last time.Time
			beats := 0
			m := New(slow{newServer(), c.took, func() {
				if apart := time.Since(last); !last.IsZero() && apart != c.apart {
					t.Errorf("an answer takes %v: sent %v apart, want %v", c.took, apart, c.apart)
				}
				last = time.Now()
				beats++
			}}, o)
			inc, _ := join(t, m)
			time.Sleep(5 * ttl)
			if inc.Lost() || beats < 10 {
				t.Errorf("an answer takes %v: %d heartbeats, and the life is lost: %v", c.took, beats, inc.Lost())
			}
			_ = m.Close(context.Background())
			time.Sleep(ttl)
		})
	}
}
