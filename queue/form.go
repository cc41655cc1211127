package queue

import (
	"math"
	"time"

	"github.com/dblock-go/dblock/queue/internal/driver"
)

// message is one exchange, and what it is about.
type message struct {
	driver.SyncBatch
	of      *tenure
	ends    []end
	again   bool // they were sent before, and got no answer
	closing []*claim
	apart   bool // they do not go with others
	hinted  bool // it asks because another process has notified it of jobs
	pauses  int  // of the queue, which the worker knew of

	broken int64 // connections, before it asks

	patience time.Duration // how long it may take
}

const (
	// endWait is how long an end may wait for others to be sent with.
	endWait = 3 * time.Millisecond

	// claimWait is how long a free handler may wait for others to become free.
	claimWait = 10 * time.Millisecond

	// What form says where there is nothing to send.
	noTenure = -1
	allDone  = -2
)

// flushAt is how many ends don't wait for others.
func (w *worker) flushAt() int { return max(w.o.Batch/2, 1) }

// form makes the next message; nil: there is none yet, and it is to be asked again after wait, or when something has changed.
func (w *worker) form() (m *message, wait time.Duration) {
	now := time.Now()
	w.strand(now)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopping.Load() && w.held == 0 && w.flying == 0 && len(w.closed) == 0 {
		return nil, allDone
	}
	if pause := w.notUntil.Sub(now); pause > 0 {
		return nil, pause
	}
	if m, wait = w.composeApart(now); m != nil {
		w.sends(m)
		return m, 0
	}
	most, pause := w.claimable(now)
	wait = min(wait, pause, w.nextLook(now))
	if most > 0 && (w.now == nil || w.now.ctx.Err() != nil) {
		return nil, noTenure
	}
	if most == 0 && !w.tells(now) {
		if len(w.ends) > 0 {
			wait = min(wait, endWait-now.Sub(w.oldest))
		}
		return nil, max(wait, 0)
	}
	m = &message{of: w.now}
	if most == 0 || w.patience == w.q.o.Timeout {
		m = w.compose()
	} // else the ends do not wait for a claim that may take long
	if m.of == nil {
		m.of = w.now
	}
	if most > 0 && m.of == w.now && !m.again {
		m.Claim = &driver.ClaimRequest{Claim: w.q.ids.next(1)[0], Queue: w.o.Queue, Most: most, Inline: w.inline(), From: w.marks.from(now), Not: w.passing(now), Beat: m.of.life.Beat()}
		m.broken = w.q.driver.Members().Broken()
		w.q.claims.add(m.Claim.Claim)
		w.asking++
		w.coming += most
		w.asked, w.woken, m.hinted, m.pauses = now, false, w.hints.asked(now), w.pauses
	}
	w.sends(m)
	return m, 0
}

// sends notes that a message is under way; w.mu is held.
func (w *worker) sends(m *message) {
	m.patience = w.q.o.Timeout
	if m.Claim != nil {
		m.patience = w.patience
	}
	m.Member = m.of.life.ID
	w.flying++
	w.sent += len(m.ends)
	if len(w.ends) > 0 || len(w.closed) > 0 || len(w.apart) > 0 {
		w.signal() // for the next message
	}
}

// claimable is how many jobs are to be claimed now; 0: none, before so long. w.mu is held.
func (w *worker) claimable(now time.Time) (most int, wait time.Duration) {
	const long = time.Minute
	if w.stopping.Load() || w.asking > 0 && !w.more {
		return 0, long
	}
	capacity := w.o.Concurrency + w.ahead(now)
	room := min(capacity-w.held-w.coming, w.limit, w.readable())
	if room <= 0 {
		return 0, long
	}
	if pause := w.nextAsk().Sub(now); pause > 0 && !w.woken && !w.more {
		return 0, pause
	}
	if pause := claimWait - now.Sub(w.asked); pause > 0 && room < min(capacity/4, w.limit) {
		return 0, pause
	}
	return room, 0
}

// readable is of how many jobs the payloads can be read soon; w.mu is held.
func (w *worker) readable() int {
	if w.bytes <= w.inline() {
		return w.limit
	}
	unread := w.line.unreadBytes()
	if unread == 0 {
		return max(2*w.piece/w.bytes, 1)
	}
	return (2*w.piece - unread) / w.bytes
}

// tells says whether what is to be told is to be told now; w.mu is held.
func (w *worker) tells(now time.Time) bool {
	switch {
	case len(w.ends) == 0:
		return len(w.closed) > 0 && w.flying == 0
	case w.stopping.Load():
		return true
	}
	return len(w.ends) >= w.flushAt() || w.held-w.sent == len(w.ends) || now.Sub(w.oldest) >= endWait
}

// compose takes all ends that can be told together: those of one tenure, and apart what was sent before. w.mu is held.
func (w *worker) compose() *message {
	m, left := w.gather(w.ends, func(*end) bool { return true }, math.MaxInt)
	w.ends = left
	w.closes(m)
	return m
}

// gather makes a message of most ends, at most, that can be told together, and returns those that are left. w.mu is held.
func (w *worker) gather(ends []end, fits func(*end) bool, most int) (m *message, left []end) {
	m = &message{}
	for i, e := range ends {
		if i == 0 {
			m.of, m.again = e.of.of, e.again
			m.ends = make([]end, 0, min(len(ends), most))
		}
		if e.of.of != m.of || e.again != m.again || len(m.ends) == most || !fits(&e) {
			left = append(left, e)
			continue
		}
		m.ends = append(m.ends, e)
	}
	for i := range m.ends {
		m.add(&m.ends[i], w.q.o.History > 0)
	}
	for i := range m.ends {
		c := m.ends[i].of
		if c.here == c.open && !c.closing {
			m.close(c)
		}
		c.here = 0
	}
	return m, left
}

// closes says of which claims nothing is outstanding; w.mu is held.
func (w *worker) closes(m *message) {
	var stay []*claim
	for _, c := range w.closed {
		if m.of == nil {
			m.of = c.of
		}
		if c.of != m.of {
			stay = append(stay, c)
			continue
		}
		m.close(c)
	}
	w.closed = stay
}

// add puts an end into the message, with its history if that is to be kept.
func (m *message) add(e *end, keep bool) {
	e.of.here++
	switch e.what {
	case finished:
		m.Completed = append(m.Completed, e.place())
		if keep {
			m.History = append(m.History, driver.HistoryEntry{Place: e.place(), Outcome: e.outcome(), Reason: e.failure})
		}
	case deferred:
		m.Rescheduled = append(m.Rescheduled, driver.Reschedule{Place: e.place(), Attempt: e.attempt, Failure: e.failure, Records: e.begun, Delay: e.delay})
		if e.back {
			m.Rescheduled[len(m.Rescheduled)-1].ReadyAt = e.ReadyAt
		}
	case buried:
		m.KeepDiscarded = keep
		m.Discarded = append(m.Discarded, driver.Discard{Place: e.place(), Attempt: e.attempt, Failure: e.failure})
	}
}

// close says that nothing is outstanding of a claim.
func (m *message) close(c *claim) {
	c.closing = true
	if len(m.Closed) == 0 || c.broken < m.Broken {
		m.Broken = c.broken
	}
	m.closing = append(m.closing, c)
	m.Closed = append(m.Closed, c.id)
}
