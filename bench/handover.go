package bench

import (
	"context"
	"errors"
	"time"

	"github.com/dblock-go/dblock"
)

// held is how long a holder keeps the key, and a writer pauses, so that there is somebody who waits.
const held = 20 * time.Millisecond

// handovers measure how long it takes from a release in one process until another one has the key, beside
// a single durable UPDATE.
func handovers() []Scenario {
	return []Scenario{
		{
			Name: "handover/update", MaxClients: 1, Conns: []int{1}, Open: openUpdates,
			About: "a durable UPDATE of one row every 20 ms: what the latencies of handover/lease are held against",
		},
		{
			Name: "handover/lease", MaxClients: 1, Conns: []int{4}, Open: openHandovers,
			About: "from a release in one process to the next acquisition in another that waits",
		},
	}
}

// paced is a Workload that says itself how long each of its operations took.
type paced struct {
	op    func(ctx context.Context) (took time.Duration, err error)
	close func() error
}

func (p paced) Close() error { return p.close() }

func (p paced) Round(context.Context, int) (Round, error) {
	return Round{Run: func(ctx context.Context, d time.Duration) (Sample, error) {
		rec, start := newRecorder(), time.Now()
		for time.Since(start) < d {
			took, err := p.op(ctx)
			if err != nil {
				return Sample{}, err
			}
			rec.done(0, 1, took)
		}
		return rec.sample(time.Since(start)), nil
	}}, nil
}

func openUpdates(ctx context.Context, env *Env) (Workload, error) {
	locker, err := openBare(ctx, env)
	if err != nil {
		return nil, err
	}
	free, err := locker.Lock(ctx, "one")
	if err != nil {
		return nil, errors.Join(err, locker.Close())
	}
	return paced{close: locker.Close, op: func(ctx context.Context) (time.Duration, error) {
		if !sleepUntil(ctx, time.Now().Add(held)) {
			return 0, context.Cause(ctx)
		}
		began := time.Now()
		if err := free(ctx); err != nil {
			return 0, err
		}
		took := time.Since(began)
		free, err = locker.Lock(ctx, "one")
		return took, err
	}}, nil
}

// between are two processes that take turns.
type between struct {
	lockers [2]Locker
	turn    int // whose it is
	free    func(context.Context) error
}

func openHandovers(ctx context.Context, env *Env) (_ Workload, err error) {
	b := between{}
	for i := range b.lockers {
		if b.lockers[i], err = openLease(ctx, env, 0, 0); err != nil {
			return nil, errors.Join(err, b.close())
		}
	}
	if b.free, err = b.lockers[0].Lock(ctx, "ball"); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return paced{op: b.handOver, close: b.close}, nil
}

// handOver has the other process wait for the key before this one gives it back.
func (b *between) handOver(ctx context.Context) (took time.Duration, err error) {
	type caught struct {
		free func(context.Context) error
		at   time.Time
		err  error
	}
	other := make(chan caught, 1)
	go func() {
		free, err := b.lockers[1-b.turn].Lock(ctx, "ball")
		other <- caught{free, time.Now(), err}
	}()
	if !sleepUntil(ctx, time.Now().Add(held)) {
		return 0, context.Cause(ctx)
	}
	began := time.Now()
	if err := b.free(ctx); err != nil && !errors.Is(err, dblock.ErrLost) {
		return 0, err
	}
	c := <-other
	b.turn, b.free = 1-b.turn, c.free
	return c.at.Sub(began), c.err
}

func (b *between) close() error {
	var errs []error
	if b.free != nil {
		errs = append(errs, b.free(context.Background()))
	}
	for _, l := range b.lockers {
		if l != nil {
			errs = append(errs, l.Close())
		}
	}
	return errors.Join(errs...)
}
