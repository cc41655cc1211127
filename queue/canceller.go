package queue

import (
	"context"
	"time"

	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// cancelPoll is how often a worker that has jobs looks whether some of them are to be cancelled, or
// their queue is paused, though it was not notified.
const cancelPoll = time.Second

// canceller looks what operators want of a worker: that its jobs are cancelled, and its queue is
// paused.
type canceller struct {
	w    *worker
	word chan struct{} // jobs of this process are to be cancelled
}

// run cancels jobs, and hands back what has not begun if the queue is paused, until ctx ends.
func (c *canceller) run(ctx context.Context) {
	q, s := c.w.q, c.w.sync
	for c.waits(ctx, pace.Jitter(cancelPoll)) {
		s.mu.Lock()
		now, idle, unbegun := s.now, s.out.held == 0 && !s.requests, s.unbegun()
		s.requests = false
		s.mu.Unlock()
		if now == nil || idle {
			continue
		}
		open := true
		err := q.db.within(ctx, func(ctx context.Context) (err error) {
			open, err = c.cancelRequested(ctx, now.inc.ID)
			return err
		})
		if err != nil && ctx.Err() == nil {
			q.trouble("looking for jobs that are to be cancelled", err)
		}
		s.mu.Lock()
		s.requests = s.requests || open
		s.mu.Unlock()
		if unbegun == 0 {
			continue
		}
		paused := false
		err = q.db.within(ctx, func(ctx context.Context) (err error) {
			paused, err = q.driver.Admin().IsPaused(ctx, c.w.o.Queue)
			return err
		})
		if paused {
			s.pause()
		}
		if err != nil && ctx.Err() == nil {
			q.trouble("looking whether a queue is paused", err)
		}
	}
}

// waits waits for d, or until word was left, while ctx lives.
func (c *canceller) waits(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-c.word:
	case <-timer.C:
	}
	return true
}

// request leaves word.
func (c *canceller) request() {
	select {
	case c.word <- struct{}{}:
	default:
	}
}

// cancelRequested reads all requests to cancel jobs of a member, and reports whether there are any.
// It cancels the jobs in this process. A request stays until its job has ended: if the process dies
// before that, the rescue needs it.
func (c *canceller) cancelRequested(ctx context.Context, m member.ID) (open bool, err error) {
	for after := (driver.ID{}); ; {
		requests, err := c.w.q.driver.Maintenance().CancelRequests(ctx, m, after)
		if err != nil {
			return true, err
		}
		var ended []driver.ID
		stand := make(map[driver.ID]bool)
		for _, r := range requests {
			if r.Active {
				stand[r.Job] = true
			} else {
				ended = append(ended, r.Job)
			}
			open, after = true, r.Job
		}
		if len(stand) > 0 {
			c.w.q.notices.cancel(stand)
		}
		if len(ended) > 0 {
			_, err = c.w.q.driver.Maintenance().Prune(ctx, &driver.PruneRequest{Kind: driver.JobRequests, Member: m, Jobs: ended})
		}
		if err != nil || len(requests) < driver.CancelStep {
			return open, err
		}
	}
}
