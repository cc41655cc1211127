package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
)

const (
	// isolationRate is how many operations a second are measured, if --rate says nothing.
	isolationRate = 200

	// crowding is how many operations of the neighbour there are for each that is measured.
	crowding = 2

	// crowdAtMost is how many operations of the neighbour are under way at once. More are left out.
	crowdAtMost = 64

	// slowFor is how long the slow neighbour keeps its lock, and how long it then leaves it free.
	slowFor = 100 * time.Millisecond
)

// isolations measure what a neighbour costs others. Operations on many keys are due at random moments; their latency is
// measured. The neighbour works on one key beside them, in the same process. The first scenario of each kind has no
// neighbour and is the base of the ratios.
func isolations() []Scenario {
	return append(isolatedSales(), isolatedJobs()...)
}

// isolated is a kind of work that is measured beside a neighbour.
type isolated interface {
	// Begin prepares round n. On average that many operations are measured in it.
	Begin(ctx context.Context, n, operations int) error

	// Do does operation i of the round. If the operation ends later than the call, Do returns a channel that tells when it has.
	Do(ctx context.Context, i int) (ended <-chan time.Time, err error)

	// Crowd does operation i of the neighbour.
	Crowd(ctx context.Context, i int) error

	// Lock is a statement that locks what the neighbour works on, in a transaction.
	Lock() string

	// End ends the round.
	End() error

	Close() error
}

// neighbour is what works beside.
type neighbour struct {
	suffix, about string
	crowd         bool          // it has callers of its own
	locked        bool          // another transaction has locked what they want
	slow          time.Duration // for so long, and again after as long a pause; 0: all the time
}

var neighbours = []neighbour{
	{suffix: "", about: "alone"},
	{suffix: "-hot", about: "beside a hot key", crowd: true},
	{suffix: "-locked", about: "beside a hot key that a transaction has locked", crowd: true, locked: true},
	{suffix: "-slow", about: "beside a hot key that is locked for 100 ms at a time", crowd: true, locked: true, slow: slowFor},
}

// isolationScenarios are those of one kind of work.
func isolationScenarios(name, about string, conns int, open func(context.Context, *Env) (isolated, error)) (all []Scenario) {
	for _, n := range neighbours {
		all = append(all, Scenario{
			Name: "isolation/" + name + n.suffix, About: about + " " + n.about, Conns: []int{conns}, MaxClients: 1,
			Open: func(ctx context.Context, env *Env) (Workload, error) {
				work, err := open(ctx, env)
				if err != nil {
					return nil, err
				}
				return &isolation{env: env, work: work, beside: n}, nil
			},
		})
	}
	return all
}

type isolation struct {
	env    *Env
	work   isolated
	beside neighbour
}

func (w *isolation) Close() error { return w.work.Close() }

func (w *isolation) Round(_ context.Context, n int) (Round, error) {
	return Round{Here: true, Run: func(ctx context.Context, d time.Duration) (Sample, error) { return w.run(ctx, n, d) }}, nil
}

// isolationRun is one round.
type isolationRun struct {
	*isolation
	ctx  context.Context
	fail context.CancelCauseFunc
	rec  *recorder
}

func (w *isolation) run(parent context.Context, n int, d time.Duration) (sample Sample, err error) {
	ctx, fail := context.WithCancelCause(parent)
	defer fail(nil)
	rate := cmp.Or(w.env.Rate, isolationRate)
	if err := w.work.Begin(ctx, n, int(rate*d.Seconds())); err != nil {
		return Sample{}, err
	}
	defer func() { err = errors.Join(err, w.work.End()) }()
	r := &isolationRun{isolation: w, ctx: ctx, fail: fail, rec: newRecorder()}
	leave, err := r.moveIn(n, rate)
	if err != nil {
		return Sample{}, err
	}
	start := time.Now()
	r.measure(newSchedule(start, start.Add(d), rate, w.env.Seed+uint64(n)))
	took := time.Since(start)
	if err := errors.Join(context.Cause(ctx), leave()); err != nil {
		return Sample{}, err
	}
	return r.rec.sample(took), nil
}

// measure does operations when they are due, and returns when the last has ended.
func (r *isolationRun) measure(plan *schedule) {
	var all sync.WaitGroup
	defer all.Wait()
	i := 0
	for at, more := plan.next(); more && sleepUntil(r.ctx, at); at, more = plan.next() {
		job := i
		i++
		all.Go(func() { r.one(job, at) })
	}
}

func (r *isolationRun) one(i int, due time.Time) {
	ctx, cancel := context.WithTimeout(r.ctx, drain)
	defer cancel()
	ended, err := r.work.Do(ctx, i)
	end := time.Now()
	if err == nil && ended != nil {
		select {
		case end = <-ended:
		case <-ctx.Done():
			err = fmt.Errorf("%w: operation %d", errStuck, i)
		}
	}
	switch kind := failureKind(err); {
	case err == nil:
		r.rec.done(i, 1, end.Sub(due))
	case r.ctx.Err() != nil:
	case kind != "":
		r.rec.failed(i, kind, 1)
	default:
		r.fail(fmt.Errorf("operation %d: %w", i, err))
	}
}

// moveIn has the neighbour begin, and returns what ends it.
func (r *isolationRun) moveIn(n int, rate float64) (leave func() error, err error) {
	if !r.beside.crowd {
		return func() error { return nil }, nil
	}
	if err := r.work.Crowd(r.ctx, 0); err != nil { // what is to be locked is there
		return nil, err
	}
	ctx, stop := context.WithCancel(r.ctx)
	locked := make(chan error, 1)
	var all sync.WaitGroup
	if r.beside.locked {
		all.Go(func() { r.lock(ctx, locked) })
		if err := <-locked; err != nil {
			stop()
			all.Wait()
			return nil, err
		}
	}
	all.Go(func() { r.crowd(ctx, n, rate) })
	return func() error {
		stop()
		all.Wait()
		return context.Cause(r.ctx)
	}, nil
}

// crowd has the neighbour's callers come at random moments.
func (r *isolationRun) crowd(ctx context.Context, n int, rate float64) {
	var all sync.WaitGroup
	defer all.Wait()
	places := make(chan struct{}, crowdAtMost)
	start := time.Now()
	plan := newSchedule(start, start.Add(time.Hour), crowding*rate, r.env.Seed+uint64(n)+1)
	for i := 1; ; i++ {
		if at, _ := plan.next(); !sleepUntil(ctx, at) {
			return
		}
		select {
		case places <- struct{}{}:
		default:
			continue
		}
		all.Go(func() {
			defer func() { <-places }()
			if err := r.work.Crowd(ctx, i); err != nil && ctx.Err() == nil && failureKind(err) == "" && !errors.Is(err, dblock.ErrOutcomeUnknown) {
				r.fail(fmt.Errorf("the neighbour: %w", err))
			}
		})
	}
}

// lock holds the lock until the context ends, or again and again for a while. It says when it has it for the first time.
func (r *isolationRun) lock(ctx context.Context, locked chan<- error) {
	defer close(locked)
	conn, err := look(r.ctx, r.env)
	if err != nil {
		locked <- err
		return
	}
	defer func() { _ = conn.close() }()
	for first := true; ctx.Err() == nil; first = false {
		for _, statement := range []string{"BEGIN", r.work.Lock()} {
			if err := conn.exec(r.ctx, statement); err != nil && first {
				locked <- err
				return
			} else if err != nil {
				r.fail(fmt.Errorf("the neighbour's lock: %w", err))
				return
			}
		}
		if first {
			locked <- nil
		}
		if r.beside.slow == 0 {
			<-ctx.Done()
		}
		sleepUntil(ctx, time.Now().Add(r.beside.slow))
		if err := conn.exec(context.WithoutCancel(ctx), "ROLLBACK"); err != nil {
			r.fail(fmt.Errorf("the neighbour's lock: %w", err))
			return
		}
		sleepUntil(ctx, time.Now().Add(r.beside.slow))
	}
}
