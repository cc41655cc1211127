package bench

import (
	"context"
	"errors"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/pace"
)

// held is how long a holder keeps the key, and a writer pauses, so that the other process waits by
// then.
const held = 20 * time.Millisecond

// handovers measure how long it takes from a release in one process until another process has the
// key, beside a single durable UPDATE.
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
	release, err := locker.Lock(ctx, "one")
	if err != nil {
		return nil, errors.Join(err, locker.Close())
	}
	return paced{close: locker.Close, op: func(ctx context.Context) (time.Duration, error) {
		if pace.Sleep(ctx, held) != nil {
			return 0, context.Cause(ctx)
		}
		began := time.Now()
		if err := release(ctx); err != nil {
			return 0, err
		}
		took := time.Since(began)
		release, err = locker.Lock(ctx, "one")
		return took, err
	}}, nil
}

// handover is a key that goes back and forth between two processes.
type handover struct {
	lockers [2]Locker
	holder  int
	release func(context.Context) error
}

func openHandovers(ctx context.Context, env *Env) (_ Workload, err error) {
	h := &handover{}
	for i := range h.lockers {
		if h.lockers[i], err = openLease(ctx, env, 0, 0); err != nil {
			return nil, errors.Join(err, h.close())
		}
	}
	if h.release, err = h.lockers[0].Lock(ctx, "key"); err != nil {
		return nil, errors.Join(err, h.close())
	}
	return paced{op: h.handOver, close: h.close}, nil
}

// handOver has the other process wait for the key before this one releases it.
func (h *handover) handOver(ctx context.Context) (took time.Duration, err error) {
	type acquisition struct {
		release func(context.Context) error
		at      time.Time
		err     error
	}
	next := make(chan acquisition, 1)
	go func() {
		release, err := h.lockers[1-h.holder].Lock(ctx, "key")
		next <- acquisition{release, time.Now(), err}
	}()
	if pace.Sleep(ctx, held) != nil {
		return 0, context.Cause(ctx)
	}
	began := time.Now()
	if err := h.release(ctx); err != nil && !errors.Is(err, dblock.ErrLost) {
		return 0, err
	}
	a := <-next
	h.holder, h.release = 1-h.holder, a.release
	return a.at.Sub(began), a.err
}

func (h *handover) close() error {
	var errs []error
	if h.release != nil {
		errs = append(errs, h.release(context.Background()))
	}
	for _, l := range h.lockers {
		if l != nil {
			errs = append(errs, l.Close())
		}
	}
	return errors.Join(errs...)
}
