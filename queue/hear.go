package queue

import (
	"context"
	"time"

	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/queue/internal/engine"
)

// hearEvery is how often a worker that has jobs looks whether somebody wants some of them cancelled, though it was told of nothing.
const hearEvery = time.Second

// hear cancels what others want to be cancelled, until ctx ends.
func (w *worker) hear(ctx context.Context) {
	unknown := make(map[engine.ID]bool) // jobs that were not found when word of them was first heard
	for w.listensFor(ctx, jitter(hearEvery)) {
		w.mu.Lock()
		now, held := w.now, w.held
		w.mu.Unlock()
		if now == nil || held == 0 {
			continue
		}
		m := now.life.ID
		err := w.q.within(ctx, func(ctx context.Context) error {
			jobs, err := w.q.engine.Cancels(ctx, m)
			if err != nil || len(jobs) == 0 {
				return err
			}
			heard := w.q.cancelled(jobs, unknown)
			if len(heard) == 0 {
				return nil
			}
			return w.q.engine.DropCancels(ctx, m, heard)
		})
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

// leftWord has the worker look what is to be cancelled, where the word was left for this process.
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

// cancelled ends jobs of whichever worker of this process, and returns those of which nothing more is to be heard. One that
// nobody has may have been claimed a moment ago, and is looked for once more.
func (q *Queue) cancelled(jobs []engine.ID, unknown map[engine.ID]bool) (heard []engine.ID) {
	q.mu.RLock()
	defer q.mu.RUnlock()
	for _, job := range jobs {
		found := false
		for w := range q.workers {
			found = w.cancel(job) || found
		}
		if found || unknown[job] {
			delete(unknown, job)
			heard = append(heard, job)
		} else {
			unknown[job] = true
		}
	}
	return heard
}

// cancel ends one job, where this worker has it.
func (w *worker) cancel(job engine.ID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.claims {
		for i := range c.tasks {
			if t := &c.tasks[i]; t.ID == job {
				t.cancelled.Store(true)
				if ctx := t.context.Load(); ctx != nil {
					ctx.end(ErrCancelled)
				}
				return true
			}
		}
	}
	return false
}
