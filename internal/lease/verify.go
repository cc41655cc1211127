package lease

import (
	"context"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/member"
)

// A lock may end without its holder: an operator releases it, or the database loses the grant in a
// failover. A heartbeat does not show that, as it touches the member's row only. So a Locker that
// holds something reads, once a heartbeat, which of its acquisitions the database still has: one
// statement for each mode and verifyBatch keys.

// verifyBatch bounds the keys of a statement.
const verifyBatch = 1000

// verifySoon arranges the next check; l.mu is held.
func (s *holds) verifySoon() {
	if s.verifying == nil && !s.closed {
		s.verifying = s.o.Clock.AfterFunc(s.member.TTL()/3, func() { s.background(s.verify) })
	}
}

// verify ends the holds that the database does not have any more.
func (s *holds) verify() {
	s.mu.Lock()
	var byMode [3][]*hold
	for h := range s.all {
		if mode := h.fences[0].Mode; !h.hasEnded() {
			byMode[mode] = append(byMode[mode], h)
		}
	}
	s.mu.Unlock()
	for _, holds := range byMode {
		s.verifyMode(holds)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.verifying = nil
	if len(s.all) > 0 {
		s.verifySoon()
	}
}

// verifyMode checks holds of one mode. If a read fails, the next one decides.
func (s *holds) verifyMode(holds []*hold) {
	var backs []ReleaseRequest
	var of []*hold
	flush := func() {
		ctx, cancel := context.WithTimeout(s.ending, min(s.bound(), longestRead))
		defer cancel()
		ours, err := s.Driver.Holding(ctx, backs)
		if err == nil {
			s.loseMissing(ctx, of, ours)
		}
		backs, of = backs[:0], of[:0]
	}
	for _, h := range holds {
		for _, b := range h.releases() {
			backs, of = append(backs, b), append(of, h)
			if len(backs) == verifyBatch {
				flush()
			}
		}
	}
	if len(backs) > 0 {
		flush()
	}
}

// loseMissing loses the holds that the database no longer has, except those that were released
// meanwhile. It asks the database once for each incarnation why.
func (s *holds) loseMissing(ctx context.Context, holds []*hold, ours []bool) {
	asked := make(map[*member.Incarnation]dblock.Reason)
	for i, h := range holds {
		if i >= len(ours) || ours[i] {
			continue
		}
		why := dblock.ReasonStolen
		if !h.detached {
			if asked[h.inc] == "" {
				asked[h.inc] = s.memberLossReason(ctx, h.inc)
			}
			why = asked[h.inc]
		}
		h.lose(why)
	}
}

// memberLossReason is the reason why the database lacks a hold of an incarnation. Its member may be
// gone, which its next heartbeat will find.
func (s *holds) memberLossReason(ctx context.Context, inc *member.Incarnation) dblock.Reason {
	if gone, err := s.Driver.Evict(ctx, inc.ID); gone && err == nil {
		return dblock.ReasonEvicted
	}
	return dblock.ReasonStolen
}

// longestRead is how long an answer is awaited, however long the TTL.
const longestRead = 5 * time.Second

// fenced ends the lock of a fence that a guard has refused.
func (s *holds) fenced(f dblock.Fence) {
	s.mu.Lock()
	var fenced *hold
	for h := range s.all {
		for _, own := range h.fences {
			if own.Handle == f.Handle {
				fenced = h
			}
		}
	}
	s.mu.Unlock()
	if fenced != nil {
		fenced.lose(dblock.ReasonStolen)
	}
}
