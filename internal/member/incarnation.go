package member

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/clock"
)

// Incarnation is one membership, from Join until it is lost or left.
type Incarnation struct {
	ID ID
	m  *Member

	mu          sync.Mutex
	trusted     time.Time // what this process may believe until
	number      int64     // the last one that was confirmed
	failing     int       // heartbeats since then
	ended       bool
	why         dblock.Reason
	next        clock.Timer // the next heartbeat
	end         clock.Timer // when trust ends
	onEnd       map[*func(dblock.Reason)]struct{}
	onHeartbeat []func(context.Context, int64) bool
	recheck     recheck
}

// Heartbeat is the number of the last heartbeat that was confirmed.
func (l *Incarnation) Heartbeat() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.number
}

// TrustedUntil is the end of the time for which this incarnation and its holds are trusted.
func (l *Incarnation) TrustedUntil() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.trusted
}

// Alive reports whether this incarnation is trusted now. It ends one whose time is up.
func (l *Incarnation) Alive() bool {
	l.mu.Lock()
	late := !l.ended && clock.Past(l.m.o.Clock.Now(), l.trusted)
	alive := !l.ended && !late
	l.mu.Unlock()
	if late {
		l.finish(dblock.ReasonExpired)
	}
	return alive
}

// Ended reports whether this incarnation has ended, and why. Like Alive it ends one whose time is
// up.
func (l *Incarnation) Ended() (why dblock.Reason, over bool) {
	if l.Alive() {
		return "", false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.why, true
}

// Lost reports whether this incarnation is not trusted any more. Unlike Alive it ends nothing.
func (l *Incarnation) Lost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended || clock.Past(l.m.o.Clock.Now(), l.trusted)
}

// OnEnd calls f when this incarnation ends, or at once if it has ended, unless forget is called
// first. f ends what depends on the incarnation. It waits for nothing.
func (l *Incarnation) OnEnd(f func(dblock.Reason)) (forget func()) {
	l.mu.Lock()
	if l.ended {
		why := l.why
		l.mu.Unlock()
		f(why)
		return func() {}
	}
	l.onEnd[&f] = struct{}{}
	l.mu.Unlock()
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.onEnd, &f)
	}
}

// OnHeartbeat calls settle after each confirmed heartbeat, with its number, until settle returns
// true or the incarnation ends.
func (l *Incarnation) OnHeartbeat(settle func(ctx context.Context, beat int64) (settled bool)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.onHeartbeat = append(l.onHeartbeat, settle)
	}
}

// CheckSoon sends a heartbeat at once: an answer said that the member's row is gone, or has more
// heartbeats, or an answer is missing.
func (l *Incarnation) CheckSoon() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended && l.next != nil && l.next.Stop() {
		l.next = l.m.o.Clock.AfterFunc(0, l.heartbeat)
	}
}

// begin starts the heartbeats of an incarnation whose Register was sent at the given time.
func (l *Incarnation) begin(sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trust(sent)
	l.next = l.m.o.Clock.AfterFunc(l.untilNext(sent), l.heartbeat)
	l.recheck.begin(l.m)
}

// trust notes what a heartbeat that was sent at the given time is worth; l.mu is held.
func (l *Incarnation) trust(sent time.Time) {
	l.trusted = sent.Add(l.m.o.TTL - l.m.o.Margin)
	if l.end != nil {
		l.end.Stop()
	}
	l.end = l.m.o.Clock.AfterFunc(l.trusted.Sub(l.m.o.Clock.Now()), func() { l.Alive() })
}

// untilNext is when the next heartbeat follows on one that was sent at the given time and is
// confirmed now: a third of the TTL after it was sent, as trust counts from then, too.
func (l *Incarnation) untilNext(sent time.Time) time.Duration {
	tick := l.m.tick()
	return max(tick-l.m.o.Clock.Now().Sub(sent), tick/8)
}

// maxHeartbeat is for how long an answer is waited for, however long the TTL: the next heartbeat
// takes another connection.
const maxHeartbeat = 10 * time.Second

// heartbeat sends one heartbeat and, if it was confirmed, calls the functions of OnHeartbeat.
func (l *Incarnation) heartbeat() {
	if !l.Alive() {
		return
	}
	sent := l.m.o.Clock.Now()
	ctx, cancel := context.WithTimeout(context.Background(), min(l.m.o.TTL/2, maxHeartbeat))
	defer cancel()
	beat, alive, err := l.m.driver.Heartbeat(ctx, l.ID, l.m.o.TTL)
	if err == nil && !alive {
		l.finish(dblock.ReasonEvicted)
		return
	}
	l.note(sent, beat, err)
	if err == nil {
		l.m.forEachListener(func(of *Listener) {
			if of.Confirmed != nil {
				of.Confirmed()
			}
		})
		l.settle(ctx, beat)
		l.runRecheck()
	}
}

// note records how a heartbeat ended, and schedules the next: a third of the TTL later if it
// succeeded, soon if it failed, and several times before trust ends. An answer that is read after
// that, for example after a pause of the process, extends nothing: others may have found that the
// incarnation is lost.
func (l *Incarnation) note(sent time.Time, beat int64, err error) {
	l.mu.Lock()
	if l.ended || clock.Past(l.m.o.Clock.Now(), l.trusted) {
		l.mu.Unlock()
		l.Alive()
		return
	}
	pause := l.m.tick()
	remaining := l.trusted.Sub(l.m.o.Clock.Now())
	if err == nil {
		l.recheck.note(l.m, l.failing > 0 || beat <= l.number)
		l.failing = 0
		l.number = beat
		l.trust(sent)
		pause = l.untilNext(sent)
	} else {
		l.failing++
		pause = min(pause, 20*time.Millisecond<<min(l.failing, 6), max(20*time.Millisecond, remaining/4))
	}
	l.next = l.m.o.Clock.AfterFunc(pause, l.heartbeat)
	l.mu.Unlock()
	if err != nil {
		l.late(remaining, err)
	}
}

// late reports a heartbeat that was not confirmed.
func (l *Incarnation) late(remaining time.Duration, err error) {
	l.m.forEachListener(func(of *Listener) {
		if of.Observer.HeartbeatLate != nil {
			of.Observer.HeartbeatLate(remaining, err)
		}
	})
	l.m.Warn("dblock: a heartbeat was not confirmed", "member", l.ID.String(), "remaining", remaining, "error", err)
}

// settle calls the functions of OnHeartbeat.
func (l *Incarnation) settle(ctx context.Context, beat int64) {
	l.mu.Lock()
	onHeartbeat := l.onHeartbeat
	l.onHeartbeat = nil
	l.mu.Unlock()
	var left []func(context.Context, int64) bool
	for _, settle := range onHeartbeat {
		if !settle(ctx, beat) {
			left = append(left, settle)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.onHeartbeat = append(left, l.onHeartbeat...)
}

var errUnanswered = errors.New("dblock: no heartbeat was answered in time: the process, the database or the network was too slow")

// finish ends the incarnation, once, and all that depends on it. A Log that blocks keeps nothing
// alive.
func (l *Incarnation) finish(why dblock.Reason) {
	l.mu.Lock()
	if l.ended {
		l.mu.Unlock()
		return
	}
	l.ended, l.why = true, why
	for _, t := range []clock.Timer{l.next, l.end} {
		if t != nil {
			t.Stop()
		}
	}
	callbacks := l.onEnd
	l.onEnd, l.onHeartbeat = nil, nil
	unreported := why == dblock.ReasonExpired && l.failing == 0
	l.mu.Unlock()
	l.m.remove(l)
	for f := range callbacks {
		(*f)(why)
	}
	if unreported { // it was sent late or never, or its answer came late
		go l.late(0, errUnanswered)
	}
	if why != dblock.ReasonClosed {
		go l.m.Warn("dblock: the member is lost, and all that it held", "member", l.ID.String(), "reason", string(why))
	}
}
