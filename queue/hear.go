package queue

import (
	"context"
	"time"

	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// hearEvery is how often a worker that has jobs looks whether some of them are to be cancelled, or their queue is paused, though it was told of
// nothing.
const hearEvery = time.Second

// hear cancels what others want to be cancelled, and hands back what has not begun if the queue is paused, until ctx ends.
func (w *worker) hear(ctx context.Context) {
	for w.listensFor(ctx, pace.Jitter(hearEvery)) {
		w.mu.Lock()
		now, idle := w.now, w.held == 0 && !w.requests
		w.requests = false
		w.mu.Unlock()
		if now == nil || idle {
			continue
		}
		if err := w.looksForPause(ctx); err != nil && ctx.Err() == nil {
			w.q.trouble("looking whether a queue is paused", err)
		}
		open := true
		err := w.q.within(ctx, func(ctx context.Context) (err error) {
			open, err = w.q.cancelRequested(ctx, now.life.ID)
			return err
		})
		w.mu.Lock()
		w.requests = w.requests || open
		w.mu.Unlock()
		if err != nil && ctx.Err() == nil {
			w.q.trouble("looking for jobs that are to be cancelled", err)
		}
	}
}

// listensFor waits for d, or until word was left, while ctx lives.
func (w *worker) listensFor(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-w.word:
	case <-timer.C:
	}
	return true
}

// leftWord has the worker look what is to be cancelled, if the word was left for this process.
func (w *worker) leftWord(of member.ID) {
	w.mu.Lock()
	ours := w.now != nil && w.now.life.ID == of
	w.mu.Unlock()
	if !ours {
		return
	}
	select {
	case w.word <- struct{}{}:
	default:
	}
}

func (q *Queue) within(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, q.o.Timeout)
	defer cancel()
	return f(ctx)
}

// cancelRequested reads all requests to cancel jobs of a member, and tells whether there are any. It cancels the jobs in this process. A
// request stays until its job has ended: if the process dies before that, the rescue needs it.
func (q *Queue) cancelRequested(ctx context.Context, m member.ID) (open bool, err error) {
	for after := (driver.ID{}); ; {
		requests, err := q.driver.Maintenance().CancelRequests(ctx, m, after)
		if err != nil {
			return true, err
		}
		var ended []driver.ID
		stand := make(map[driver.ID]bool)
		for _, r := range requests {
			if r.Stands {
				stand[r.Job] = true
			} else {
				ended = append(ended, r.Job)
			}
			open, after = true, r.Job
		}
		if len(stand) > 0 {
			q.cancelHere(stand)
		}
		if len(ended) > 0 {
			_, err = q.driver.Maintenance().Prune(ctx, &driver.PruneRequest{What: driver.JobRequests, Member: m, Jobs: ended})
		}
		if err != nil || len(requests) < driver.CancelStep {
			return open, err
		}
	}
}

// cancelHere cancels jobs of whichever workers of this process have them.
func (q *Queue) cancelHere(jobs map[driver.ID]bool) {
	q.mu.RLock()
	defer q.mu.RUnlock()
	for w := range q.workers {
		w.cancel(jobs)
	}
}

// cancel cancels those of some jobs that this worker has.
func (w *worker) cancel(jobs map[driver.ID]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.claims {
		for i := range c.tasks {
			if t := &c.tasks[i]; jobs[t.ID] {
				t.cancelled.Store(true)
				if ctx := t.context.Load(); ctx != nil {
					ctx.end(ErrCancelled)
				}
			}
		}
	}
}
