package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// failsToPause is how many consecutive errors of ends that go apart there are before the next batch
// waits.
const failsToPause = 16

// moreSuspects is how many jobs are read at once to find those that the server refuses.
const moreSuspects = 100

// unsent takes over a sync that has not taken place, or of which that is unknown. cut: its time was
// up.
func (s *syncer) unsent(b *syncBatch, err error, cut bool) {
	is := s.q.db.classify(err)
	unknown := is == sqlerr.Unresolved
	var named *driver.LockedError
	passed := errors.As(err, &named) && len(named.Jobs) == 0 // the lock was had a moment later
	apart, locked := s.goesApart(b, is, err, passed)
	reports := false
	s.mu.Lock()
	s.landed(b)
	if cut && !s.q.driver.Exhausted() {
		s.out.cut(b)
	}
	for i := range b.ends {
		b.ends[i].again = b.ends[i].again || unknown
	}
	back := b.ends
	if apart {
		first := &b.ends[0].apart
		reports = (len(b.ends) == 1 || first.key > 0) && first.rests%restsToReport == restsToReport-1
		if named != nil && !passed {
			back = s.out.setLockedApart(b, named.Jobs)
		} else {
			back = s.out.setApart(b, locked)
		}
		s.signalWaiting()
		if !locked {
			s.slows(is)
		}
	}
	s.out.returns(b, back)
	first, atOnce := false, false
	if b.Claim != nil {
		s.claims.woken = true
		if cut {
			s.claims.late(b.Claim)
		} else {
			s.claims.cursors.reset() // what it would have claimed may stand before them
		}
		if len(b.ends) == 0 {
			first, atOnce = s.claims.isRefused(b, is)
		} else {
			s.claims.untried(b.trial)
		}
	}
	again := is == sqlerr.Retryable && s.claims.refused < conflictsToPart || apart || passed
	s.mu.Unlock()
	if first {
		atOnce = s.suspectFirst() && atOnce
	}
	if b.trial != (driver.ID{}) && atOnce {
		s.q.trouble("claiming a job, which is passed over for a while", fmt.Errorf("%w (job %v)", err, ID(b.trial)))
	}
	if b.Claim != nil {
		s.q.reconciler.claims.drop(b.Claim.Claim)
		if unknown {
			s.q.reconciler.releaseClaim(b.owner.inc, firstCheck)
		}
	}
	if reports {
		s.q.trouble("recording the end of a job", err)
	}
	if again || atOnce {
		s.signal()
		return
	}
	s.failed("exchanging jobs with the database", err)
}

// goesApart reports that some ends of a batch may be recorded without the others. If the lock that
// it met has passed, the batch is sent again whole a few times before.
func (s *syncer) goesApart(b *syncBatch, is sqlerr.Class, err error, passed bool) (apart, locked bool) {
	if len(b.ends) == 0 {
		return false, false
	}
	if locked = s.q.driver.IsLocked(err); locked && !passed {
		return true, true
	}
	switch {
	case passed:
	case is == sqlerr.Busy && s.q.driver.Exhausted():
		return false, false
	case is != sqlerr.Retryable && is != sqlerr.Busy:
		return is.MayBeOfOne(), false
	}
	for i := range b.ends {
		a := &b.ends[i].apart
		a.conflicts++
		apart = apart || a.conflicts >= conflictsToPart
	}
	return apart, locked
}

// slows has the next batch wait, if many have failed in a row for errors that may be the server's;
// s.mu is held.
func (s *syncer) slows(is sqlerr.Class) {
	if s.failing++; s.failing > failsToPause && is != sqlerr.BadInput {
		s.notUntil = time.Now().Add(failPause(s.failing - failsToPause))
	}
}

// suspectFirst suspects the first job that is ready, if there is one. Those behind it are the next
// suspects, while all claims are refused.
func (s *syncer) suspectFirst() (found bool) {
	s.mu.Lock()
	found, most := s.claims.suspectFirst(), len(s.claims.passed)+moreSuspects
	s.mu.Unlock()
	if found {
		return true
	}
	var ready []driver.Record
	err := s.q.db.within(s.q.recorded, func(ctx context.Context) (err error) {
		ready, err = s.q.driver.Admin().List(ctx, &driver.ListRequest{Queue: s.w.o.Queue, State: driver.Ready, Max: most})
		return err
	})
	if err != nil {
		s.q.trouble("looking for a job that can't be claimed", err)
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claims.suspects = ready
	return s.claims.suspectFirst()
}

// cancelEnds takes over a sync that has not taken place, as some of its jobs are to be cancelled:
// it is sent again, and drops them.
func (s *syncer) cancelEnds(b *syncBatch, jobs []driver.ID) {
	asked := setOf(jobs)
	var dropped []*claimedJob
	s.mu.Lock()
	s.landed(b)
	for i := range b.ends {
		if e := &b.ends[i]; asked[e.ID] {
			e.cancelled.Store(true)
			e.outcome, e.failure = outcomeCancelled, ErrCancelled.Error()
			dropped = append(dropped, e.claimedJob)
		}
	}
	if b.apart {
		s.out.apart = append(s.out.apart, b.ends...)
		s.out.returns(b, nil)
	} else {
		s.out.returns(b, b.ends)
	}
	s.requests = true // to be deleted once the jobs have ended
	if b.Claim != nil {
		s.claims.woken = true
		s.claims.untried(b.trial)
	}
	s.mu.Unlock()
	if b.Claim != nil {
		s.q.reconciler.claims.drop(b.Claim.Claim)
	}
	for _, j := range dropped {
		s.q.cancelled(s.w.info(j), ErrCancelled)
	}
	s.signal()
}

// failed has the next sync wait.
func (s *syncer) failed(doing string, err error) {
	s.mu.Lock()
	s.failing++
	s.notUntil = time.Now().Add(failPause(s.failing))
	s.mu.Unlock()
	s.q.trouble(doing, err)
	s.signal()
}

// failPause is how long the next batch waits after a number of consecutive errors.
func failPause(failed int) time.Duration {
	return pace.Jitter(min(10*time.Millisecond<<min(failed, 10), time.Second))
}
