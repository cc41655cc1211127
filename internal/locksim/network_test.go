package locksim

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/memlease"
	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// world is one simulation.
type world struct {
	scenario
	seed    seed
	without mutation
	began   time.Time
	server  *memlease.Server
	rows    *memlease.Driver // reads and writes them at once

	mu       sync.Mutex // statements, and what is noted of them, come one by one
	checker  checker
	labels   map[lease.Handle]string
	restart  chan struct{} // closed when the server ends its connections
	down     bool
	broken   int64         // how often it did
	executed time.Duration // when the last statement was
	releases []forgettable

	sessions *sessions // nil: the locks are leases
}

func newWorld(s seed, of kind, without mutation) *world {
	w := &world{
		scenario: newScenario(s, of), seed: s, without: without, began: time.Now(), server: memlease.NewServer(clock.Real{}),
		labels: make(map[lease.Handle]string), restart: make(chan struct{}),
	}
	w.rows = w.server.Open()
	w.checker = newChecker(w)
	if of == sessionLocks {
		w.sessions = &sessions{w: w, locks: make(map[session.ID]*sessionLock)}
	}
	return w
}

func (w *world) now() time.Duration { return time.Since(w.began) }

// dice are those for what happens now.
func (w *world) dice(purpose string) *dice { return w.seed.dice(purpose, w.now()) }

// fate is what becomes of a message and its answer.
type fate struct {
	there, back time.Duration
	lost, mute  bool
	refused     bool          // no connection
	breaks      time.Duration // the client sees the connection end then
}

// A connection that is silent for so long is given up by any client.
const silence = time.Minute

func (w *world) fate(what string) fate {
	d := w.dice(what)
	f := fate{there: d.between(100*time.Microsecond, 5*time.Millisecond), back: d.between(100*time.Microsecond, 5*time.Millisecond), breaks: silence}
	if w.now() >= w.faults {
		return f
	}
	f.lost, f.mute, f.refused = d.permille(w.lost), d.permille(w.lost), d.permille(w.refuse)
	if d.permille(w.late) {
		f.there = d.between(0, 3*w.ttl)
	}
	if d.permille(w.late) {
		f.back = d.between(0, w.ttl)
	}
	if d.permille(500) {
		f.breaks = d.between(0, w.ttl)
	}
	return f
}

var (
	errBroken  = errors.New("the connection broke")
	errRefused = errors.New("the connection was refused")
)

// send sends a statement of a process to the server, where run executes it and says what it did.
func send[R any](ctx context.Context, p *process, call, of string, run func() (R, string)) (R, error) {
	var none R
	w, what := p.w, p.name+" "+call+" "+of
	p.gate(what)
	if ctx.Err() != nil {
		return none, &memlease.Failure{As: sqlerr.Busy, Err: context.Cause(ctx)}
	}
	f := w.fate(what)
	restart, up := w.connection()
	if !up || f.refused || p.isDead() {
		time.Sleep(f.there % (10 * time.Millisecond))
		p.gate(what)
		p.note(what + ": " + errRefused.Error())
		return none, &memlease.Failure{As: sqlerr.Unavailable, Err: errRefused}
	}
	reply := make(chan R, 1)
	go func() {
		time.Sleep(f.there)
		if f.lost || p.isCut() || isClosed(restart) {
			w.note(what + ": lost on the way to the server")
			return
		}
		r := execute(p, what, run)
		time.Sleep(f.back)
		if f.mute || p.isCut() || isClosed(restart) {
			w.note(what + ": the answer is lost")
			return
		}
		reply <- r
	}()
	broken := time.NewTimer(f.breaks)
	defer broken.Stop()
	err := errBroken
	select {
	case r := <-reply:
		p.gate(what)
		return r, nil
	case <-broken.C:
	case <-restart: // not all calls of a process see it in one instant
		time.Sleep(w.dice(what+" breaks").between(0, 5*time.Millisecond))
	case <-p.dead:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	p.gate(what)
	p.note(what + ": no answer: " + err.Error())
	return none, &memlease.Failure{As: sqlerr.Unresolved, Err: err}
}

// execute is a statement at the server.
func execute[R any](p *process, what string, run func() (R, string)) R {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.executed = w.now()
	r, said := run()
	w.checker.note("server: " + what + ": " + said)
	w.checker.look(p)
	return r
}

// note is of what a process sees. What it does when it was killed is not repeated by a seed, and
// reaches no other.
func (p *process) note(line string) {
	if !p.isDead() {
		p.w.note(line)
	}
}

func (w *world) note(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checker.note(line)
}

// connection returns what is closed when the server's present connections end; false: it takes
// none.
func (w *world) connection() (restart chan struct{}, up bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.restart, !w.down
}

// restartServer ends all connections, and takes no new ones for a while.
func (w *world) restartServer(s span) {
	time.Sleep(s.from)
	w.mu.Lock()
	w.down = true
	close(w.restart)
	w.restart = make(chan struct{})
	w.broken++
	w.checker.note("server: ends")
	lag := w.dice("forgets").between(0, flushed)
	for _, r := range w.releases {
		if w.now()-r.at < lag {
			r.forget()
		}
	}
	if w.sessions != nil {
		w.sessions.endAll(func(*conn) bool { return true }, "restarted")
	}
	w.mu.Unlock()
	time.Sleep(s.to - s.from)
	w.mu.Lock()
	w.down = false
	w.checker.note("server: begins")
	w.mu.Unlock()
}

// flushed is after how long a server does not forget a commit.
const flushed = 600 * time.Millisecond

// forgettable is what a statement is about to release.
type forgettable struct {
	at     time.Duration
	forget func()
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// isLocked reports that another transaction has locked the row of a key.
func (w *world) isLocked(key string) bool {
	for _, s := range w.locked[key] {
		if s.has(w.now()) {
			return true
		}
	}
	return false
}
