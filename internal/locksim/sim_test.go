package locksim

import (
	"context"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// result is what became of a simulation.
type result struct {
	wrong, history []string
}

// instants returns the history in the order of time. What happens in one instant has no order.
func (r result) instants() []string { return slices.Sorted(slices.Values(r.history)) }

// simulate runs a seed.
func simulate(t *testing.T, s seed, of kind, without mutation) (r result) {
	t.Helper()
	defer func() {
		if p := recover(); p != nil { // goroutines are left, or all wait for ever
			t.Fatalf("DBLOCK_SEED=%d, %s: %v", s, of, p)
		}
	}()
	synctest.Test(t, func(*testing.T) {
		w := newWorld(s, of, without)
		w.play()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.checker.verdict()
		r = result{w.checker.wrong, w.checker.history}
	})
	return r
}

// longest is for how long the programs may go on when faults have ceased.
const longest = 2 * time.Minute

// play has all processes do their programs, and then looks at what is left.
func (w *world) play() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	for _, s := range w.restarts {
		go w.restartServer(s)
	}
	last := make(chan *process, len(w.processes))
	for i := range w.processes {
		go w.run(ctx, &w.processes[i], last)
	}
	deadline := time.After(w.faults + longest - w.now())
	var alive []*process
	for len(alive) < len(w.processes) {
		select {
		case p := <-last:
			alive = append(alive, p)
		case <-deadline:
			w.stuck()
			stop()
		}
	}
	time.Sleep(max(0, w.faults-w.now()) + 10*w.ttl) // what was late has arrived, and what is unused was released
	w.leaks()
	for _, p := range alive {
		if err := p.close(longest); err != nil {
			w.wrong("%s was closed: %v", p.name, err)
		}
	}
	time.Sleep(5 * w.ttl) // what is late has arrived
}

// stuck says which calls have not returned.
func (w *world) stuck() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.processes {
		for _, program := range p.programs {
			for _, o := range program {
				if c := w.checker.calls[o.label]; c != nil && !c.over && !c.p.isDead() {
					w.checker.find("%s waits since %v", o, c.began)
				}
			}
		}
	}
	if len(w.checker.wrong) == 0 {
		w.checker.find("the programs have not ended")
	}
}

// leaks checks that nothing is held, nor waited for, when no program uses anything.
func (w *world) leaks() {
	listed, _ := w.rows.List(bg, "")
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sessions != nil {
		w.sessions.leaks()
	}
	for _, l := range listed {
		w.checker.find("%s is left with %s, %v", l.Key, l.Holder.Label, l.Mode)
	}
	w.checker.look(nil)
	for key, tickets := range w.checker.tickets {
		for _, t := range tickets {
			w.checker.find("%s waits still for %s", t.label, key)
		}
	}
}

// seeds runs f for seeds from first on, on all processors, while more says so and f returns true.
func seeds(t *testing.T, first seed, more func(n int) bool, f func(t *testing.T, s seed) bool) {
	var next atomic.Int64
	var failed atomic.Bool
	for i := range runtime.GOMAXPROCS(0) {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			for n := int(next.Add(1)) - 1; more(n) && !failed.Load(); n = int(next.Add(1)) - 1 {
				if !f(t, first+seed(n)) {
					failed.Store(true)
				}
			}
		})
	}
}

func upTo(most int) func(int) bool { return func(n int) bool { return n < most } }

var kinds = []kind{leases, sessionLocks}

// each runs f for each kind of locks, beside each other.
func each(t *testing.T, f func(t *testing.T, of kind)) {
	t.Parallel()
	for _, of := range kinds {
		t.Run(string(of), func(t *testing.T) {
			t.Parallel()
			f(t, of)
		})
	}
}

// holds checks that seeds break no promise.
func holds(t *testing.T, of kind, first seed, more func(n int) bool) {
	seeds(t, first, more, func(t *testing.T, s seed) bool {
		r := simulate(t, s, of, none)
		if len(r.wrong) > 0 {
			t.Errorf("%s\n\n%s\n\nDBLOCK_SEED=%d go test -count=1 -run 'TestSeeds$/%s' ./internal/locksim",
				strings.Join(r.history, "\n"), strings.Join(r.wrong, "\n"), s, strings.ReplaceAll(string(of), " ", "_"))
		}
		return len(r.wrong) == 0
	})
}

// past are seeds that once broke a promise.
var past = map[kind][]seed{
	leases:       {1795631108436061, 1795643084454271, 1795676711446838, 1795706170958963, 1795822346822226, 1795843786388448},
	sessionLocks: {1795631108466867, 1795822504883130, 1795823060890530},
}

// enough is how many seeds the tests run.
const enough = 2000

// TestSeeds: whatever happens, no promise is broken.
func TestSeeds(t *testing.T) {
	each(t, func(t *testing.T, of kind) {
		if s, err := strconv.ParseUint(os.Getenv("DBLOCK_SEED"), 10, 64); err == nil {
			holds(t, of, seed(s), upTo(1))
			return
		}
		for _, s := range past[of] {
			holds(t, of, s, upTo(1))
		}
		holds(t, of, 1, upTo(enough))
	})
}

// TestSeedsFaults is TestSeeds with new seeds. If DBLOCK_SOAK is a duration, each kind of locks has
// new seeds for that long; if it is something else, each has 100,000.
func TestSeedsFaults(t *testing.T) {
	first := seed(time.Now().UnixMicro())
	for _, of := range kinds {
		t.Run(string(of), func(t *testing.T) { // one after the other, because each keeps all processors busy
			more := upTo(enough)
			if soak := os.Getenv("DBLOCK_SOAK"); soak != "" {
				more = upTo(100_000)
				if d, err := time.ParseDuration(soak); err == nil {
					end := time.Now().Add(d)
					more = func(int) bool { return time.Now().Before(end) }
				}
			}
			var ran atomic.Int64
			t.Cleanup(func() { t.Logf("%d seeds from %d on", ran.Load(), first) })
			holds(t, of, first, func(n int) bool {
				if !more(n) {
					return false
				}
				ran.Add(1)
				return true
			})
		})
	}
}

// TestMutations: each protection is needed, and its absence is found.
func TestMutations(t *testing.T) {
	of := map[kind][]mutation{
		leases:       {beat, expiry, margin, handOff, handle, certain, recheck, inTurn, guard},
		sessionLocks: {margin, undo},
	}
	each(t, func(t *testing.T, k kind) {
		for _, m := range of[k] {
			t.Run(string(m), func(t *testing.T) {
				t.Parallel()
				for s := range seed(enough) {
					if r := simulate(t, s+1, k, m); len(r.wrong) > 0 {
						t.Logf("found with seed %d: %s", s+1, r.wrong[0])
						return
					}
				}
				t.Errorf("%d seeds have not found that %s is missing", enough, m)
			})
		}
	})
}

// TestSameSeed: a seed of leases repeats its history, but for a few in which several goroutines of
// a process act in one instant. Which requests of session locks share a statement is decided by the
// scheduler more often.
func TestSameSeed(t *testing.T) {
	t.Parallel()
	var differ atomic.Int64
	t.Cleanup(func() {
		if n := differ.Load(); n > 5 {
			t.Errorf("%d of 50 seeds do not repeat their histories", n)
		}
	})
	seeds(t, 1, upTo(50), func(t *testing.T, s seed) bool {
		one, other := simulate(t, s, leases, none).instants(), simulate(t, s, leases, none).instants()
		if !slices.Equal(one, other) {
			differ.Add(1)
			i := 0
			for i < min(len(one), len(other)) && one[i] == other[i] {
				i++
			}
			t.Logf("seed %d, twice:\n%s\n\n%s", s, strings.Join(one[max(0, i-9):min(i+1, len(one))], "\n"), strings.Join(other[max(0, i-9):min(i+1, len(other))], "\n"))
		}
		return true
	})
}
