package queue

import (
	"context"
	"time"

	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// A claim that the server refuses may be refused for one job: by a trigger of the host's, for
// example. The claims become smaller, as long as they fail. If a claim of one job fails, the first
// ready job is passed over for a while. If it was another job, the next claim fails, too, and the
// next job is passed over.
const (
	firstPass   = time.Second // it doubles each time
	longestPass = time.Minute
	mostPassed  = 100 // jobs that are passed over at once
)

// pass is a job that is passed over.
type pass struct {
	times int
	until time.Time
}

// claimFailed takes over that the server has refused a claim that came with no ends, and tells
// whether its first job is to be passed over. w.mu is held.
func (w *worker) claimFailed(m *message, is sqlerr.Class) (pass bool) {
	w.refused++
	isConflict := is == sqlerr.Retryable || is == sqlerr.Busy
	if !is.MayBeOfOne() || isConflict && w.refused < conflictsToPart {
		return false
	}
	w.limit = max(m.Claim.Most/2, 1)
	return m.Claim.Most == 1
}

// passOver has the first job that is ready passed over from now on.
func (w *worker) passOver() {
	w.mu.Lock()
	most := len(w.passed) + 1
	w.mu.Unlock()
	var ready []driver.Record
	err := w.q.within(w.q.recorded, func(ctx context.Context) (err error) {
		ready, err = w.q.driver.Admin().List(ctx, &driver.ListRequest{Queue: w.o.Queue, State: driver.Ready, Most: most})
		return err
	})
	if err != nil {
		w.q.trouble("looking for a job that can't be claimed", err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for _, r := range ready {
		p := w.passed[r.ID]
		if p.until.After(now) {
			continue
		}
		if w.passed == nil || len(w.passed) >= mostPassed {
			w.passed = make(map[driver.ID]pass)
		}
		w.passed[r.ID] = pass{p.times + 1, now.Add(pace.Jitter(min(firstPass<<min(p.times, 10), longestPass)))}
		return
	}
}

// passing are the jobs that the next claim passes over. It forgets those whose time was up long
// ago. w.mu is held.
func (w *worker) passing(now time.Time) (jobs []driver.ID) {
	for id, p := range w.passed {
		switch since := now.Sub(p.until); {
		case since < 0:
			jobs = append(jobs, id)
		case since > longestPass:
			delete(w.passed, id)
		}
	}
	return jobs
}
