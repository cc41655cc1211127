package lease

import (
	"context"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/member"
)

// A lock may end without its holder: an operator releases it, or the database loses the grant in a failover. A heartbeat
// does not show that, as it touches the member's row only. So a Locker that holds something reads, once a heartbeat,
// which of its acquisitions the database still has: one statement for each mode and verifyBatch keys.

// verifyBatch bounds the keys of a statement.
const verifyBatch = 1000

// verifySoon arranges the next check; l.mu is held.
func (l *Locker) verifySoon() {
	if l.verifying == nil && !l.closed {
		l.verifying = l.o.Clock.AfterFunc(l.member.TTL()/3, func() { l.background(l.verify) })
	}
}

// verify ends the holds that the database does not have any more.
func (l *Locker) verify() {
	l.mu.Lock()
	var byMode [3][]*hold
	for h := range l.holds {
		if mode := h.fences[0].Mode; !h.ended() {
			byMode[mode] = append(byMode[mode], h)
		}
	}
	l.mu.Unlock()
	for _, holds := range byMode {
		l.verifyMode(holds)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.verifying = nil
	if len(l.holds) > 0 {
		l.verifySoon()
	}
}

// verifyMode checks holds of one mode. If a read fails, the next one has to tell.
func (l *Locker) verifyMode(holds []*hold) {
	var backs []ReleaseRequest
	var of []*hold
	flush := func() {
		ctx, cancel := context.WithTimeout(l.ending, min(l.bound(), longestRead))
		defer cancel()
		ours, err := l.Driver.Holding(ctx, backs)
		if err == nil {
			l.loseMissing(ctx, of, ours)
		}
		backs, of = backs[:0], of[:0]
	}
	for _, h := range holds {
		for _, b := range h.backs() {
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

// loseMissing loses the holds that are not ours any more, but for those that were released meanwhile. It asks the database
// once for each life why.
func (l *Locker) loseMissing(ctx context.Context, holds []*hold, ours []bool) {
	asked := make(map[*member.Life]dblock.Reason)
	var tells []func()
	for i, h := range holds {
		if i >= len(ours) || ours[i] {
			continue
		}
		why := dblock.ReasonStolen
		if !h.detached {
			if asked[h.life] == "" {
				asked[h.life] = l.whyGone(ctx, h.life)
			}
			why = asked[h.life]
		}
		tells = append(tells, h.lose(why))
	}
	go func() {
		for _, tell := range tells {
			tell()
		}
	}()
}

// whyGone is why what a life held is not ours any more: its member may be gone, which its heartbeat has not noticed yet.
func (l *Locker) whyGone(ctx context.Context, life *member.Life) dblock.Reason {
	if gone, err := l.Driver.Evict(ctx, life.ID); gone && err == nil {
		return dblock.ReasonEvicted
	}
	return dblock.ReasonStolen
}

// longestRead is how long an answer is awaited, however long the TTL.
const longestRead = 5 * time.Second

// Holds reports whether the fence is of a lock of this process that has not ended, as far as the process knows.
func (l *Locker) Holds(f dblock.Fence) bool { return l.reconciler.handles.held(f.Handle) }

// Fenced ends the lock of a fence that a guard has refused.
func (l *Locker) Fenced(f dblock.Fence) {
	l.mu.Lock()
	var fenced *hold
	for h := range l.holds {
		for _, own := range h.fences {
			if own.Handle == f.Handle {
				fenced = h
			}
		}
	}
	l.mu.Unlock()
	if fenced != nil {
		go fenced.lose(dblock.ReasonStolen)() // the guard's transaction is open still, and not to wait for the Observer
	}
}
