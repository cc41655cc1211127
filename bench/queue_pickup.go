package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/internal/pace"
)

// pickupRate is how many jobs a second are enqueued, where --rate says nothing.
const pickupRate = 300

// Pickup measures how long it takes from the call that enqueues a job until its handler begins: jobs come one by one, at random moments,
// 300 a second or as --rate says, to workers that are idle.
func (s JobsScenario) Pickup() Scenario {
	return s.scenario(func(env *Env, jobs Jobs) Workload { return &pickup{env, jobs} })
}

type pickup struct {
	env  *Env
	jobs Jobs
}

func (p *pickup) Close() error { return p.jobs.Close() }

func (p *pickup) Round(ctx context.Context, n int) (Round, error) {
	if err := p.jobs.Clean(ctx); err != nil {
		return Round{}, err
	}
	return Round{
		Here:  true,
		Run:   func(ctx context.Context, d time.Duration) (Sample, error) { return p.run(ctx, d, p.env.Seed+uint64(n)) },
		Check: noneLeft(p.jobs),
	}, nil
}

// stopwatch times jobs from when they are enqueued until they begin.
type stopwatch struct {
	rec   *recorder
	begun atomic.Int64

	mu    sync.Mutex
	since map[int]time.Time
}

var errTwice = errors.New("a job has begun twice, or was never enqueued")

func (s *stopwatch) start(job int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since[job] = time.Now()
}

func (s *stopwatch) stop(job int) error {
	now := time.Now()
	s.mu.Lock()
	since, there := s.since[job]
	delete(s.since, job)
	s.mu.Unlock()
	if !there {
		return fmt.Errorf("%w: %d", errTwice, job)
	}
	if job > 0 { // the first one only finds out that the workers are there
		s.rec.done(job, 1, now.Sub(since))
	}
	s.begun.Add(1)
	return nil
}

// pickupRun is one round.
type pickupRun struct {
	*pickup
	watch  stopwatch
	ended  atomic.Int64
	moved  chan struct{} // something has begun or ended
	failed chan error
}

func (p *pickup) run(ctx context.Context, d time.Duration, seed uint64) (Sample, error) {
	r := &pickupRun{pickup: p, moved: make(chan struct{}, 1), failed: make(chan error, 1)}
	r.watch.rec, r.watch.since = newRecorder(), make(map[int]time.Time)
	c := beginWork(ctx, p.jobs, Told{
		Begun: func(job int) {
			if err := r.watch.stop(job); err != nil {
				r.fail(err)
			}
			r.move()
		},
		Ended: func(jobs int) {
			r.ended.Add(int64(jobs))
			r.move()
		},
	})
	sample, err := r.measure(c, d, seed)
	return sample, c.end(err)
}

func (r *pickupRun) fail(err error) {
	select {
	case r.failed <- err:
	default:
	}
}

func (r *pickupRun) move() {
	select {
	case r.moved <- struct{}{}:
	default:
	}
}

// measure enqueues jobs until the time is up, and waits for the last one.
func (r *pickupRun) measure(c *crew, d time.Duration, seed uint64) (Sample, error) {
	r.enqueue(c.ctx, 0)
	if err := r.await(c, 1); err != nil {
		return Sample{}, err
	}
	start := time.Now()
	plan := newSchedule(start, start.Add(d), cmp.Or(r.env.Rate, pickupRate), seed)
	var calls sync.WaitGroup
	defer calls.Wait()
	jobs := 1
	for at, more := plan.next(); more && pace.Sleep(c.ctx, time.Until(at)) == nil; at, more = plan.next() {
		job := jobs
		jobs++
		calls.Go(func() { r.enqueue(c.ctx, job) })
	}
	if err := r.await(c, int64(jobs)); err != nil {
		return Sample{}, err
	}
	return r.watch.rec.sample(time.Since(start)), nil
}

func (r *pickupRun) enqueue(ctx context.Context, job int) {
	r.watch.start(job)
	if err := r.jobs.Enqueue(ctx, job, 1); err != nil && ctx.Err() == nil {
		r.fail(err)
	}
}

// await waits until so many jobs have begun and ended.
func (r *pickupRun) await(c *crew, jobs int64) error {
	patience := time.NewTimer(drain)
	defer patience.Stop()
	for r.watch.begun.Load() < jobs || r.ended.Load() < jobs {
		select {
		case <-r.moved:
		case err := <-r.failed:
			return err
		case err := <-c.failed:
			return err
		case <-patience.C:
			return fmt.Errorf("%w: %d of %d jobs have begun", errStuck, r.watch.begun.Load(), jobs)
		}
	}
	select {
	case err := <-r.failed:
		return err
	default:
		return nil
	}
}
