package queue

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dblock-go/dblock/queue/internal/driver"
)

// syncer writes how a worker's jobs ended, and claims more, both in one round trip.
type syncer struct {
	w      *worker
	q      *Queue
	buffer *buffer
	kick   chan struct{} // something has changed that a sync may be due for

	kickApart   chan struct{} // the same, for runApart
	kickWaiting chan struct{} // an end goes apart: holds one for each goroutine of runWaiting

	mu       sync.Mutex
	now      *incarnation
	out      outbox
	claims   claimer
	flying   int       // batches under way
	notUntil time.Time // after a batch that failed
	failing  int
	pauses   int  // of the queue, that this worker knew of
	requests bool // there may be some to cancel jobs of this process
}

const (
	// What form says if there is nothing to send.
	noIncarnation = -1
	allDone       = -2
)

func newSyncer(w *worker) *syncer {
	s := &syncer{
		w: w, q: w.q, buffer: w.buffer, kick: make(chan struct{}, w.o.Syncs), kickApart: make(chan struct{}, 1),
		kickWaiting: make(chan struct{}, max(w.q.driver.RowWaits(), 1)),
	}
	s.out = outbox{
		flushAt: max(w.o.Batch/2, 1), history: w.q.o.History > 0, aside: asideBatches * w.o.Batch,
		timeout: w.q.o.Timeout, claims: make(map[*claim]struct{}), rowWaits: w.q.driver.RowWaits(),
	}
	s.claims = claimer{
		o: &w.o, timeout: w.q.o.Timeout, maxPatience: w.q.db.maxPatience(), limit: w.o.Batch, patience: w.q.o.Timeout, inline: inlineBytes / w.o.Batch, passed: make(passed[driver.ID]),
	}
	return s
}

// run syncs until ctx ends or, once the worker has stopped, nothing is left to send.
func (s *syncer) run(ctx context.Context) {
	next := func() (*syncBatch, time.Duration) {
		b, wait := s.nextBatch()
		if wait != noIncarnation {
			return b, wait
		}
		if err := s.join(ctx); err != nil && ctx.Err() == nil {
			s.failed("joining the database", err)
		}
		return nil, 0
	}
	s.runOn(ctx, s.kick, next, func() {
		s.signal()
		s.signalWaiting()
	})
}

// runApart syncs the ends that go apart. They may meet locked rows again and again, and no claim is
// to wait for that.
func (s *syncer) runApart(ctx context.Context) { s.runOn(ctx, s.kickApart, s.nextApart, s.signal) }

// runWaiting syncs one end after the other that waits for rows in the server's queue. Several
// goroutines do so, each for another end.
func (s *syncer) runWaiting(ctx context.Context) {
	s.runOn(ctx, s.kickWaiting, s.nextWaiting, s.signalWaiting)
}

// runOn syncs what next makes, until that is all done.
func (s *syncer) runOn(ctx context.Context, kick <-chan struct{}, next func() (*syncBatch, time.Duration), signal func()) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		b, wait := next()
		switch {
		case b != nil:
			s.sync(ctx, b)
			continue
		case wait == allDone:
			signal() // for the next one to see it, too
			return
		}
		timer.Reset(wait)
		select {
		case <-kick:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
}

func (s *syncer) nextApart() (b *syncBatch, wait time.Duration) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isDone() {
		return nil, allDone
	}
	if pause := s.notUntil.Sub(now); pause > 0 {
		return nil, pause
	}
	if b, wait = s.out.composeApart(now); b != nil {
		s.sends(b)
	}
	return b, wait
}

func (s *syncer) nextWaiting() (b *syncBatch, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isDone() {
		return nil, allDone
	}
	if b, wait = s.out.composeWaiting(time.Now()); b != nil {
		s.sends(b)
	}
	return b, wait
}

// isDone reports that nothing is left to send, as the worker has stopped; s.mu is held.
func (s *syncer) isDone() bool {
	return s.w.state.is(stopping) && s.out.held == 0 && s.flying == 0 && len(s.out.closed) == 0
}

// join takes the present member of this process.
func (s *syncer) join(ctx context.Context) error {
	inc, err := s.q.member.Current(ctx)
	if err != nil {
		return err
	}
	s.q.reconciler.reconciles(inc)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now != nil && s.now.inc == inc {
		return nil
	}
	if s.now != nil {
		s.now.stop()
	}
	s.now = newIncarnation(inc, s.w.base, s.w.o.Queue)
	return nil
}

// nextBatch makes the next batch; nil: there is none yet, and it is to be asked again after wait,
// or when something has changed.
func (s *syncer) nextBatch() (b *syncBatch, wait time.Duration) {
	now := time.Now()
	s.strand(now)
	s.mu.Lock()
	defer s.mu.Unlock()
	stopping := s.w.state.is(stopping)
	if s.isDone() {
		return nil, allDone
	}
	if pause := s.notUntil.Sub(now); pause > 0 {
		return nil, pause
	}
	most := 0
	wait = s.nextCheck(now)
	if !stopping {
		var pause time.Duration
		most, pause = s.claims.claimable(now, s.out.occupied(), s.w.reader.readable(s.claims.bytes, s.claims.limit))
		wait = min(wait, pause)
	}
	if most > 0 && (s.now == nil || s.now.ctx.Err() != nil) {
		return nil, noIncarnation
	}
	if most == 0 && !s.out.isDue(now, stopping, s.flying > 0) {
		return nil, s.out.waitsFor(now, wait)
	}
	b = &syncBatch{owner: s.now}
	if most == 0 || !s.claims.isPatient() {
		b = s.out.compose()
	}
	if b.owner == nil {
		b.owner = s.now
	}
	if most > 0 && b.owner == s.now && !b.again {
		b.broken = s.q.driver.Members().Broken()
		b.Claim, b.hinted, b.trial = s.claims.request(now, s.q.ids.next(1)[0], most, b.owner.inc.Heartbeat())
		b.pauses = s.pauses
		s.q.reconciler.claims.add(b.Claim.Claim)
	}
	s.sends(b)
	return b, 0
}

// sends notes that a batch is under way; s.mu is held.
func (s *syncer) sends(b *syncBatch) {
	b.patience = s.q.o.Timeout
	if b.Claim != nil {
		b.patience = s.claims.patience
	}
	if len(b.ends) > 0 {
		b.patience = max(b.patience, s.out.patience)
	}
	if b.WaitsForRows {
		b.patience = max(b.patience, rowWaitTime)
	}
	b.Member = b.owner.inc.ID
	s.flying++
	if s.out.sends(b) {
		s.signal()
	}
}

// sync sends one batch and takes over what became of it.
func (s *syncer) sync(ctx context.Context, b *syncBatch) {
	within, cancel := context.WithTimeout(ctx, b.patience)
	defer cancel()
	began := time.Now()
	got, err := s.q.driver.Sync(within, &b.SyncBatch)
	switch {
	case err != nil:
		s.unsent(b, err, ctx.Err() == nil && within.Err() != nil)
		return
	case len(got.Cancelled) > 0:
		s.cancelEnds(b, got.Cancelled)
		return
	}
	s.observe(within, b, got, time.Since(began))
	s.confirmed(b, got.Jobs, got.Void, time.Since(began))
	if s.leavesJobs(b) {
		s.q.notices.announce(s.w.o.Queue)
	}
}

// observe reports what became of a batch.
func (s *syncer) observe(ctx context.Context, b *syncBatch, got driver.SyncResult, took time.Duration) {
	see, queue := &s.q.o.Observer, s.w.o.Queue
	recorded, lost := s.tally(ctx, b, got)
	if see.Recorded != nil && recorded > 0 {
		see.Recorded(queue, recorded, took)
	}
	if lost > 0 {
		s.q.o.Log.Warn("queue: the ends of jobs were refused: their claims were taken away", "queue", queue, "jobs", lost)
		if see.Lost != nil {
			see.Lost(queue, lost)
		}
		b.owner.inc.CheckSoon()
	}
	if b.Claim != nil && see.Claimed != nil {
		see.Claimed(queue, len(got.Jobs), took)
	}
	if got.Void > 0 {
		s.q.trouble("claiming jobs", fmt.Errorf("%d ready rows of queue %q were of no job, and were removed", got.Void, queue))
	}
}

// tally is how many jobs are recorded as done, and how many ends were refused. Of a batch that was
// sent before, some ends may have been accepted then. A completed job whose row is gone is
// recorded, if this process has its member after that: no other process has ended the job. Without
// the member that is unknown, and counts as lost. (Of a job that was rescheduled or discarded then,
// nothing can be learned.)
func (s *syncer) tally(ctx context.Context, b *syncBatch, got driver.SyncResult) (recorded, lost int) {
	if !b.again {
		return got.Completed, b.Ends() - got.Completed - got.Rescheduled - got.Discarded
	}
	if got.Completed == len(b.Completed) {
		return got.Completed, 0
	}
	jobs := make([]driver.ID, len(b.Completed))
	for i, p := range b.Completed {
		jobs[i] = p.Job
	}
	alive := false
	stand, err := s.q.driver.CountJobs(ctx, jobs, false)
	if err == nil {
		alive, err = s.q.driver.Members().Exists(ctx, b.owner.inc.ID) // in this order
	}
	switch {
	case err != nil:
		s.q.trouble("looking for jobs whose ends got no answer", err)
		return got.Completed, 0
	case !alive:
		return got.Completed, len(jobs) - got.Completed
	}
	return len(jobs) - stand, stand
}

// leavesJobs reports that there are jobs to be claimed now that this worker will not claim, as it
// is to end, or as its handlers are busy.
func (s *syncer) leavesJobs(b *syncBatch) bool {
	stopping := s.w.state.is(stopping)
	return slices.ContainsFunc(b.ends, func(e end) bool {
		return e.outcome == outcomeReleased || stopping && (e.admitsNext() || e.outcome == outcomeRescheduled && e.delay == 0)
	})
}

// confirmed takes over a sync that has taken place.
func (s *syncer) confirmed(b *syncBatch, jobs []driver.Job, void int, took time.Duration) {
	now := time.Now()
	slices.SortFunc(jobs, inOrder)
	c := &claim{owner: b.owner, broken: b.broken, open: len(jobs), jobs: make([]claimedJob, len(jobs))}
	for i, j := range jobs {
		c.jobs[i].Job, c.jobs[i].claim = j, c
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing = 0
	s.landed(b)
	s.out.accepted(b, took)
	s.out.held -= len(b.ends)
	ran := 0
	for _, e := range b.ends {
		if e.took > 0 { // else it was handed back
			ran++
		}
		if e.admitsNext() && b.Claim == nil {
			s.claims.woken = true
		}
		s.out.recorded(e.claim)
	}
	s.claims.rate.note(now, ran)
	for _, closed := range b.closing {
		s.q.reconciler.claims.drop(closed.id)
	}
	if b.Claim != nil {
		s.claims.got(b, jobs, void, now, took)
		c.id = b.Claim.Claim
		switch {
		case len(jobs) > 0:
			s.out.claimed(c)
		case void > 0: // it is recorded, and is closed like one whose jobs have ended
			c.open = 1
			s.out.recorded(c)
		default:
			s.q.reconciler.claims.drop(c.id)
		}
	}
	s.begins(b, c)
	s.signal()
}

// begins gives jobs that were claimed to the handlers, or back; s.mu is held. If the queue was
// paused meanwhile they go back. A claim that was sent after that has jobs only if the queue was
// resumed.
func (s *syncer) begins(b *syncBatch, c *claim) {
	if len(c.jobs) > 0 && b.pauses == s.pauses {
		s.w.state.change(resting, working)
	}
	if s.w.state.is(working) {
		s.buffer.add(c.jobs)
		return
	}
	for i := range c.jobs {
		j := &c.jobs[i]
		s.out.add(end{claimedJob: j, outcome: outcomeReleased, attempt: j.Attempt})
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

// landed counts a batch that has ended; s.mu is held.
func (s *syncer) landed(b *syncBatch) {
	s.flying--
	s.out.landed(b)
	if b.Claim != nil {
		s.claims.landed(b.Claim)
	}
}
