package member

import (
	"time"

	"github.com/dblock-go/dblock/internal/clock"
)

// A server that crashed without having written its last commits, or a replica that lagged and took
// over, has forgotten them: what was released a moment ago is held again. Such a server has ended
// all connections. So a heartbeat that finds a broken connection, that follows a failed one, or
// that the server counts a second time is a reason to compare what the server has with what the
// process knows. Behind a pooler, connections may last. So that is done from time to time, too.

// recheckEvery is how often it is done without a reason.
const recheckEvery = 10 * time.Minute

// recheck is when that is due. The mutex of its incarnation guards it.
type recheck struct {
	due     bool // the server may have forgotten commits
	running bool
	broken  int64     // connections that were a reason so far
	last    time.Time // when it was done; at first some time before, so that processes do not do it in step
}

func (r *recheck) begin(m *Member) {
	r.broken = m.driver.Broken()
	r.last = m.o.Clock.Now().Add(-clock.Draw(m.o.Clock, recheckEvery))
}

// note takes over whether a heartbeat that was confirmed is a reason.
func (r *recheck) note(m *Member, reason bool) {
	broken := m.driver.Broken()
	r.due = r.due || reason || broken != r.broken || m.o.Clock.Now().Sub(r.last) >= recheckEvery
	r.broken = broken
}

// runRecheck calls what is to be called when a recheck is due.
func (l *Incarnation) runRecheck() {
	l.mu.Lock()
	begins := l.recheck.due && !l.recheck.running && !l.ended
	if begins {
		l.recheck.due, l.recheck.running, l.recheck.last = false, true, l.m.o.Clock.Now()
	}
	l.mu.Unlock()
	if !begins {
		return
	}
	failed := false
	l.m.forEachListener(func(of *Listener) {
		if of.Recheck != nil && of.Recheck(l) != nil {
			failed = true
		}
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recheck.running = false
	l.recheck.due = l.recheck.due || failed
}
