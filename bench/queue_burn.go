package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
)

// Burn measures how fast a backlog is done: the jobs are enqueued, and then the clock runs from the
// start of the workers until the end of the last job is committed. The log that it costs is that of
// the enqueuing, too: from insert to finish.
func (s JobsScenario) Burn() Scenario {
	return s.scenario(func(env *Env, jobs Jobs) Workload { return &burn{env: env, jobs: jobs, first: s.First} })
}

type burn struct {
	env   *Env
	jobs  Jobs
	first int
	rate  float64 // of the last round, in jobs a second
}

const (
	firstBacklog = 20_000
	leastBacklog = 100
	mostBacklog  = 1_000_000
)

// size is how large the backlog is to be that takes about so long.
func (b *burn) size(d time.Duration) int {
	switch {
	case b.env.Jobs > 0:
		return b.env.Jobs
	case b.rate == 0:
		return cmp.Or(b.first, firstBacklog)
	}
	return min(max(int(b.rate*d.Seconds()), leastBacklog), mostBacklog)
}

func (b *burn) Close() error { return b.jobs.Close() }

func (b *burn) Round(ctx context.Context, _ int) (Round, error) {
	if err := b.jobs.Clean(ctx); err != nil {
		return Round{}, err
	}
	if err := checkpoint(ctx, b.env); err != nil {
		return Round{}, err
	}
	return Round{Run: b.run, Here: true, Check: noneLeft(b.jobs)}, nil
}

func (b *burn) run(ctx context.Context, d time.Duration) (sample Sample, err error) {
	n := b.size(d)
	if err := fill(ctx, b.env, b.jobs, n); err != nil {
		return sample, err
	}
	if err := analyze(ctx, b.env); err != nil {
		return sample, err
	}
	runtime.GC()
	took, err := b.drain(ctx, n)
	if err != nil {
		return sample, err
	}
	rec := newRecorder()
	rec.done(0, n, took)
	sample = rec.sample(took)
	b.rate = sample.perSecond()
	return sample, nil
}

var errTooMany = errors.New("more jobs have ended than there were")

// drain has the workers do n jobs, and returns how long that took.
func (b *burn) drain(ctx context.Context, n int) (took time.Duration, err error) {
	var ended atomic.Int64
	var last atomic.Pointer[time.Time]
	c := beginWork(ctx, b.jobs, Progress{Begun: func(int) {}, Ended: func(jobs int) {
		if sum := ended.Add(int64(jobs)); sum >= int64(n) {
			now := time.Now()
			last.CompareAndSwap(nil, &now)
		}
	}})
	if err := c.end(c.await(n, func() int64 { return ended.Load() })); err != nil {
		return 0, err
	}
	if sum := ended.Load(); sum != int64(n) {
		return 0, fmt.Errorf("%w: %d, and not %d", errTooMany, sum, n)
	}
	return last.Load().Sub(c.began), nil
}

// crew is a call of Jobs.Work.
type crew struct {
	ctx    context.Context
	stop   context.CancelFunc
	began  time.Time
	moved  chan struct{} // a job has begun or ended
	failed chan error    // the first reason why the round is wrong
	over   chan error
}

func beginWork(ctx context.Context, jobs Jobs, progress Progress) *crew {
	c := &crew{began: time.Now(), moved: make(chan struct{}, 1), failed: make(chan error, 1), over: make(chan error, 1)}
	c.ctx, c.stop = context.WithCancel(ctx)
	moving := Progress{
		Begun: func(job int) { progress.Begun(job); offer(c.moved, struct{}{}) },
		Ended: func(jobs int) { progress.Ended(jobs); offer(c.moved, struct{}{}) },
	}
	go func() {
		err := jobs.Work(c.ctx, moving)
		if c.ctx.Err() == nil {
			offer(c.failed, errors.Join(errors.New("the workers have ended before they were to"), err))
		} else if ctx.Err() != nil {
			offer(c.failed, context.Cause(ctx))
		}
		c.over <- err
	}()
	return c
}

// offer sends to a channel unless it is full.
func offer[T any](to chan T, v T) {
	select {
	case to <- v:
	default:
	}
}

// await waits until a count is at n. It gives up if for long no job has begun or ended.
func (c *crew) await(n int, count func() int64) error {
	patience := time.NewTimer(drain)
	defer patience.Stop()
	for count() < int64(n) {
		select {
		case <-c.moved:
			patience.Reset(drain)
		case err := <-c.failed:
			return err
		case <-patience.C:
			return fmt.Errorf("%w: %d of %d jobs", errStuck, count(), n)
		}
	}
	select {
	case err := <-c.failed:
		return err
	default:
		return nil
	}
}

// end stops the work, and returns what it said, unless there is an error already.
func (c *crew) end(already error) error {
	c.stop()
	err := <-c.over
	if already != nil {
		return already
	}
	return err
}
