package queue

import (
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

const (
	// strandAfter is for how long a job may wait in a process whose handlers are busy. Then it is
	// handed back, for other processes.
	strandAfter = 250 * time.Millisecond

	// strandCheck is how often a worker looks for such jobs.
	strandCheck = strandAfter / 2
)

// ended notes the end of a job, to be sent.
func (s *syncer) ended(e end) {
	s.mu.Lock()
	s.ran(e.claimedJob)
	due := s.out.add(e)
	s.claims.woken = s.claims.woken || e.admitsNext()
	s.mu.Unlock()
	if due || s.w.state.is(stopping) {
		s.signal()
	}
}

// settled takes over that a job has ended in its handler's transaction: there is nothing to send of
// it.
func (s *syncer) settled(j *claimedJob) {
	s.mu.Lock()
	s.out.held--
	s.ran(j)
	s.claims.rate.note(time.Now(), 1)
	s.claims.woken = s.claims.woken || j.Keyed // another one may have become ready
	s.out.recorded(j.claim)
	s.mu.Unlock()
	s.signal()
}

// ran takes note of how long a handler took, and drops the payload: the claim of the job may have
// others that go on; s.mu is held.
func (s *syncer) ran(j *claimedJob) {
	j.Payload = nil
	s.claims.ran(j.took)
}

// releaseUnbegun ends jobs that were not begun, or have yet to be begun again.
func (s *syncer) releaseUnbegun(jobs ...*claimedJob) {
	for _, j := range jobs {
		e := endUnbegun(j)
		if e.outcome == outcomeCancelled {
			s.q.cancelled(s.w.info(j), ErrCancelled)
		}
		s.ended(e)
	}
}

// release hands back jobs for others. This worker claims none ahead until it knows again how many
// jobs end.
func (s *syncer) release(jobs []*claimedJob) {
	if len(jobs) == 0 {
		return
	}
	s.mu.Lock()
	s.claims.holdsBack()
	s.mu.Unlock()
	s.releaseUnbegun(jobs...)
}

// endIncarnation ends the present incarnation: nothing is left to send.
func (s *syncer) endIncarnation() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now != nil {
		s.now.stop()
	}
}

// reportDropped reports the ends that Close did not wait for: the context of its caller had ended.
func (s *syncer) reportDropped() {
	s.mu.Lock()
	n := 0
	for _, ends := range [][]end{s.out.ends, s.out.apart} {
		for i := range ends {
			if ends[i].outcome != outcomeReleased {
				n++
			}
		}
	}
	s.mu.Unlock()
	if n == 0 {
		return
	}
	s.q.trouble("closing", fmt.Errorf("%w: those of %d jobs of queue %q", ErrNotRecorded, n, s.w.o.Queue))
	if f := s.q.o.Observer.Lost; f != nil {
		f(s.w.o.Queue, n)
	}
}

// unbegun is how many jobs wait for handlers, all of which are busy; s.mu is held.
func (s *syncer) unbegun() int { return max(s.out.running()-s.w.o.Concurrency, 0) }

// nextCheck is after how long strand is to look; s.mu is held.
func (s *syncer) nextCheck(now time.Time) time.Duration {
	const long = time.Minute
	if s.unbegun() == 0 {
		return long
	}
	return s.buffer.nextCheck(now)
}

// strand hands back jobs that have waited for handlers.
func (s *syncer) strand(now time.Time) {
	s.mu.Lock()
	due := !s.w.state.is(stopping) && s.nextCheck(now) <= 0
	s.mu.Unlock()
	if due {
		s.release(s.buffer.strand(now))
	}
}

// pause takes over that the queue is paused: what has not begun is handed back.
func (s *syncer) pause() {
	s.mu.Lock()
	s.w.state.change(working, resting)
	s.pauses++
	s.mu.Unlock()
	s.release(s.buffer.drain())
}

// stop has nothing be claimed any more. Handlers hand back what was not begun.
func (s *syncer) stop() {
	s.mu.Lock()
	s.w.state.set(stopping)
	s.buffer.close()
	s.mu.Unlock()
	s.wake()
}

// wake has the worker claim at once.
func (s *syncer) wake() {
	s.mu.Lock()
	s.claims.woken = true
	s.mu.Unlock()
	s.signal()
}

// hint has the worker claim soon.
func (s *syncer) hint() {
	s.mu.Lock()
	s.claims.hints.received(time.Now(), s.out.held, s.w.o.Concurrency)
	s.mu.Unlock()
	s.signal()
}

// signal has one goroutine look whether there is something to sync.
func (s *syncer) signal() {
	for _, kick := range []chan struct{}{s.kick, s.kickApart} {
		select {
		case kick <- struct{}{}:
		default:
		}
	}
}

// signalWaiting has runWaiting look whether an end is to wait for rows.
func (s *syncer) signalWaiting() {
	select {
	case s.kickWaiting <- struct{}{}:
	default:
	}
}

// cancel cancels those of some jobs that this worker has.
func (s *syncer) cancel(jobs map[driver.ID]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out.cancel(jobs)
}

// isOf reports whether a member is the present one of the worker.
func (s *syncer) isOf(m member.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now != nil && s.now.inc.ID == m
}

// jobs is how many jobs run, and how many have ended and are not recorded.
func (s *syncer) jobs() (running, unrecorded int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.running(), s.out.unrecorded()
}
