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

// Burn measures how fast a backlog is done: the jobs are enqueued, and then the clock runs from the start of the workers until the end
// of the last job is committed. The log that it costs is that of the enqueuing, too: from insert to finish.
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
	last := make(chan time.Time, 1)
	c := beginWork(ctx, b.jobs, Told{Begun: func(int) {}, Ended: func(jobs int) {
		if sum := ended.Add(int64(jobs)); sum >= int64(n) && sum-int64(jobs) < int64(n) {
			last <- time.Now()
		}
	}})
	var at time.Time
	select {
	case at = <-last:
	case err = <-c.failed:
	case <-stalled(c.ctx, &ended):
		err = fmt.Errorf("%w: %d of %d jobs", errStuck, ended.Load(), n)
	}
	if err := c.end(err); err != nil {
		return 0, err
	}
	if sum := ended.Load(); sum != int64(n) {
		return 0, fmt.Errorf("%w: %d, and not %d", errTooMany, sum, n)
	}
	return at.Sub(c.began), nil
}

// crew is a call of Jobs.Work.
type crew struct {
	ctx    context.Context
	stop   context.CancelFunc
	began  time.Time
	failed chan error // it has returned, though it was not told to
	over   chan error
}

func beginWork(ctx context.Context, jobs Jobs, told Told) *crew {
	c := &crew{began: time.Now(), failed: make(chan error, 1), over: make(chan error, 1)}
	c.ctx, c.stop = context.WithCancel(ctx)
	go func() {
		err := jobs.Work(c.ctx, told)
		if c.ctx.Err() == nil {
			c.failed <- errors.Join(errors.New("the workers have ended before they were to"), err)
		} else if ctx.Err() != nil {
			c.failed <- context.Cause(ctx)
		}
		c.over <- err
	}()
	return c
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

// stalled is closed when a count has not changed for as long as clients may take at most.
func stalled(ctx context.Context, count *atomic.Int64) <-chan struct{} {
	is := make(chan struct{})
	go func() {
		tick := time.NewTicker(drain)
		defer tick.Stop()
		for was := int64(-1); ; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			now := count.Load()
			if now == was {
				close(is)
				return
			}
			was = now
		}
	}()
	return is
}
