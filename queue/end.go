package queue

import (
	"strings"
	"time"

	"github.com/dblock-go/dblock/queue/internal/driver"
)

// what became of a job.
type what int

const (
	finished what = iota
	deferred
	buried
)

// end is what is to be told of a job.
type end struct {
	*task
	what    what
	attempt int16
	failure string // of the attempt, or why the job was dropped
	delay   time.Duration
	back    bool // where it is deferred: it keeps its place in the order
	dropped bool // where it is finished: it was cancelled
	again   bool // it was sent before, and got no answer
	apart   apart
}

func (e *end) place() driver.Place { return driver.Place{Claim: e.of.id, Job: e.ID, Keyed: e.Keyed} }

// letsIn tells that another job may become ready with this end, which is to be claimed in the same message.
func (e *end) letsIn() bool { return e.Keyed && e.what != deferred }

// outcome is what history says of a finished job.
func (e *end) outcome() int16 {
	if e.dropped {
		return driver.OutcomeCancelled
	}
	return driver.OutcomeCompleted
}

// maxFailureBytes is how much is kept of an error.
const maxFailureBytes = 8 << 10

// failure is an error as text that every engine can store.
func failure(err error) string {
	s := err.Error()
	if len(s) > maxFailureBytes {
		s = s[:maxFailureBytes]
	}
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	if s == "" {
		return "(an error without a text)"
	}
	return s
}

// ended notes the end of a job, to be sent.
func (w *worker) ended(e end) {
	w.mu.Lock()
	if len(w.ends) == 0 {
		w.oldest = time.Now()
	}
	w.ran(e.task)
	w.ends = append(w.ends, e)
	w.woken = w.woken || e.letsIn()
	n, last := len(w.ends), w.held-w.sent == len(w.ends)
	w.mu.Unlock()
	if n == 1 || last || n == w.flushAt() || w.stopping.Load() {
		w.signal()
	}
}

// ran takes note of how long a handler took, and drops the payload: the claim of the job may have others that go on; w.mu is held.
func (w *worker) ran(t *task) {
	t.Payload = nil
	switch {
	case t.took == 0:
	case w.pace == 0:
		w.pace = t.took
	default:
		w.pace += (t.took - w.pace) / 16
	}
}

// handBack ends jobs that were not begun, or have yet to be begun again.
func (w *worker) handBack(tasks ...*task) {
	for _, t := range tasks {
		if !t.cancelled.Load() {
			w.ended(handedBack(t))
			continue
		}
		w.q.cancelled(w.info(t), ErrCancelled)
		w.ended(end{task: t, what: finished, dropped: true, failure: ErrCancelled.Error()})
	}
}

// cancelEnds takes over an exchange that has not taken place, as others want some of its jobs cancelled: it is sent again, and drops them.
func (w *worker) cancelEnds(m *message, jobs []driver.ID) {
	asked := setOf(jobs)
	var dropped []*task
	w.mu.Lock()
	w.landed(m)
	for i := range m.ends {
		if e := &m.ends[i]; asked[e.ID] {
			e.cancelled.Store(true)
			e.what, e.dropped, e.failure = finished, true, ErrCancelled.Error()
			dropped = append(dropped, e.task)
		}
	}
	if m.apart {
		w.apart = append(w.apart, m.ends...)
	} else {
		w.ends = append(m.ends, w.ends...)
	}
	w.notClosed(m)
	w.requests = true // to be deleted once the jobs have ended
	w.mu.Unlock()
	if m.Claim != nil {
		w.q.claims.drop(m.Claim.Claim)
	}
	for _, t := range dropped {
		w.q.cancelled(w.info(t), ErrCancelled)
	}
	w.signal()
}

func setOf(jobs []driver.ID) map[driver.ID]bool {
	set := make(map[driver.ID]bool, len(jobs))
	for _, job := range jobs {
		set[job] = true
	}
	return set
}

func handedBack(t *task) end {
	return end{task: t, what: deferred, attempt: t.Attempt, back: true}
}

// settled takes over that a job has ended in its handler's transaction: there is nothing to tell of it.
func (w *worker) settled(t *task) {
	w.mu.Lock()
	w.held--
	w.ran(t)
	w.rate.note(time.Now(), 1)
	w.woken = w.woken || t.Keyed // another one may have become ready
	w.over(t.of)
	w.mu.Unlock()
	w.signal()
}

// over takes over that a job of a claim has ended; w.mu is held.
func (w *worker) over(c *claim) {
	c.open--
	if c.open > 0 {
		return
	}
	delete(w.claims, c)
	if !c.closing {
		w.closed = append(w.closed, c)
	}
}

// rate is how many jobs a second have ended lately.
type rate struct {
	since  time.Time
	ends   int
	second float64
}

// note counts ends that were confirmed.
func (r *rate) note(now time.Time, ends int) {
	r.ends += ends
	took := now.Sub(r.since)
	if took < 20*time.Millisecond {
		return
	}
	if took > time.Second { // what was before so long a pause says nothing
		took, r.second = time.Second, 0
	}
	r.second = (r.second + float64(r.ends)/took.Seconds()) / 2
	r.since, r.ends = now, 0
}

// in is how many that are in so long. If none were confirmed for longer than patience, it is fewer and fewer.
func (r *rate) in(now time.Time, d, patience time.Duration) int {
	second := r.second
	if pause := now.Sub(r.since); pause > patience {
		second = min(second, float64(r.ends)/pause.Seconds())
	}
	return int(second * d.Seconds())
}
