package queue

import (
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/pace"
)

// A job whose kind has no handler here is left to other processes. It is put off for a quarter of its age, within these bounds, give or take a
// half.
const (
	leaveShare = 4
	leaveLeast = time.Second
	leaveMost  = time.Minute

	tellUnknown = time.Minute // how often Observer.Trouble is told of a kind, at most
	mostUnknown = 1000        // kinds of which it is known when that was

	// yieldFor is for how long a worker that left a job looks for promoted jobs only when it polls. Else the process that promotes jobs
	// would be the first each time, and leave them again.
	yieldFor = 2 * leaveMost
)

// leave puts a job off whose kind has no handler here. That is no attempt.
func (w *worker) leave(t *task) {
	if t.cancelled.Load() {
		w.handBack(t)
		return
	}
	if w.q.tellsUnknown(t.Kind, time.Now()) {
		w.q.trouble("leaving jobs to other processes",
			fmt.Errorf("%w: %q, of job %s: register it with Handle, or give such jobs a queue of their own", ErrUnknownKind, t.Kind, ID(t.ID)))
	}
	again := pace.Jitter(min(max(time.Since(t.EnqueuedAt)/leaveShare, leaveLeast), leaveMost))
	if f := w.q.o.Observer.Snoozed; f != nil {
		f(w.info(t), again)
	}
	w.mu.Lock()
	w.left = time.Now()
	w.mu.Unlock()
	w.ended(end{task: t, what: deferred, attempt: t.Attempt, delay: again})
}

// leavesJobs tells whether the worker has left jobs to other processes lately.
func (w *worker) leavesJobs() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.left.IsZero() && time.Since(w.left) < yieldFor
}

// tellsUnknown tells whether it is to be told that a kind has no handler.
func (q *Queue) tellsUnknown(kind string, now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if at, told := q.unknown[kind]; told && now.Sub(at) < tellUnknown {
		return false
	}
	if len(q.unknown) >= mostUnknown {
		clear(q.unknown)
	}
	q.unknown[kind] = now
	return true
}
