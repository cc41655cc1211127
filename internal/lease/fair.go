package lease

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/batch"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/internal/root"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// A fair Locker serves calls in the order of their arrival, across processes. A call that has to
// wait takes a ticket. A release gives the key to the lowest ticket in the same statement, so the
// key is never free for others meanwhile, and only the new holder is woken. Without a notification,
// the first call of each process looks whether it has the key. It also serves the next ticket if
// the holder has died.

// fairQueue serves a Locker's calls in the order of their tickets.
type fairQueue struct {
	*exclusive
	tickets *batch.Queue[ask, int64]

	mu    sync.Mutex
	turns map[string][]*turn // by key and in the order of their tickets
}

func newFairQueue(x *exclusive) *fairQueue {
	f := &fairQueue{exclusive: x, turns: make(map[string][]*turn)}
	f.tickets = batch.New(batch.Options[ask, int64]{
		Run: f.runTickets, Key: func(a ask) string { return a.Key }, Classify: x.Traits.Classify,
		Weight: askWeight, MaxWeight: x.Traits.maxWeight(), MaxQueue: x.o.MaxQueue,
		MaxBatch: x.o.MaxBatch, MaxInFlight: x.o.MaxInFlight, Patience: x.o.patience,
		Late: func(a ask, got batch.Answer[int64]) { x.late(dblock.ModeExclusive, a, got.Value != 0, got.Err) },
	})
	return f
}

// turn is a call that waits with a ticket.
type turn struct {
	reply
	ticket int64         // 0: it has none yet
	woken  chan struct{} // holds one: it may have got the key, or be the first of this process now

	watched bool // the server looks for it; Waits.mu guards it
}

// onlyExclusive refuses what a fair Locker does not serve.
func onlyExclusive(r root.Request) error {
	if r.Mode != dblock.ModeExclusive || len(r.Keys) > 0 {
		return fmt.Errorf("%w: a fair Locker serves one key at a time, held by one: use another Locker for sets, readers and permits",
			dblock.ErrUnsupported)
	}
	return nil
}

// tryInTurn asks once. It is refused if any call waits.
func (f *fairQueue) tryInTurn(ctx context.Context, r root.Request) (*dblock.Lock, *dblock.HeldError, error) {
	var gone member.ID
	for n := 1; ; n++ {
		got, err := f.once(ctx, r, func(a *AcquireRequest) { a.InTurn, a.Gone, a.Contended = true, gone, false })
		if err != nil {
			return nil, nil, err
		}
		answer := got.AcquireResult
		switch {
		case answer.Token != 0:
			lock, err := f.grant(ctx, nil, got, r)
			return lock, nil, err
		case answer.Holder.Dead && answer.Holder.Member != gone && f.evictions.evict(ctx, f.requester, answer.Holder.Member):
			gone = answer.Holder.Member
			continue
		case answer.Shared && n < tries:
			if refused, err := f.sendReadersOff(ctx, r.Key); refused != nil || err != nil {
				return nil, refused, err
			}
			continue
		}
		refused, err := f.pauseOrRefuse(ctx, r, got.inc, answer, n)
		if refused != nil || err != nil {
			return nil, refused, err
		}
	}
}

// waitInTurn waits with a ticket, unless the key is free and no other call waits.
func (f *fairQueue) waitInTurn(ctx context.Context, r root.Request) (*dblock.Lock, error) {
	lock, _, err := f.tryInTurn(ctx, r)
	if lock != nil || err != nil && !sqlerr.IsContended(err) {
		return lock, err
	}
	began := f.o.Clock.Now()
	for {
		t, err := f.takeTicket(ctx, r)
		if err != nil {
			return nil, err
		}
		got, err := f.awaitTurn(ctx, r, t, began)
		if err == nil && got != nil {
			return f.grant(ctx, nil, *got, r)
		}
		ask := t.ask.back(dblock.ModeExclusive)
		if !f.background(func() { _, _ = f.giveBack(f.ending, t.inc, ask) }) {
			f.releaseUnresolved(t.inc, ask)
		}
		if err != nil {
			return nil, err
		}
	}
}

// takeTicket notes that a call waits. Those of a process are noted in their order, many in a
// statement.
func (f *fairQueue) takeTicket(ctx context.Context, r root.Request) (*turn, error) {
	for n := 1; ; n++ {
		inc, err := f.member.Current(ctx)
		if err != nil {
			if f.again(ctx, err, n) {
				continue
			}
			if err := f.pauseIfBusy(ctx, r, f.unjoined(ctx, err, r)); err != nil {
				return nil, err
			}
			continue
		}
		t := &turn{reply: reply{ask: f.asked(r), inc: inc, sent: f.o.Clock.Now()}, woken: make(chan struct{}, 1)}
		f.waits.await(t)
		ticket, err := f.tickets.Do(ctx, ask{t.ask, inc})
		f.answered(inc, err, ticket != 0, t.ask.back(dblock.ModeExclusive))
		if err == nil && ticket != 0 {
			f.waits.number(t, ticket)
			f.mu.Lock()
			defer f.mu.Unlock()
			of := f.turns[r.Key]
			i, _ := slices.BinarySearchFunc(of, t, func(a, b *turn) int { return cmp.Compare(a.ticket, b.ticket) })
			f.turns[r.Key] = slices.Insert(of, i, t)
			return t, nil
		}
		f.waits.forget(t)
		if err == nil { // the member is gone
			inc.Suspect()
			if err := f.sleep(ctx, time.Millisecond<<min(n, tries)); err != nil {
				return nil, f.unanswered(ctx, err, r)
			}
			continue
		}
		if f.again(ctx, err, n) {
			continue
		}
		if err := f.pauseIfBusy(ctx, r, f.unanswered(ctx, err, r)); err != nil {
			return nil, err
		}
	}
}

// pauseIfBusy pauses after an error that does not end a wait. It returns any other error.
func (f *fairQueue) pauseIfBusy(ctx context.Context, r root.Request, err error) error {
	if !sqlerr.IsContended(err) {
		return err
	}
	if err := f.sleep(ctx, f.o.UnnotifiedPoll); err != nil {
		return ended(f.queues.lastSeen(r), err)
	}
	return nil
}

// runTickets is one statement for each incarnation.
func (f *fairQueue) runTickets(ctx context.Context, requests []ask, _ bool) ([]batch.Answer[int64], error) {
	return byIncarnation(ctx, f.base, requests, func(ctx context.Context, by By, asks []AcquireRequest) ([]batch.Answer[int64], error) {
		got, err := f.Driver.Acquire(ctx, AcquireBatch{KindFair, by, asks})
		if err == nil {
			err = checkNumber(asks, got)
		}
		if err != nil {
			return nil, err
		}
		answers := make([]batch.Answer[int64], len(got))
		for i, a := range got {
			answers[i] = batch.Answer[int64]{Value: a.Ticket, Err: a.Err}
		}
		return answers, nil
	})
}

// awaitTurn waits until a call has the key; nil: its ticket is gone, with its member.
func (f *fairQueue) awaitTurn(ctx context.Context, r root.Request, t *turn, began time.Time) (got *reply, err error) {
	defer f.leaveTurn(r.Key, t)
	for woken := true; ; {
		refused := &dblock.HeldError{Key: r.Key}
		if woken || f.isFirst(r.Key, t) {
			state, err := f.seeTurn(ctx, r, t)
			if err != nil && !sqlerr.IsContended(err) {
				return nil, err
			}
			switch {
			case err != nil: // the ticket remains: look again later
			case state.Token != 0 && (t.ask.Detached || t.inc.Alive()):
				got := t.reply
				got.AcquireResult, got.sent = state.AcquireResult, state.sent
				if got.ask.Hold > 0 {
					got.ask.Hold = max(state.Left, 1) // 0 is without an end
				}
				return &got, nil
			case state.Token != 0 || !state.Waits || !t.inc.Alive(): // what was granted has ended with the member
				return nil, nil
			}
			if err == nil {
				refused = heldBy(r.Key, state.AcquireResult)
			}
		}
		if woken, err = f.untilWoken(ctx, r.Key, t, refused, f.o.Clock.Now().Sub(began)); err != nil {
			return nil, ended(refused, err)
		}
	}
}

// turnState is what has become of a call that waits.
type turnState struct {
	QueueEntry
	sent time.Time // before which the key was granted, for as long as is left of it
}

// seeTurn reads the state of a call. If the key is free or its holder is dead, it first serves the
// next ticket.
func (f *fairQueue) seeTurn(ctx context.Context, r root.Request, t *turn) (turnState, error) {
	for n := 1; ; n++ {
		sent := f.o.Clock.Now()
		bound, cancel := context.WithTimeout(ctx, f.bound())
		state, err := f.Driver.Entry(bound, r.Key, t.ask.Handle, t.ticket)
		if err == nil {
			err = t.ask.checkGrant(state.AcquireResult)
		}
		if err == nil && state.Token == 0 && n < tries {
			var served bool
			if served, err = f.serve(bound, r, t, state); served {
				cancel()
				continue
			}
		}
		cancel()
		if err == nil {
			return turnState{state, sent}, nil
		}
		if !f.again(ctx, sqlerr.Unwritten(err), n) {
			return turnState{}, f.unanswered(ctx, sqlerr.Unwritten(err), r) // the ticket of this call is withdrawn
		}
	}
}

// serve has the next one served where the key is free for it; it may be this one.
func (f *fairQueue) serve(ctx context.Context, r root.Request, t *turn, state QueueEntry) (served bool, err error) {
	var gone member.ID
	switch {
	case !f.isFirst(r.Key, t):
		return false, nil
	case state.Missing:
		if err := f.Driver.Make(ctx, []string{r.Key}, 0); err != nil {
			return false, err
		}
	case state.Shared:
		refused, err := f.sendReadersOff(ctx, r.Key)
		return refused == nil && err == nil, err
	case state.Holder.Dead:
		if !f.evictions.evict(ctx, f.requester, state.Holder.Member) {
			return false, nil
		}
		gone = state.Holder.Member
	case state.Held:
		return false, nil
	}
	return f.Driver.Serve(ctx, r.Key, gone)
}

// untilWoken waits until it is worth looking again. woken reports that a notification came.
func (f *fairQueue) untilWoken(ctx context.Context, key string, t *turn, refused *dblock.HeldError, waited time.Duration) (woken bool, err error) {
	every := f.o.Poll
	switch {
	case !f.waits.isNotifiedOfTurn(t):
		every = pace.Interval(waited, f.o.UnnotifiedPoll)
	case f.waits.isNotified():
		every = f.notifiedPoll(waited)
	}
	d := jitter(f.o.Clock, every)
	if refused.Remaining > 0 && f.isFirst(key, t) {
		d = min(d, refused.Remaining+time.Millisecond)
	}
	return f.sleepOr(ctx, d, t.woken)
}

func (f *fairQueue) isFirst(key string, t *turn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	of := f.turns[key]
	return len(of) > 0 && of[0] == t
}

// leaveTurn ends a wait; the next one of this process looks from now on.
func (f *fairQueue) leaveTurn(key string, t *turn) {
	f.waits.forget(t)
	f.mu.Lock()
	defer f.mu.Unlock()
	of := f.turns[key]
	i := slices.Index(of, t)
	of = slices.Delete(of, i, i+1)
	if len(of) == 0 {
		delete(f.turns, key)
		return
	}
	f.turns[key] = of
	if i == 0 {
		signal(of[0].woken)
	}
}
