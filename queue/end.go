package queue

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// incarnation is one member of this process, as a worker has it: the contexts of its jobs end with
// it.
type incarnation struct {
	inc  *member.Incarnation
	ctx  context.Context
	stop func() // unregisters it from the end of its incarnation
}

func newIncarnation(inc *member.Incarnation, base context.Context, queue string) *incarnation {
	ctx, end := context.WithCancelCause(base)
	stop := inc.OnEnd(func(why dblock.Reason) { end(&dblock.LostError{Key: queue, Reason: why}) })
	return &incarnation{inc: inc, ctx: ctx, stop: stop}
}

// claim is the jobs that were claimed at once. The mutex of the syncer guards it from jobs on.
type claim struct {
	id     driver.ID
	owner  *incarnation
	broken int64 // connections, before it was made

	jobs    []claimedJob
	open    int  // jobs whose end has not been confirmed
	here    int  // of them: in the batch that is being composed
	closing bool // the batch that closes it is under way, or was confirmed
}

// claimedJob is a job that was claimed.
type claimedJob struct {
	driver.Job
	claim *claim
	came  time.Time     // to where handlers take it
	took  time.Duration // its handler; 0: it was not begun

	begun bool // its attempt may be recorded as begun

	cancelled atomic.Bool                // an operator wants it dropped
	context   atomic.Pointer[jobContext] // of its handler; nil: it has not begun
}

func (j *claimedJob) position() driver.Position {
	return driver.Position{Claim: j.claim.id, Job: j.ID, Keyed: j.Keyed}
}

// outcome is what becomes of a job with one attempt. See the diagram in doc.go.
type outcome int

const (
	outcomeCompleted   outcome = iota
	outcomeCancelled           // dropped
	outcomeRescheduled         // for later
	outcomeReleased            // ready again, in its place in the order
	outcomeDiscarded           // kept with the dead
)

// end is what is to be recorded of a job.
type end struct {
	*claimedJob
	outcome outcome
	attempt int16         // how many the job has had then
	failure string        // of the attempt, or why the job was cancelled
	delay   time.Duration // if it is rescheduled
	again   bool          // it was sent before, and got no answer
	apart   apart
}

// admitsNext reports that another job may become ready with this end, which is to be claimed in the
// same batch.
func (e *end) admitsNext() bool { return e.Keyed && !e.staysQueued() }

// staysQueued reports that the job has not ended for good.
func (e *end) staysQueued() bool {
	return e.outcome == outcomeRescheduled || e.outcome == outcomeReleased
}

// endUnbegun ends a job that was not begun, or has yet to be begun again.
func endUnbegun(j *claimedJob) end {
	if j.cancelled.Load() {
		return end{claimedJob: j, outcome: outcomeCancelled, attempt: j.Attempt, failure: ErrCancelled.Error()}
	}
	return end{claimedJob: j, outcome: outcomeReleased, attempt: j.Attempt}
}

// syncBatch is one sync with the database, and what it is about.
type syncBatch struct {
	driver.SyncBatch
	owner   *incarnation
	ends    []end
	again   bool // they were sent before, and got no answer
	closing []*claim
	apart   bool      // they do not go with others
	hinted  bool      // it claims because another process has notified this one of jobs
	trial   driver.ID // a job that it claims though the server refused it before; zero: none
	pauses  int       // of the queue, which the worker knew of

	broken   int64         // connections, before it claims
	patience time.Duration // how long it may take
}

// add puts an end into the batch, with its history if that is kept.
func (b *syncBatch) add(e *end, history bool) {
	switch e.outcome {
	case outcomeCompleted, outcomeCancelled:
		b.Completed = append(b.Completed, e.position())
		if history {
			b.History = append(b.History, historyOf(e.position(), e.outcome, e.attempt, e.failure))
		}
	case outcomeRescheduled, outcomeReleased:
		r := driver.Reschedule{Position: e.position(), Attempt: e.attempt, Failure: e.failure, Records: e.begun, Delay: e.delay}
		if e.outcome == outcomeReleased {
			r.ReadyAt = e.ReadyAt
		}
		b.Rescheduled = append(b.Rescheduled, r)
	case outcomeDiscarded:
		b.KeepDiscarded = history
		b.Discarded = append(b.Discarded, driver.Discard{Position: e.position(), Attempt: e.attempt, Failure: e.failure})
	}
}

func historyOf(p driver.Position, o outcome, attempt int16, reason string) driver.HistoryEntry {
	if o == outcomeCancelled {
		return driver.HistoryEntry{Position: p, Outcome: driver.OutcomeCancelled, Attempt: attempt, Reason: reason}
	}
	return driver.HistoryEntry{Position: p, Outcome: driver.OutcomeCompleted, Attempt: attempt}
}

// close says that nothing is outstanding of a claim.
func (b *syncBatch) close(c *claim) {
	c.closing = true
	if len(b.Closed) == 0 || c.broken < b.Broken {
		b.Broken = c.broken
	}
	b.closing = append(b.closing, c)
	b.Closed = append(b.Closed, c.id)
}

// maxFailureBytes is how much is kept of an error.
const maxFailureBytes = 8 << 10

// failure is an error as text that every server can store.
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

func setOf(jobs []driver.ID) map[driver.ID]bool {
	set := make(map[driver.ID]bool, len(jobs))
	for _, job := range jobs {
		set[job] = true
	}
	return set
}
