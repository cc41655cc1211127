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
	tickets *batch.Queue[acquisition, int64]

	mu      sync.Mutex
	waiters map[string][]*fairWaiter // by key and in the order of their tickets
}

func newFairQueue(x *exclusive) *fairQueue {
	f := &fairQueue{exclusive: x, waiters: make(map[string][]*fairWaiter)}
	f.tickets = batch.New(batch.Options[acquisition, int64]{
		Run: sizing(f.base, func(n int) { f.tickets.Limit(n) }, f.runTickets),
		Key: func(a acquisition) string { return a.Key }, Classify: x.Traits.Classify,
		Weight: acquireWeight, MaxWeight: x.Traits.maxWeight(), MaxQueue: x.o.MaxQueue,
		MaxBatch: x.o.MaxBatch, MaxInFlight: x.o.MaxInFlight, Patience: x.o.patience,
		Late: func(a acquisition, got batch.Result[int64]) {
			x.late(a.inc, got.Value != 0, got.Err, a.undo(dblock.ModeExclusive))
		},
	})
	return f
}

// fairWaiter is a call that waits with a ticket.
type fairWaiter struct {
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

// try asks once. It is refused if any call waits.
func (f *fairQueue) try(ctx context.Context, r root.Request) (*dblock.Lock, *dblock.HeldError, error) {
	var gone member.ID
	for n := 1; ; n++ {
		got, err := f.once(ctx, r, func(a *AcquireRequest) { a.NoTickets, a.DeadMember, a.Contended = true, gone, false })
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

// wait waits with a ticket, unless the key is free and no other call waits.
func (f *fairQueue) wait(ctx context.Context, r root.Request, late *lateRequests) (*dblock.Lock, error) {
	lock, _, err := f.try(ctx, r)
	if lock != nil || err != nil && !sqlerr.IsContended(err) && !late.add(ctx, err) {
		return lock, err
	}
	began := f.o.Clock.Now()
	for {
		t, err := f.takeTicket(ctx, r, late)
		if err != nil {
			return nil, err
		}
		got, err := f.awaitGrant(ctx, r, t, began)
		if err == nil && got != nil {
			return f.grant(ctx, nil, *got, r)
		}
		ask := t.request.undo(dblock.ModeExclusive)
		if !f.background(func() { _, _ = f.releaseNow(f.ending, t.inc, ask) }) {
			f.releaseUnresolved(t.inc, ask)
		}
		if err != nil {
			return nil, err
		}
	}
}

// takeTicket notes that a call waits. Those of a process are noted in their order, many in a
// statement.
func (f *fairQueue) takeTicket(ctx context.Context, r root.Request, late *lateRequests) (*fairWaiter, error) {
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
		t := &fairWaiter{reply: reply{request: f.asked(r), inc: inc, sent: f.o.Clock.Now()}, woken: make(chan struct{}, 1)}
		f.waits.await(t)
		ticket, err := f.tickets.Do(ctx, acquisition{t.request, inc})
		f.answered(inc, err, ticket != 0, t.request.undo(dblock.ModeExclusive))
		if err == nil && ticket != 0 {
			f.waits.number(t, ticket)
			f.mu.Lock()
			defer f.mu.Unlock()
			of := f.waiters[r.Key]
			i, _ := slices.BinarySearchFunc(of, t, func(a, b *fairWaiter) int { return cmp.Compare(a.ticket, b.ticket) })
			f.waiters[r.Key] = slices.Insert(of, i, t)
			return t, nil
		}
		f.waits.removeFair(t)
		if err == nil { // the member is gone
			inc.CheckSoon()
			if err := f.sleep(ctx, time.Millisecond<<min(n, tries)); err != nil {
				return nil, f.unanswered(ctx, err, r)
			}
			continue
		}
		if f.again(ctx, err, n) {
			continue
		}
		err = asLate(ctx, f.unanswered(ctx, err, r), t.request.Handle, t.inc)
		if late.add(ctx, err) {
			continue
		}
		if err := f.pauseIfBusy(ctx, r, err); err != nil {
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
		return waitEnded(f.queues.lastSeen(r), err)
	}
	return nil
}

// runTickets is one statement for each incarnation.
func (f *fairQueue) runTickets(ctx context.Context, requests []acquisition) ([]batch.Result[int64], error) {
	return byIncarnation(ctx, f.base, requests, func(ctx context.Context, by By, asks []AcquireRequest) ([]batch.Result[int64], error) {
		got, err := f.Driver.Acquire(ctx, AcquireBatch{KindFair, by, asks})
		if err == nil {
			err = checkNumber(asks, got)
		}
		if err != nil {
			return nil, err
		}
		results := make([]batch.Result[int64], len(got))
		for i, a := range got {
			results[i] = batch.Result[int64]{Value: a.Ticket, Err: a.Err}
		}
		return results, nil
	})
}

// awaitGrant waits until a call has the key; nil: its ticket is gone, with its member.
func (f *fairQueue) awaitGrant(ctx context.Context, r root.Request, t *fairWaiter, began time.Time) (got *reply, err error) {
	defer f.leave(r.Key, t)
	for woken := true; ; {
		refused := &dblock.HeldError{Key: r.Key}
		if woken || f.isFirst(r.Key, t) {
			state, err := f.readTicket(ctx, r, t)
			if err != nil && !sqlerr.IsContended(err) {
				return nil, err
			}
			switch {
			case err != nil: // the ticket remains: look again later
			case state.Token != 0 && (t.request.Detached || t.inc.Alive()):
				got := t.reply
				got.AcquireResult, got.sent = state.AcquireResult, state.sent
				if got.request.Hold > 0 {
					got.request.Hold = max(state.Remaining, 1) // 0 is without an end
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
			return nil, waitEnded(refused, err)
		}
	}
}

// ticketState is what has become of a call that waits.
type ticketState struct {
	QueueEntry
	sent time.Time // before which the key was granted, for as long as is left of it
}

// readTicket reads the state of a call. If the key is free or its holder is dead, it first serves
// the next ticket.
func (f *fairQueue) readTicket(ctx context.Context, r root.Request, t *fairWaiter) (ticketState, error) {
	for n := 1; ; n++ {
		sent := f.o.Clock.Now()
		bound, cancel := context.WithTimeout(ctx, f.bound())
		state, err := f.Driver.Entry(bound, r.Key, t.request.Handle, t.ticket)
		if err == nil {
			err = t.request.checkGrant(state.AcquireResult)
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
			return ticketState{state, sent}, nil
		}
		if !f.again(ctx, sqlerr.Unwritten(err), n) {
			return ticketState{}, f.unanswered(ctx, sqlerr.Unwritten(err), r) // the ticket of this call is withdrawn
		}
	}
}

// serve has the next one served if the key is free for it; it may be this one.
func (f *fairQueue) serve(ctx context.Context, r root.Request, t *fairWaiter, state QueueEntry) (served bool, err error) {
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
func (f *fairQueue) untilWoken(ctx context.Context, key string, t *fairWaiter, refused *dblock.HeldError, waited time.Duration) (woken bool, err error) {
	every := f.o.Poll
	switch {
	case !f.waits.isNotifiedOfTicket(t):
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

func (f *fairQueue) isFirst(key string, t *fairWaiter) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	of := f.waiters[key]
	return len(of) > 0 && of[0] == t
}

// leave ends a wait; the next one of this process looks from now on.
func (f *fairQueue) leave(key string, t *fairWaiter) {
	f.waits.removeFair(t)
	f.mu.Lock()
	defer f.mu.Unlock()
	of := f.waiters[key]
	i := slices.Index(of, t)
	of = slices.Delete(of, i, i+1)
	if len(of) == 0 {
		delete(f.waiters, key)
		return
	}
	f.waiters[key] = of
	if i == 0 {
		signal(of[0].woken)
	}
}
