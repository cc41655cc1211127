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

// Pickup measures how long it takes from the call that enqueues a job until its handler begins:
// jobs come one by one, at random moments, 300 a second or as --rate says, to workers that are
// idle.
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

func (p *pickup) run(ctx context.Context, d time.Duration, seed uint64) (Sample, error) {
	r := &pickupRun{jobs: p.jobs, watch: stopwatch{rec: newRecorder(), since: make(map[int]time.Time)}}
	began := make(chan struct{})
	r.crew = beginWork(ctx, p.jobs, Progress{
		Begun: func(job int) {
			<-began
			if err := r.watch.stop(job); err != nil {
				offer(r.crew.failed, err)
			}
		},
		Ended: func(jobs int) { r.ended.Add(int64(jobs)) },
	})
	close(began)
	sample, err := r.measure(d, cmp.Or(p.env.Rate, pickupRate), seed)
	return sample, r.crew.end(err)
}

// pickupRun is one round.
type pickupRun struct {
	jobs  Jobs
	crew  *crew
	watch stopwatch
	ended atomic.Int64
}

// measure enqueues jobs until the time is up, and waits for the last one.
func (r *pickupRun) measure(d time.Duration, rate float64, seed uint64) (Sample, error) {
	over := func() int64 { return min(r.watch.begun.Load(), r.ended.Load()) }
	r.enqueue(0)
	if err := r.crew.await(1, over); err != nil {
		return Sample{}, err
	}
	start := time.Now()
	plan := newSchedule(start, start.Add(d), rate, seed)
	var calls sync.WaitGroup
	defer calls.Wait()
	jobs := 1
	for at, more := plan.next(); more && pace.Sleep(r.crew.ctx, time.Until(at)) == nil; at, more = plan.next() {
		job := jobs
		jobs++
		calls.Go(func() { r.enqueue(job) })
	}
	if err := r.crew.await(jobs, over); err != nil {
		return Sample{}, err
	}
	return r.watch.rec.sample(time.Since(start)), nil
}

func (r *pickupRun) enqueue(job int) {
	r.watch.start(job)
	if err := r.jobs.Enqueue(r.crew.ctx, job, 1); err != nil && r.crew.ctx.Err() == nil {
		offer(r.crew.failed, err)
	}
}
