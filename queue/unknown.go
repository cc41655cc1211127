package queue

import (
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/pace"
)

// A job whose kind has no handler here is left to other processes. It is put off for an eighth of
// its age, within these bounds, give or take a half.
const (
	postponeShare = 8
	minPostpone   = time.Second
	maxPostpone   = time.Minute

	reportUnknown = time.Minute // how often a kind is reported to Observer.Trouble, at most
	maxUnknown    = 1000        // kinds of which it is known when that was

	// yieldFor is for how long a worker that left a job looks for promoted jobs only when it polls.
	// Else the process that promotes jobs would be the first each time, and leave them again.
	yieldFor = 2 * maxPostpone
)

// postpone puts a job off whose kind has no handler here. That is no attempt.
func (w *worker) postpone(j *claimedJob) {
	if j.cancelled.Load() {
		w.sync.releaseUnbegun(j)
		return
	}
	if w.q.handlers.reportsUnknown(j.Kind, time.Now()) {
		w.q.trouble("leaving jobs to other processes",
			fmt.Errorf("%w: %q, of job %s: register it with Handle, or give such jobs a queue of their own", ErrUnknownKind, j.Kind, ID(j.ID)))
	}
	again := pace.Jitter(min(max(time.Since(j.EnqueuedAt)/postponeShare, minPostpone), maxPostpone))
	if f := w.q.o.Observer.Snoozed; f != nil {
		f(w.info(j), again)
	}
	w.postponedAt.Store(time.Now().UnixNano())
	w.sync.ended(end{claimedJob: j, outcome: outcomeRescheduled, attempt: j.Attempt, delay: again})
}

// leavesJobs reports whether the worker has left jobs to other processes lately.
func (w *worker) leavesJobs() bool {
	left := w.postponedAt.Load()
	return left != 0 && time.Since(time.Unix(0, left)) < yieldFor
}
