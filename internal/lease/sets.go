package lease

import (
	"context"
	"errors"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/batch"
	"github.com/dblock-go/dblock/internal/ctxerr"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/root"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// sets acquires several keys at once.
type sets struct {
	*exclusive
	turns setTurns

	// A statement outlives its caller, and its bound counts from when it is sent: a crowd would
	// spend it in the pool.
	requests *batch.Queue[setRequest, []AcquireResult]
	making   chan struct{} // slots of statements that make rows
}

// setRequest is the requests of one set, which are one statement.
type setRequest struct {
	asks []AcquireRequest
	inc  *member.Incarnation
}

// setSlots is how many statements of sets a process has in flight of either kind.
const setSlots = 8

func newSets(x *exclusive) *sets {
	m := &sets{exclusive: x, making: make(chan struct{}, setSlots)}
	m.requests = batch.New(batch.Options[setRequest, []AcquireResult]{
		Run: m.acquireAll,
		Key: func(s setRequest) string { return s.asks[0].Handle.String() }, // so that none waits for another one
		Late: func(s setRequest, got batch.Result[[]AcquireResult]) {
			m.late(s.inc, got.Err == nil && got.Value[0].Token != 0, got.Err, s.undo()...)
		},
		Classify: x.Traits.Classify, MaxQueue: x.o.MaxQueue, MaxBatch: 1, MaxInFlight: setSlots,
	})
	return m
}

// undo is what releases the set.
func (s setRequest) undo() (backs []ReleaseRequest) {
	for _, a := range s.asks {
		backs = append(backs, a.undo(dblock.ModeExclusive))
	}
	return backs
}

// AcquireAll waits until it has all of several keys at once. It never has a part of them, so it
// keeps no other caller waiting.
func (l *Locker) AcquireAll(ctx context.Context, keys []string, opts ...dblock.Option) (*dblock.Lock, error) {
	r, err := root.NewSetRequest(keys, opts)
	if err != nil {
		return nil, err
	}
	return l.observed(ctx, r, func(ctx context.Context, r root.Request) (*dblock.Lock, error) {
		var late lateRequests
		lock, err := l.sets.waitForAll(ctx, r, &late)
		return lock, l.sets.ended(ctx, r, late, err)
	})
}

// TryAcquireAll never waits for a holder.
func (l *Locker) TryAcquireAll(ctx context.Context, keys []string, opts ...dblock.Option) (*dblock.Lock, error) {
	r, err := root.NewSetRequest(keys, opts)
	if err != nil {
		return nil, err
	}
	return l.observed(ctx, r, func(ctx context.Context, r root.Request) (*dblock.Lock, error) {
		lock, refused, err := l.sets.requestAll(ctx, r, nil)
		return lock, unless(lock, refused, err)
	})
}

// waitForAll waits for one key that is held, behind other sets of this process that do, and then
// asks for all keys again.
func (m *sets) waitForAll(ctx context.Context, r root.Request, late *lateRequests) (*dblock.Lock, error) {
	began := m.o.Clock.Now()
	turn := m.turns.joinAny(r.Keys)
	var sub *subscription
	defer func() {
		m.turns.leave(turn)
		m.stopWaiting(sub)
	}()
	for {
		if turn != nil {
			if err := m.await(ctx, turn); err != nil {
				return nil, err
			}
		}
		lock, refused, err := m.requestAll(ctx, r, turn)
		switch {
		case sqlerr.IsContended(err) || late.add(ctx, err): // by which key is unknown
			m.turns.leave(turn)
			turn, refused = nil, &dblock.HeldError{Key: r.Key}
		case lock != nil || err != nil:
			return lock, err
		default:
			if turn = m.turns.move(turn, refused); !turn.isFirst() {
				m.stopWaiting(sub)
				sub = nil
				continue
			}
		}
		if !m.waits.known(sub) || sub.key != refused.Key {
			if b, err := m.waits.start(ctx, refused.Key); err == nil {
				m.stopWaiting(sub)
				sub = b
				continue // it may be free by now
			}
		}
		if err := m.pause(ctx, sub, false, refused, m.o.Clock.Now().Sub(began)); err != nil {
			return nil, waitEnded(refused, err)
		}
	}
}

// requestAll asks the database for all keys of a set. It returns the lock, or the holder of one of
// them: if the key of turn is held, its holder.
func (m *sets) requestAll(ctx context.Context, r root.Request, turn *setTurn) (*dblock.Lock, *dblock.HeldError, error) {
	gone := make(map[string]member.ID) // the former holders of keys
	made := false                      // the rows that were missing
	for n := 1; ; n++ {
		sent, asks, results, err := m.onceForAll(ctx, r, gone)
		if err != nil {
			return nil, nil, err
		}
		if results[0].Token != 0 {
			lock, err := m.grantAll(ctx, r, sent, asks, results)
			return lock, nil, err
		}
		if results[0].MemberGone {
			sent.inc.CheckSoon()
		}
		if refused := turn.stillHeld(asks, results); refused != nil {
			return nil, refused, nil
		}
		missing, again, refused, err := m.clearBlockers(ctx, asks, results, gone)
		switch {
		case refused != nil || err != nil:
			return nil, refused, err
		case again:
		case !made && len(missing) > 0:
			made, err = true, m.makeFree(ctx, r, missing)
		case n >= tries:
			return nil, nil, m.lockedNow(ctx, r)
		default: // some were locked for a moment
			if err = m.sleep(ctx, time.Millisecond<<n); err != nil {
				err = m.unanswered(ctx, err, r)
			}
		}
		if err != nil {
			return nil, nil, err
		}
	}
}

// onceForAll sends one statement, as once does.
func (m *sets) onceForAll(
	ctx context.Context, r root.Request, gone map[string]member.ID,
) (sent reply, asks []AcquireRequest, results []AcquireResult, err error) {
	for n := 1; ; n++ {
		inc, err := m.member.Current(ctx)
		if err != nil {
			if !m.again(ctx, err, n) {
				return reply{}, nil, nil, m.unjoined(ctx, err, r)
			}
			continue
		}
		sent = reply{request: m.asked(r), inc: inc, sent: m.o.Clock.Now()}
		set := setRequest{make([]AcquireRequest, len(r.Keys)), inc}
		for i, key := range r.Keys {
			set.asks[i] = sent.request
			set.asks[i].Key, set.asks[i].DeadMember = key, gone[key]
		}
		results, err = m.requests.Do(ctx, set)
		m.answered(inc, err, err == nil && results[0].Token != 0, set.undo()...)
		if err == nil {
			return sent, set.asks, results, nil
		}
		if !m.again(ctx, err, n) {
			return reply{}, nil, nil, asLate(ctx, m.unanswered(ctx, err, r), sent.request.Handle, inc)
		}
	}
}

// acquireAll sends the statement of one set.
func (m *sets) acquireAll(ctx context.Context, requests []setRequest, _ bool) ([]batch.Result[[]AcquireResult], error) {
	if err := errors.Join(m.notClosed(), m.mayAcquire()); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, m.bound())
	defer cancel()
	inc, asks := requests[0].inc, requests[0].asks
	results, err := m.Driver.Acquire(ctx, AcquireBatch{KindSet, By{inc.ID, inc.Heartbeat()}, asks})
	if err == nil {
		err = checkGrants(asks, results)
	}
	if err != nil {
		return nil, err
	}
	return []batch.Result[[]AcquireResult]{{Value: results}}, nil
}

// clearBlockers removes what keeps a set from being granted, so that it may be asked for again.
// Else it returns the holder of one of the keys. The missing keys have no holder: they have no row
// yet, or were locked for a moment.
func (m *sets) clearBlockers(
	ctx context.Context, asks []AcquireRequest, results []AcquireResult, gone map[string]member.ID,
) (missing []string, again bool, refused *dblock.HeldError, err error) {
	for i, a := range results {
		key := asks[i].Key
		switch {
		case a.Shared: // also if a dead member held it that waited for the readers
			if refused, err := m.sendReadersOff(ctx, key); refused != nil || err != nil {
				return nil, false, refused, err
			}
			again = true
		case a.Holder.Dead && a.Holder.Member == gone[key]: // it is to be taken over with the others
		case a.Holder.Dead && m.evictions.evict(ctx, m.requester, a.Holder.Member):
			gone[key], again = a.Holder.Member, true
		case a.Held:
			return nil, false, heldBy(key, a), nil
		default:
			missing = append(missing, key)
		}
	}
	return missing, again, nil, nil
}

// makeFree inserts the missing rows of keys, which no member holds.
func (m *sets) makeFree(ctx context.Context, r root.Request, keys []string) error {
	select {
	case m.making <- struct{}{}:
	case <-ctx.Done():
		return waitEnded(m.queues.lastSeen(r), ctxerr.Of(ctx))
	case <-m.ending.Done():
		return context.Cause(m.ending)
	}
	defer func() { <-m.making }()
	bound, cancel := context.WithTimeout(ctx, m.bound())
	defer cancel()
	if err := m.Driver.Make(bound, keys, 0); err != nil {
		return m.unanswered(ctx, sqlerr.Unwritten(err), r)
	}
	return nil
}

// sendReadersOff ends the shared state of a key that has no readers any more, by acquiring it for a
// moment.
func (x *exclusive) sendReadersOff(ctx context.Context, key string) (refused *dblock.HeldError, err error) {
	lock, err := x.tryExclusive(ctx, root.Request{Key: key})
	switch {
	case err == nil:
		_ = lock.Release(ctx) // if it was lost, there are no readers either
		return nil, nil
	case errors.As(err, &refused):
		return refused, nil
	}
	return nil, err
}

// grantAll makes the hold of a set.
func (m *sets) grantAll(ctx context.Context, r root.Request, got reply, asks []AcquireRequest, results []AcquireResult) (*dblock.Lock, error) {
	h := &hold{l: m.holds, inc: got.inc, detached: got.request.Detached, began: m.o.Clock.Now()}
	for i, a := range asks {
		h.fences = append(h.fences, dblock.Fence{Key: a.Key, Token: results[i].Token, Handle: a.Handle})
	}
	return m.hold(ctx, nil, h, got, r)
}
