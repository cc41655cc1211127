package locksim

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/session"
)

// process is one process, from its start until it is closed or killed.
type process struct {
	w      *world
	name   string
	plan   *plan
	clock  *drifting
	locker dblock.Locker
	leases *lease.Locker // that; nil: its locks are those of sessions
	leave  func(context.Context) error
	ctx    context.Context // of what its programs do
	dead   chan struct{}
	work   sync.WaitGroup // its programs, and the locks that they have left

	mu      sync.Mutex
	opened  int           // connections
	resumed chan struct{} // closed when it goes on; nil: it does not stand still
}

// start makes the n-th process of a plan.
func (w *world) start(ctx context.Context, of *plan, n int) (*process, error) {
	p := &process{w: w, name: of.name + strconv.Itoa(n), plan: of, dead: make(chan struct{}), ctx: ctx}
	if w.kind == sessionLocks {
		return p, p.startSession()
	}
	p.clock = &drifting{p, 1 + of.drift}
	mo, err := member.Options{TTL: w.ttl, Clock: p.clock}.WithDefaults("Options")
	if err != nil {
		return nil, err
	}
	if w.without == margin {
		mo.Margin = 0
	}
	lo, err := lease.Options{Poll: w.poll, Fair: of.fair, Clock: p.clock, Label: p.name}.WithDefaults("Options", w.poll)
	if err != nil {
		return nil, err
	}
	var shares lease.Shares[int, driver]
	share, err := shares.Open(0, mo, func() (driver, lease.Backend, error) { return driver{p}, driver{p}.backend(), nil })
	if err != nil {
		return nil, err
	}
	p.leases, p.leave = lease.New(share, lo), shares.Leaver(0)
	p.locker = p.leases
	return p, nil
}

// startSession connects, as often as it takes.
func (p *process) startSession() error {
	w := p.w
	p.clock = &drifting{p, 1} // it is the server's that drifts
	p.leave = func(context.Context) error { return nil }
	o, err := session.Options{
		Label: p.name, IdleTimeout: w.ttl, Poll: w.poll, Shared: true, Notifies: !w.deaf, ServerQueue: w.line,
		Draw: p.clock.Draw,
	}.WithDefaults("Options", w.poll)
	if err != nil {
		return err
	}
	for {
		l, err := session.New(context.Background(), sessionDriver{p}, o)
		if err == nil {
			p.locker = l
			return nil
		}
		time.Sleep(p.clock.Draw(100 * time.Millisecond))
	}
}

// gate waits while the process stands still. All that it did not do meanwhile it does soon after,
// in some order.
func (p *process) gate(what string) {
	for {
		p.mu.Lock()
		resumed := p.resumed
		p.mu.Unlock()
		if resumed == nil {
			return
		}
		<-resumed
		time.Sleep(p.w.dice(p.name+" resumes "+what).between(0, wakesWithin))
	}
}

// wakesWithin is how long it takes until all timers of a process have fired that stood still.
const wakesWithin = time.Millisecond

// pause has the process stand still.
func (p *process) pause(s span) {
	p.mu.Lock()
	p.resumed = make(chan struct{})
	p.mu.Unlock()
	p.w.note(p.name + " stands still")
	select {
	case <-time.After(s.to - p.w.now()):
	case <-p.dead:
	}
	p.mu.Lock()
	close(p.resumed)
	p.resumed = nil
	p.mu.Unlock()
	p.w.note(p.name + " goes on")
}

func (p *process) isDead() bool { return isClosed(p.dead) }

// isCut reports that no message comes through.
func (p *process) isCut() bool {
	for _, s := range p.plan.cuts {
		if s.has(p.w.now()) {
			return true
		}
	}
	return false
}

// awaitNetwork waits until messages come through.
func (p *process) awaitNetwork() {
	for p.isCut() {
		time.Sleep(p.w.ttl / 10)
	}
}

// stoodStill reports whether the process stood still at a moment, or had not woken up.
func (p *process) stoodStill(at time.Duration) bool {
	for _, s := range p.plan.pauses {
		if (span{s.from, s.to + 2*wakesWithin}).has(at) {
			return true
		}
	}
	return false
}

// close ends a process that is alive as its service would.
func (p *process) close(within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return errors.Join(p.locker.(interface{ Close(context.Context) error }).Close(ctx), p.leave(ctx))
}

// run has the processes of a plan do its programs, one process after the other has died.
func (w *world) run(ctx context.Context, of *plan, last chan<- *process) {
	next := make([]int, len(of.programs)) // of each program
	for n := 0; ; n++ {
		alive, kill := context.WithCancel(ctx)
		p, err := w.start(alive, of, n)
		if err != nil {
			w.wrong("%v", err)
		}
		for i, program := range of.programs {
			p.work.Go(func() {
				for next[i] < len(program) && !p.isDead() && ctx.Err() == nil {
					o := program[next[i]]
					next[i]++
					p.do(o)
				}
			})
		}
		if n == 0 {
			for _, s := range of.pauses {
				go func() {
					time.Sleep(s.from - w.now())
					p.pause(s)
				}()
			}
		}
		if n == len(of.dies) {
			p.work.Wait()
			kill()
			last <- p
			return
		}
		time.Sleep(of.dies[n].from - w.now())
		w.dies(p)
		if w.sessions != nil {
			go w.hangUp(p)
		}
		kill()
		p.work.Wait()
		go func() { _ = p.close(0) }() // it sends nothing any more
		time.Sleep(of.dies[n].to - w.now())
	}
}

// do does one operation.
func (p *process) do(o op) {
	p.sleep(o.think)
	w, ctx := p.w, p.ctx
	if o.wait > 0 {
		bounded, cancel := context.WithTimeout(ctx, o.wait)
		defer cancel()
		ctx = bounded
	}
	if p.isDead() {
		return
	}
	w.called(p, o)
	lock, err := p.acquire(ctx, o)
	p.gate(o.label)
	if p.isDead() {
		if lock != nil {
			p.work.Go(func() { _ = lock.Release(context.Background()) })
		}
		return
	}
	if err != nil {
		w.refused(o, err)
		return
	}
	h := w.holds(p, o, lock)
	defer context.AfterFunc(lock.Context(), func() { w.ended(h, "has ended") })()
	p.use(o, h)
	w.ended(h, "is released")
	if p.isDead() {
		p.work.Go(func() { _ = lock.Release(context.Background()) })
		return
	}
	err = lock.Release(context.Background())
	p.gate(o.label)
	w.released(h, err)
}

func (p *process) acquire(ctx context.Context, o op) (*dblock.Lock, error) {
	switch {
	case o.set && o.try:
		return p.leases.TryAcquireAll(ctx, o.keys, o.opts...)
	case o.set:
		return p.leases.AcquireAll(ctx, o.keys, o.opts...)
	case o.try:
		return p.locker.TryAcquire(ctx, o.keys[0], o.opts...)
	}
	return p.locker.Acquire(ctx, o.keys[0], o.opts...)
}

// use is what is done under a lock.
func (p *process) use(o op, h *hold) {
	if o.expireIn > 0 {
		err := h.lock.ExpireIn(p.ctx, o.expireIn)
		p.gate(o.label)
		p.w.note(o.label + " expires in " + o.expireIn.String() + ": " + text(err))
	}
	part := o.hold / time.Duration(o.writes+1)
	for n := range o.writes + 1 {
		p.sleep(part)
		if p.isDead() || h.lock.Context().Err() != nil {
			return
		}
		if n < o.writes {
			p.write(h)
		}
	}
}

// write changes what a lock protects, if the guard's statement finds the fences to be those of the
// holder.
func (p *process) write(h *hold) {
	ctx, cancel := context.WithTimeout(p.ctx, p.w.ttl)
	defer cancel()
	accepted, err := send(ctx, p, "Write", h.op.label, func() (bool, string) {
		accepted := p.w.without == guard || p.w.checker.stillHeld(h)
		if accepted {
			p.w.checker.wrote(h)
		}
		return accepted, strconv.FormatBool(accepted)
	})
	if err == nil && !accepted {
		for _, f := range h.lock.Fences() {
			p.leases.Fenced(f)
		}
	}
}

// sleep is of a program, which does nothing while its process stands still.
func (p *process) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-p.dead:
	}
	p.gate("sleeps " + d.String())
}
