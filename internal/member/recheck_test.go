package member

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestRecheck: what the server has is compared with what the process knows after each heartbeat by
// which the server may have forgotten commits, until that has worked, and from time to time.
func TestRecheck(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, m *Member) {
		n, fail := 0, error(nil)
		defer m.Listen(Listener{Recheck: func(*Incarnation) error {
			n++
			return fail
		}})()
		inc, _ := join(t, m)
		after := func(what string, d time.Duration, least, most int) {
			t.Helper()
			n = 0
			time.Sleep(d)
			synctest.Wait()
			if n < least || n > most {
				t.Errorf("%s: %d times, not %d to %d", what, n, least, most)
			}
		}
		after("in half an hour", 30*time.Minute, 3, 3)
		s.broken.Add(1)
		after("a broken connection", ttl, 1, 2) // and once by time, perhaps
		after("nothing", ttl, 0, 1)
		s.set(func() { s.fail = context.DeadlineExceeded })
		time.Sleep(ttl / 2)
		s.set(func() { s.fail = nil })
		after("a failed heartbeat", ttl, 1, 2)
		s.set(func() { s.beats[inc.ID]-- })
		after("a heartbeat that the server has forgotten", ttl, 1, 2)
		s.broken.Add(1)
		fail = errors.New("not read")
		after("an error", ttl, 3, 3)
		fail = nil
		after("after errors", ttl, 1, 1)
	})
}
