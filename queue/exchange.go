package queue

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// exchanges tells the database how jobs ended and asks it for more, both in one round trip, until ctx ends or, once the worker has
// stopped, nothing is left to tell.
func (w *worker) exchanges(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		m, wait := w.form()
		switch {
		case m != nil:
			w.exchange(ctx, m)
			continue
		case wait == noTenure:
			if _, err := w.tenure(ctx); err != nil && ctx.Err() == nil {
				w.failed("joining the database", err)
			}
			continue
		case wait == allDone:
			w.signal() // for the next one to see it, too
			return
		}
		timer.Reset(wait)
		select {
		case <-w.kick:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
}

// exchange sends one message and takes over what became of it.
func (w *worker) exchange(ctx context.Context, m *message) {
	within, cancel := context.WithTimeout(ctx, m.patience)
	defer cancel()
	began := time.Now()
	got, err := w.q.driver.Sync(within, &m.SyncBatch)
	if err != nil {
		w.unsent(m, err, m.Claim != nil && ctx.Err() == nil && within.Err() != nil)
		return
	}
	if len(got.Cancelled) > 0 {
		w.cancelEnds(m, got.Cancelled)
		return
	}
	took := time.Since(began)
	recorded, lost := w.tally(within, m, got)
	if f := w.q.o.Observer.Recorded; f != nil && recorded > 0 {
		f(w.o.Queue, recorded, took)
	}
	if lost > 0 {
		w.q.o.Log.Warn("queue: the ends of jobs were refused: their claims were taken away", "queue", w.o.Queue, "jobs", lost)
		if f := w.q.o.Observer.Lost; f != nil {
			f(w.o.Queue, lost)
		}
		m.of.life.Suspect()
	}
	if m.Claim != nil {
		if f := w.q.o.Observer.Claimed; f != nil {
			f(w.o.Queue, len(got.Jobs), took)
		}
	}
	if got.Void > 0 {
		w.q.trouble("claiming jobs", fmt.Errorf("%d ready rows of queue %q were of no job, and were removed", got.Void, w.o.Queue))
	}
	w.confirmed(m, got.Jobs, got.Void, time.Since(began))
	if w.leaves(m) {
		w.q.announce(w.o.Queue)
	}
}

// leaves tells that there are jobs to be taken now that this worker will not take, as it is to end, or as its handlers are busy.
func (w *worker) leaves(m *message) bool {
	stopping := w.stopping.Load()
	return slices.ContainsFunc(m.ends, func(e end) bool {
		return e.what == deferred && e.back || stopping && (e.letsIn() || e.what == deferred && e.delay == 0)
	})
}

// tally is how many jobs are recorded as done, and how many ends were refused. Of a message that was
// sent before, some ends may have been accepted then. A finished job whose row is gone is recorded,
// if this process has its member after that: no other process has ended the job. Without the member
// that is unknown, and counts as lost. (Of a job that was deferred or buried then, nothing can be
// learned.)
func (w *worker) tally(ctx context.Context, m *message, got driver.SyncResult) (recorded, lost int) {
	if !m.again {
		return got.Completed, m.Ends() - got.Completed - got.Rescheduled - got.Discarded
	}
	if got.Completed == len(m.Completed) {
		return got.Completed, 0
	}
	jobs := make([]driver.ID, len(m.Completed))
	for i, p := range m.Completed {
		jobs[i] = p.Job
	}
	alive := false
	standing, err := w.q.driver.CountJobs(ctx, jobs, false)
	if err == nil {
		alive, err = w.q.driver.Members().Stands(ctx, m.of.life.ID) // in this order
	}
	switch {
	case err != nil:
		w.q.trouble("looking for jobs whose ends got no answer", err)
		return got.Completed, 0
	case !alive:
		return got.Completed, len(jobs) - got.Completed
	}
	return len(jobs) - standing, standing
}

// confirmed takes over an exchange that has taken place.
func (w *worker) confirmed(m *message, jobs []driver.Job, void int, took time.Duration) {
	now := time.Now()
	slices.SortFunc(jobs, inOrder)
	tasks := make([]task, len(jobs))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failing = 0
	w.landed(m)
	w.held -= len(m.ends)
	ran := 0
	for _, e := range m.ends {
		if e.took > 0 { // else it was handed back
			ran++
		}
		if e.letsIn() && m.Claim == nil {
			w.woken = true
		}
		w.over(e.of)
	}
	w.rate.note(now, ran)
	if m.Claim != nil {
		w.refused = 0
		if m.hinted {
			w.hints.got(len(jobs))
		}
		w.claimTook(m.Claim, took)
		w.claimed += (took - w.claimed) / 8
		w.more = len(jobs)+void == m.Claim.Most
		w.marks.saw(m.Claim, jobs, now, took)
		if void > 0 {
			w.marks.whole = time.Time{} // the marks are of what has jobs
		}
		if !w.more {
			w.nextPoll = now.Add(pace.Jitter(w.o.Poll))
		}
	}
	for _, c := range m.closing {
		w.q.claims.drop(c.id)
	}
	c := &claim{of: m.of, broken: m.broken, open: len(jobs), tasks: tasks}
	switch {
	case len(jobs) > 0:
		c.id = m.Claim.Claim
		w.claims[c] = struct{}{}
	case void > 0: // it is recorded, and is closed like one whose jobs have ended
		c.id, c.open = m.Claim.Claim, 1
		w.over(c)
	case m.Claim != nil:
		w.q.claims.drop(m.Claim.Claim)
	}
	w.held += len(jobs)
	bytes := 0
	for i, j := range jobs {
		tasks[i].Job, tasks[i].of = j, c
		bytes += j.Bytes
	}
	if len(jobs) > 0 {
		w.bytes = bytes / len(jobs)
	}
	if w.stopping.Load() || w.resting(m, len(jobs)) {
		if len(w.ends) == 0 {
			w.oldest = now
		}
		for i := range tasks {
			w.ends = append(w.ends, handedBack(&tasks[i]))
		}
	} else {
		w.line.add(tasks)
	}
	w.signal()
}

// claimTook has the next claims ask for as many jobs, and take as long, as claims can and do; w.mu is held.
func (w *worker) claimTook(ask *driver.ClaimRequest, took time.Duration) {
	if took < w.q.o.Timeout/4 {
		w.limit = min(2*w.limit, w.o.Batch)
	}
	if ask.From == nil {
		w.patience = min(max(2*took, w.q.o.Timeout), w.q.mostPatience())
	}
}

// inOrder sorts jobs as they are to be begun.
func inOrder(a, b driver.Job) int {
	if a.Priority != b.Priority {
		return int(a.Priority) - int(b.Priority)
	}
	if c := a.ReadyAt.Compare(b.ReadyAt); c != 0 {
		return c
	}
	return slices.Compare(a.ID[:], b.ID[:])
}

// unsent takes over an exchange that has not taken place, or of which nobody knows whether it has.
func (w *worker) unsent(m *message, err error, late bool) {
	is := w.q.classify(err)
	unknown := is == sqlerr.Unresolved
	apart, locked := w.goesApart(m, err)
	tell := !apart
	w.mu.Lock()
	w.landed(m)
	for i := range m.ends {
		m.ends[i].again = m.ends[i].again || unknown
	}
	back := m.ends
	if apart {
		tell = len(m.ends) == 1 && m.ends[0].apart.rests%restsToTell == restsToTell-1
		back = w.setApart(m, locked)
		if !locked {
			w.slows(err)
		}
	}
	w.ends = append(back, w.ends...)
	w.notClosed(m)
	switch {
	case late:
		w.limit = max(m.Claim.Most/2, 1)
		w.patience = min(morePatience*w.patience, w.q.mostPatience())
		if m.Claim.From == nil {
			w.marks.late(time.Now())
		}
	case m.Claim != nil:
		w.marks.forget() // what it would have claimed may stand before them
	}
	pass := m.Claim != nil && len(m.ends) == 0 && w.claimFailed(m, is)
	again := is == sqlerr.Retryable && w.refused < conflictsToPart || apart
	w.mu.Unlock()
	if pass {
		w.passOver()
	}
	if m.Claim != nil {
		w.q.claims.drop(m.Claim.Claim)
		if unknown {
			w.q.doubt(m.of.life, firstLook)
		}
	}
	if tell && apart {
		w.q.trouble("recording the end of a job", err)
	}
	if again {
		w.signal()
		return
	}
	w.failed("exchanging jobs with the database", err)
}

// morePatience is how much longer a claim may take after one that was cut off: what that had passed over is passed over again.
const morePatience = 4

// notClosed takes over that a message has closed no claims, and claimed nothing; w.mu is held.
func (w *worker) notClosed(m *message) {
	for _, c := range m.closing {
		c.closing = false
		if c.open == 0 {
			w.closed = append(w.closed, c)
		}
	}
	w.woken = w.woken || m.Claim != nil
}

// landed counts an exchange that has ended; w.mu is held.
func (w *worker) landed(m *message) {
	w.flying--
	if m.apart {
		w.apartFlying = false
	}
	w.sent -= len(m.ends)
	if m.Claim != nil {
		w.asking--
		w.coming -= m.Claim.Most
	}
}

// failed has the next exchange wait.
func (w *worker) failed(doing string, err error) {
	w.mu.Lock()
	w.failing++
	w.notUntil = time.Now().Add(failPause(w.failing))
	w.mu.Unlock()
	w.q.trouble(doing, err)
	w.signal()
}

// failPause is how long the next message waits after a number of consecutive errors.
func failPause(failed int) time.Duration {
	return pace.Jitter(min(10*time.Millisecond<<min(failed, 10), time.Second))
}
