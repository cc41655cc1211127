package bench

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// load is what the callers of a round are to do.
type load struct {
	clients int
	time    time.Duration
	rate    float64 // operations a second, of all callers together; 0: as fast as they can
	seed    uint64
	watch   func(*recorder) (stop func()) // reports progress
}

// drain bounds how long callers may take for what they began before the time was up.
const drain = time.Minute

var errStuck = fmt.Errorf("callers were still waiting %v after the time was up", drain)

// run has all callers work until the time is up, and waits for what they have begun. The first
// error that is no counted failure ends it.
func (r Round) run(parent context.Context, l load) (Sample, error) {
	if r.Run != nil {
		return r.Run(parent, l.time)
	}
	ops := make([]Op, l.clients)
	for id := range ops {
		var err error
		if ops[id], err = r.Client(id); err != nil {
			return Sample{}, err
		}
	}
	ctx, fail := context.WithCancelCause(parent)
	defer fail(nil)
	rec := newRecorder()
	stop := l.watch(rec)
	defer stop()
	elapsed := callers{ctx, fail, rec, l}.work(ops)
	if err := context.Cause(ctx); err != nil {
		return Sample{}, err
	}
	return rec.sample(elapsed), nil
}

// callers are those of one round.
type callers struct {
	ctx  context.Context
	fail context.CancelCauseFunc
	rec  *recorder
	l    load
}

// work returns how long it took from the start to the last answer.
func (c callers) work(ops []Op) time.Duration {
	var all sync.WaitGroup
	gate := make(chan struct{})
	ends := make([]time.Time, len(ops))
	var start time.Time
	var plan *schedule
	for id, op := range ops {
		all.Go(func() {
			<-gate
			if plan != nil {
				ends[id] = c.open(id, op, plan)
			} else {
				ends[id] = c.closed(id, op, start)
			}
		})
	}
	timer := time.AfterFunc(c.l.time+drain, func() { c.fail(errStuck) })
	defer timer.Stop()
	start = time.Now()
	if c.l.rate > 0 {
		plan = newSchedule(start, start.Add(c.l.time), c.l.rate, c.l.seed)
	}
	close(gate)
	all.Wait()
	last := start
	for _, end := range ends {
		if end.After(last) {
			last = end
		}
	}
	return last.Sub(start)
}

// closed begins the next operation when the last one has ended.
func (c callers) closed(id int, op Op, start time.Time) (end time.Time) {
	deadline := start.Add(c.l.time)
	for begin := start; begin.Before(deadline); begin = end {
		units, err := op(c.ctx)
		end = time.Now()
		if !c.count(id, units, err, end.Sub(begin)) {
			break
		}
	}
	return end
}

// open begins operations when the schedule says so, and counts their latencies from then: who waits
// for a free caller waits, too.
func (c callers) open(id int, op Op, plan *schedule) (end time.Time) {
	for {
		at, more := plan.next()
		if !more {
			return end
		}
		if !sleepUntil(c.ctx, at) {
			return end
		}
		if !time.Now().Before(plan.end) {
			c.rec.failed(id, "unstarted", 1)
			continue
		}
		units, err := op(c.ctx)
		end = time.Now()
		if !c.count(id, units, err, end.Sub(at)) {
			return end
		}
	}
}

// count records one operation; false ends the caller.
func (c callers) count(id, units int, err error, took time.Duration) bool {
	if err == nil {
		c.rec.done(id, units, took)
		return true
	}
	if c.ctx.Err() != nil {
		return false // it is only the echo of why all have to end
	}
	if kind := failureKind(err); kind != "" {
		c.rec.failed(id, kind, 1)
		return true
	}
	c.fail(fmt.Errorf("caller %d: %w", id, err))
	return false
}

func sleepUntil(ctx context.Context, at time.Time) bool {
	d := time.Until(at)
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
