package locksim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
)

// driver is a process's way to the server.
type driver struct{ p *process }

var (
	_ lease.Driver    = driver{}
	_ lease.Inspector = driver{}
)

func (e driver) backend() lease.Backend {
	return lease.Backend{Member: e, Driver: e, Inspector: e, Traits: lease.Traits{Classify: e.p.w.rows.Classify}, Close: func() {}}
}

// bg is the context of what the server does: it goes on without the client.
var bg = context.Background()

// ask is a statement with a batch of requests.
func (e driver) ask(
	ctx context.Context, call string, by lease.By, asks []lease.AcquireRequest, run func(context.Context, lease.By, []lease.AcquireRequest) ([]lease.AcquireResult, error),
) ([]lease.AcquireResult, error) {
	w := e.p.w
	asks = slices.Clone(asks)
	return send(ctx, e.p, call, w.name(asks), func() ([]lease.AcquireResult, string) {
		answers := make([]lease.AcquireResult, len(asks))
		var sent []lease.AcquireRequest
		var at []int
		for i, a := range asks {
			if call == "AcquirePermits" || !w.isLocked(a.Key) { // else it is passed over
				sent, at = append(sent, w.without.ask(w, a)), append(at, i)
			}
		}
		if call == "AcquireAll" && len(sent) < len(asks) {
			return answers, "locked"
		}
		got, err := run(bg, w.without.by(by), sent)
		if err != nil {
			return nil, err.Error()
		}
		for n, i := range at {
			answers[i] = w.without.answer(by, got[n])
			w.checker.answered(asks[i], answers[i])
		}
		return answers, w.checker.said(asks, answers)
	})
}

func (e driver) Acquire(ctx context.Context, b lease.AcquireBatch) ([]lease.AcquireResult, error) {
	call := [...]string{"Acquire", "AcquireShared", "AcquirePermits", "AcquireAll"}
	if b.Kind == lease.KindFair {
		return e.enqueue(ctx, b.By, b.Requests)
	}
	return e.ask(ctx, call[b.Kind], b.By, b.Requests, func(ctx context.Context, by lease.By, asks []lease.AcquireRequest) ([]lease.AcquireResult, error) {
		return e.p.w.rows.Acquire(ctx, lease.AcquireBatch{Kind: b.Kind, By: by, Requests: asks})
	})
}

// giveBack is a statement that gives a batch back.
func (e driver) giveBack(
	ctx context.Context, call string, backs []lease.ReleaseRequest, run func(context.Context, []lease.ReleaseRequest) ([]lease.ReleaseResult, error),
) ([]lease.ReleaseResult, error) {
	w, reconciles := e.p.w, lease.Reconciles(ctx)
	backs = slices.Clone(backs)
	if reconciles {
		call += " (again)"
	}
	return send(ctx, e.p, call, w.nameBacks(backs), func() ([]lease.ReleaseResult, string) {
		returned := make([]lease.ReleaseResult, len(backs))
		var sent []lease.ReleaseRequest
		var at []int
		locked := false
		for i, b := range backs {
			if w.isLocked(b.Key) && w.server.IsHeld(b) {
				returned[i].Held, locked = true, true
				continue
			}
			sent, at = append(sent, w.without.back(w, b)), append(at, i)
			if b.Lasts == 0 { // else it ends by itself, or late
				w.releases = append(w.releases, forgettable{w.now(), w.server.Admin().Remember(b)})
			}
		}
		if locked && strings.HasPrefix(call, "ReleaseAll") {
			for i, b := range backs {
				returned[i].Held = w.server.IsHeld(b)
			}
			return returned, "locked"
		}
		got, err := run(bg, sent)
		if err != nil {
			return nil, err.Error()
		}
		for n, i := range at {
			returned[i] = w.without.returned(got[n], reconciles)
			w.checker.returned(backs[i])
		}
		return returned, fmt.Sprintf("%+v", returned)
	})
}

func (e driver) Release(ctx context.Context, b lease.ReleaseBatch) ([]lease.ReleaseResult, error) {
	call := "Release"
	switch b.Kind {
	case lease.KindSet:
		call = "ReleaseAll"
	case lease.KindFair:
		call = "HandOff"
	}
	return e.giveBack(ctx, call, b.Requests, func(ctx context.Context, backs []lease.ReleaseRequest) ([]lease.ReleaseResult, error) {
		return e.p.w.rows.Release(ctx, lease.ReleaseBatch{Kind: b.Kind, Requests: backs})
	})
}

func (e driver) enqueue(ctx context.Context, by lease.By, asks []lease.AcquireRequest) ([]lease.AcquireResult, error) {
	w := e.p.w
	asks = slices.Clone(asks)
	return send(ctx, e.p, "Enqueue", w.name(asks), func() ([]lease.AcquireResult, string) {
		results, _ := w.rows.Acquire(bg, lease.AcquireBatch{Kind: lease.KindFair, By: w.without.by(by), Requests: asks})
		tickets := make([]int64, len(results))
		for i, r := range results {
			if tickets[i] = r.Ticket; r.Ticket != 0 {
				w.checker.enqueued(by, asks[i])
			}
		}
		return results, fmt.Sprint(tickets)
	})
}

func (e driver) Entry(ctx context.Context, key string, handle lease.Handle, ticket int64) (lease.QueueEntry, error) {
	w := e.p.w
	return send(ctx, e.p, "ReadTicket", w.nameOf(handle), func() (lease.QueueEntry, string) {
		turn, _ := w.rows.Entry(bg, key, handle, ticket)
		return turn, fmt.Sprintf("token %d, waits %v, held %v", turn.Token, turn.Waits, turn.Held)
	})
}

func (e driver) Serve(ctx context.Context, key string, gone member.ID) (bool, error) {
	return send(ctx, e.p, "Serve", key, func() (bool, string) {
		served := false
		if !e.p.w.isLocked(key) {
			served, _ = e.p.w.rows.Serve(bg, key, gone)
		}
		return served, fmt.Sprint(served)
	})
}

func (e driver) Register(ctx context.Context, id member.ID, label string, ttl time.Duration) error {
	return e.do(ctx, "Register", "", func() {
		_ = e.p.w.rows.Register(bg, id, label, ttl)
		e.p.w.checker.members[id], e.p.w.checker.of[id] = e.p.w.now()+ttl, e.p.name
	})
}

// heartbeats is the answer to a heartbeat.
type heartbeats struct {
	beat  int64
	alive bool
}

func (e driver) Heartbeat(ctx context.Context, id member.ID, ttl time.Duration) (int64, bool, error) {
	got, err := send(ctx, e.p, "Heartbeat", "", func() (b heartbeats, said string) {
		b.beat, b.alive, _ = e.p.w.rows.Heartbeat(bg, id, ttl)
		if b.alive {
			e.p.w.checker.members[id] = e.p.w.now() + ttl
		}
		return b, fmt.Sprint(b)
	})
	return got.beat, got.alive, err
}

func (e driver) Broken() int64 {
	e.p.w.mu.Lock()
	defer e.p.w.mu.Unlock()
	return e.p.w.broken
}

func (e driver) Deregister(ctx context.Context, id member.ID) error {
	return e.do(ctx, "Deregister", "", func() {
		_ = e.p.w.rows.Deregister(bg, id)
		delete(e.p.w.checker.members, id)
	})
}

// do is a statement without an answer.
func (e driver) do(ctx context.Context, call, of string, run func()) error {
	_, err := send(ctx, e.p, call, of, func() (struct{}, string) {
		run()
		return struct{}{}, "done"
	})
	return err
}

func (e driver) Make(ctx context.Context, keys []string, permits int) error {
	call := "MakeFree"
	if permits > 0 {
		call = "InsertSemaphore"
	}
	return e.do(ctx, call, strings.Join(keys, " "), func() { _ = e.p.w.rows.Make(bg, keys, permits) })
}

func (e driver) SetPermits(ctx context.Context, key string, limit int) error {
	return e.do(ctx, "SetPermits", key, func() { _ = e.p.w.rows.SetPermits(bg, key, limit) })
}

func (e driver) Reap(ctx context.Context, mode dblock.Mode, key string, gone []member.ID) error {
	return e.do(ctx, "Reap", key, func() { _ = e.p.w.rows.Reap(bg, mode, key, gone) })
}

func (e driver) Wait(ctx context.Context, keys []string, id member.ID, ttl time.Duration) error {
	keys = slices.Clone(keys)
	slices.Sort(keys)
	call := "Wait"
	if ttl == 0 {
		call = "StopWaiting"
	}
	return e.do(ctx, call, strings.Join(keys, " "), func() { _ = e.p.w.rows.Wait(bg, keys, id, ttl) })
}

func (e driver) Readers(ctx context.Context, key string) ([]lease.Holder, error) {
	return send(ctx, e.p, "Readers", key, func() ([]lease.Holder, string) {
		readers, _ := e.p.w.rows.Readers(bg, key)
		slices.SortFunc(readers, func(a, b lease.Holder) int { return strings.Compare(a.Label, b.Label) })
		return readers, fmt.Sprint(len(readers))
	})
}

func (e driver) Evict(ctx context.Context, id member.ID) (bool, error) {
	w := e.p.w
	return send(ctx, e.p, "Evict", w.nameOfMember(id), func() (bool, string) {
		if w.without == expiry {
			w.server.Admin().DeleteMember(id)
		}
		gone, _ := w.rows.Evict(bg, id)
		return gone, fmt.Sprint(gone)
	})
}

func (e driver) ExpireIn(ctx context.Context, backs []lease.ReleaseRequest, d time.Duration) (bool, error) {
	backs = slices.Clone(backs)
	return send(ctx, e.p, "ExpireIn", e.p.w.nameBacks(backs), func() (bool, string) {
		ours, _ := e.p.w.rows.ExpireIn(bg, backs, d)
		return ours, fmt.Sprint(ours)
	})
}

func (e driver) Holding(ctx context.Context, backs []lease.ReleaseRequest) ([]bool, error) {
	backs = slices.Clone(backs)
	return send(ctx, e.p, "Holding", e.p.w.nameBacks(backs), func() ([]bool, string) {
		ours, _ := e.p.w.rows.Holding(bg, backs)
		return ours, "read"
	})
}

func (e driver) OthersWait(ctx context.Context, key string, id member.ID) (bool, error) {
	return send(ctx, e.p, "OthersWait", key, func() (bool, string) {
		others, _ := e.p.w.rows.OthersWait(bg, key, id)
		return others, fmt.Sprint(others)
	})
}

func (e driver) List(ctx context.Context, key string) ([]lease.HeldLease, error) {
	return send(ctx, e.p, "List", "", func() ([]lease.HeldLease, string) {
		listed, _ := e.p.w.rows.List(bg, key)
		return listed, fmt.Sprint(len(listed))
	})
}

func (e driver) HeldBy(ctx context.Context, id member.ID) ([]lease.ReleaseRequest, error) {
	return send(ctx, e.p, "HeldBy", e.p.w.nameOfMember(id), func() ([]lease.ReleaseRequest, string) {
		var held []lease.ReleaseRequest
		if e.p.w.without != recheck && e.p.w.without != certain {
			held, _ = e.p.w.rows.HeldBy(bg, id)
		}
		return held, fmt.Sprint(len(held))
	})
}

func (e driver) Get(context.Context, string) (lease.HeldLease, bool, error) {
	return lease.HeldLease{}, false, dblock.ErrUnsupported
}

func (e driver) Sweep(context.Context, time.Duration) (int64, error) {
	return 0, dblock.ErrUnsupported
}

// Listen reports releases until the connection breaks. As on a real server, the end of a lease's
// time is no event.
func (e driver) Listen(ctx context.Context, ready func(), wake func(key string)) error {
	p, w := e.p, e.p.w
	if w.deaf {
		return dblock.ErrUnsupported
	}
	restart, _ := w.connection()
	if err := e.do(ctx, "Listen", "", func() {}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	broken := make(chan struct{}, 1)
	go func() {
		_ = w.rows.Listen(ctx, func() {}, func(key string) {
			w.mu.Lock()
			said := w.executed == w.now()
			w.mu.Unlock()
			if said {
				go e.notify(ctx, key, wake, broken)
			}
		})
	}()
	ready()
	select {
	case <-ctx.Done():
	case <-restart:
	case <-broken:
	case <-p.dead:
	}
	p.gate("Listen")
	return errBroken
}

// notify brings a process what the server says unasked. A network that is cut breaks the
// connection.
func (e driver) notify(ctx context.Context, key string, wake func(string), broken chan struct{}) {
	p := e.p
	d := p.w.dice(p.name + " hears " + p.w.topic(key))
	time.Sleep(d.between(100*time.Microsecond, 5*time.Millisecond))
	p.gate("hears " + p.w.topic(key))
	switch {
	case ctx.Err() != nil:
	case p.isCut():
		time.Sleep(d.between(0, p.w.ttl))
		select {
		case broken <- struct{}{}:
		default:
		}
	default:
		p.w.note(p.name + " hears of " + p.w.topic(key))
		wake(key)
	}
}
