package member

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
)

// server is a member's row as a server would keep it, on the bubble's clock.
type server struct {
	mu      sync.Mutex
	expires map[ID]time.Time
	beats   map[ID]int64
	fail    error         // what Beat and Join say
	hang    chan struct{} // Beat waits for it, or for its context
	joins   int
	broken  atomic.Int64
}

func newServer() *server {
	return &server{expires: make(map[ID]time.Time), beats: make(map[ID]int64)}
}

func (s *server) Register(_ context.Context, id ID, _ string, ttl time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.joins++
	if s.fail != nil {
		return s.fail
	}
	s.expires[id] = time.Now().Add(ttl)
	return nil
}

func (s *server) Heartbeat(ctx context.Context, id ID, ttl time.Duration) (int64, bool, error) {
	s.mu.Lock()
	hang, fail := s.hang, s.fail
	s.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			return 0, false, ctx.Err()
		}
	}
	if fail != nil {
		return 0, false, fail
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !time.Now().Before(s.expires[id]) {
		return 0, false, nil
	}
	s.beats[id]++
	s.expires[id] = time.Now().Add(ttl)
	return s.beats[id], true, nil
}

func (s *server) Deregister(ctx context.Context, id ID) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.expires, id)
	return nil
}

func (s *server) Broken() int64 { return s.broken.Load() }

func (s *server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

const ttl = 9 * time.Second

// bubble runs f with a member on a clock of its own.
func bubble(t *testing.T, f func(t *testing.T, s *server, m *Member)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, err := Options{TTL: ttl, Margin: time.Second}.WithDefaults("Options")
		if err != nil {
			t.Fatal(err)
		}
		s := newServer()
		m := New(s, o)
		f(t, s, m)
		_ = m.Close(context.Background())
		time.Sleep(ttl) // a heartbeat that hangs gives up
	})
}

func join(t *testing.T, m *Member) (*Incarnation, *ending) {
	t.Helper()
	inc, err := m.Current(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var why ending
	inc.OnEnd(func(r dblock.Reason) { why.Store(r) })
	return inc, &why
}

// ending is why a life ended.
type ending struct{ atomic.Value }

func (e *ending) get() dblock.Reason {
	synctest.Wait()
	why, _ := e.Load().(dblock.Reason)
	return why
}

func TestAHeartbeatKeepsItAlive(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, m *Member) {
		inc, why := join(t, m)
		time.Sleep(10 * ttl)
		synctest.Wait()
		if !inc.Alive() || why.get() != "" {
			t.Errorf("ended: %s", why.get())
		}
		if beat := inc.Heartbeat(); beat < 25 || beat > 31 {
			t.Errorf("%d heartbeats in ten TTLs", beat)
		}
		if again, _ := m.Current(t.Context()); again != inc || s.joins != 1 {
			t.Error("it joined again")
		}
	})
}

// What a process believes ends before what the server believes, whenever the network goes silent.
func TestTrustEndsBeforeTheServerSays(t *testing.T) {
	for _, after := range []time.Duration{0, ttl / 3, ttl/3 + time.Millisecond, ttl / 2, 5 * ttl} {
		t.Run(after.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *server, m *Member) {
				inc, why := join(t, m)
				time.Sleep(after)
				synctest.Wait()
				s.set(func() { s.hang = make(chan struct{}) })
				for inc.Alive() {
					if left := time.Until(inc.TrustedUntil()); left > ttl-time.Second {
						t.Fatalf("trusted for %v", left)
					}
					time.Sleep(10 * time.Millisecond)
				}
				if left := time.Until(s.expires[inc.ID]); left < 900*time.Millisecond {
					t.Errorf("the server ends it in %v, the process has only just", left)
				}
				synctest.Wait()
				if why.get() != dblock.ReasonExpired {
					t.Errorf("ended: %q", why.get())
				}
			})
		})
	}
}

func TestAFailedHeartbeatIsRepeated(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, m *Member) {
		var late atomic.Int64
		stop := m.Listen(Listener{Observer: dblock.Observer{HeartbeatLate: func(remaining time.Duration, err error) {
			late.Add(1)
			if err == nil || remaining <= 0 {
				t.Errorf("late: %v, %v", remaining, err)
			}
		}}})
		defer stop()
		inc, why := join(t, m)
		s.set(func() { s.fail = errors.New("no route") })
		time.Sleep(ttl - 2*time.Second)
		s.set(func() { s.fail = nil })
		time.Sleep(ttl)
		synctest.Wait()
		if !inc.Alive() || why.get() != "" || late.Load() < 3 {
			t.Errorf("alive %v, %q, %d late", inc.Alive(), why.get(), late.Load())
		}
	})
}

func TestWhoeverIsEvictedEndsAndJoinsAnew(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, m *Member) {
		inc, why := join(t, m)
		s.set(func() { delete(s.expires, inc.ID) })
		inc.CheckSoon()
		synctest.Wait()
		if why.get() != dblock.ReasonEvicted || inc.Alive() {
			t.Errorf("ended: %q", why.get())
		}
		late := dblock.Reason("")
		inc.OnEnd(func(r dblock.Reason) { late = r })
		if late != dblock.ReasonEvicted {
			t.Errorf("whoever asks later is told %q", late)
		}
		next, _ := join(t, m)
		if next == inc || next.ID == inc.ID {
			t.Error("the same life again")
		}
	})
}

// TestAnEndedLifeStaysEnded: a heartbeat that was under way when trust ended revives nothing.
func TestAnEndedLifeStaysEnded(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, m *Member) {
		inc, _ := join(t, m)
		hang := make(chan struct{})
		s.set(func() { s.hang = hang })
		for inc.Alive() {
			time.Sleep(50 * time.Millisecond)
		}
		s.set(func() { s.hang = nil })
		close(hang)
		time.Sleep(2 * ttl)
		synctest.Wait()
		if inc.Alive() {
			t.Error("it came back")
		}
	})
}

func TestDoubtIsAskedAgainUntilItIsSettled(t *testing.T) {
	bubble(t, func(t *testing.T, _ *server, m *Member) {
		inc, _ := join(t, m)
		var asked []int64
		inc.OnHeartbeat(func(_ context.Context, beat int64) bool {
			asked = append(asked, beat)
			return len(asked) == 3
		})
		time.Sleep(5 * ttl)
		synctest.Wait()
		if len(asked) != 3 || asked[0] != 1 || asked[2] != 3 {
			t.Errorf("asked at heartbeats %v", asked)
		}
	})
}

func TestOneJoinServesAll(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, m *Member) {
		var crowd sync.WaitGroup
		for range 50 {
			crowd.Go(func() {
				if _, err := m.Current(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		crowd.Wait()
		if s.joins != 1 {
			t.Errorf("%d joins", s.joins)
		}
	})
}

func TestAFailedJoinIsTheCallersToRepeat(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, m *Member) {
		s.fail = errors.New("no route")
		if _, err := m.Current(t.Context()); !errors.Is(err, s.fail) {
			t.Errorf("got %v", err)
		}
		s.fail = nil
		join(t, m)
	})
}

// TestCloseLeavesInItsOwnTime: the caller of Close has often waited for others until its context
// ended.
func TestCloseLeavesInItsOwnTime(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, m *Member) {
		join(t, m)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := m.Close(ctx); err != nil || len(s.expires) != 0 {
			t.Errorf("%v, %d rows", err, len(s.expires))
		}
	})
}

// TestCloseLeavesWhatJoins: a process that closes while it joins leaves no row, if the answer to
// its join is lost, and if it has to leave more than once.
func TestCloseLeavesWhatJoins(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]error{"answered": nil, "lost": errors.New("the answer is lost")} {
		t.Run(name, func(t *testing.T) { closesWhileItJoins(t, lost) })
	}
}

func closesWhileItJoins(t *testing.T, lost error) {
	bubble(t, func(t *testing.T, s *server, _ *Member) {
		slow := &slowJoin{server: s, answer: make(chan error), cuts: leaves - 1}
		o, err := Options{TTL: ttl, Margin: time.Second}.WithDefaults("Options")
		if err != nil {
			t.Fatal(err)
		}
		m := New(slow, o)
		var calls sync.WaitGroup
		calls.Go(func() { _, _ = m.Current(t.Context()) })
		synctest.Wait()
		calls.Go(func() {
			if err := m.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		slow.answer <- lost
		calls.Wait()
		if len(s.expires) != 0 {
			t.Errorf("%d rows are left", len(s.expires))
		}
	})
}

// slowJoin answers a join with what the test sends it, and loses some statements that leave.
type slowJoin struct {
	*server
	answer chan error
	cuts   int
}

func (s *slowJoin) Register(ctx context.Context, id ID, label string, ttl time.Duration) error {
	return errors.Join(s.server.Register(ctx, id, label, ttl), <-s.answer)
}

func (s *slowJoin) Deregister(ctx context.Context, id ID) error {
	if s.cuts > 0 {
		s.cuts--
		return errors.New("the connection was cut")
	}
	return s.server.Deregister(ctx, id)
}

func TestCloseLeaves(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, m *Member) {
		_, why := join(t, m)
		if err := m.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if why.get() != dblock.ReasonClosed || len(s.expires) != 0 {
			t.Errorf("ended: %q, %d rows", why.get(), len(s.expires))
		}
		if _, err := m.Current(t.Context()); !errors.Is(err, dblock.ErrClosed) {
			t.Errorf("got %v", err)
		}
	})
}

// TestControlTrustsTooLong: with the trust counted from the answer instead of the question, a slow
// network has the process believe for longer than the server.
func TestControlTrustsTooLong(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, m *Member) {
		inc, _ := join(t, m)
		hang := make(chan struct{})
		s.set(func() { s.hang = hang })
		time.Sleep(ttl/3 + 100*time.Millisecond) // a heartbeat is under way
		sent := time.Now()
		s.set(func() { s.hang = nil; s.expires[inc.ID] = sent.Add(ttl) })
		time.Sleep(2 * time.Second) // its answer is
		if answered := time.Now().Add(ttl - time.Second); !answered.After(sent.Add(ttl)) {
			t.Error("no difference: the rule would not be needed")
		}
		close(hang)
		synctest.Wait()
		if inc.TrustedUntil().After(s.expires[inc.ID]) {
			t.Error("trusted for longer than the server does")
		}
	})
}

func TestOptions(t *testing.T) {
	t.Parallel()
	o, err := Options{}.WithDefaults("X")
	if err != nil || o.TTL != 10*time.Second || o.Margin != time.Second {
		t.Errorf("%+v, %v", o, err)
	}
	for name, o := range map[string]Options{
		"X.TTL": {TTL: time.Millisecond}, "X.Margin": {TTL: time.Second, Margin: time.Second}, "X.Label": {Label: "\x00"},
	} {
		var invalid *dblock.InvalidError
		if _, err := o.WithDefaults("X"); !errors.As(err, &invalid) || invalid.Field != name {
			t.Errorf("%s: %v", name, err)
		}
	}
}
