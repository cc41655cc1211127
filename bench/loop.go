package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/pace"
)

// load is what the clients of a round are to do.
type load struct {
	clients int
	time    time.Duration
	rate    float64 // operations a second, of all clients together; 0: as fast as they can
	seed    uint64
	watch   func(*recorder) (stop func()) // reports progress
}

// drain bounds how long clients may take for what they began before the time was up.
const drain = time.Minute

var errStuck = fmt.Errorf("clients were still waiting %v after the time was up", drain)

// run has all clients work until the time is up, and waits for what they have begun. The first
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
	elapsed := runner{ctx, fail, rec, l}.work(ops)
	if err := context.Cause(ctx); err != nil {
		return Sample{}, err
	}
	return rec.sample(elapsed), nil
}

// runner runs the clients of one round.
type runner struct {
	ctx  context.Context
	fail context.CancelCauseFunc
	rec  *recorder
	l    load
}

// work returns how long it took from the start to the last answer.
func (r runner) work(ops []Op) time.Duration {
	var all sync.WaitGroup
	gate := make(chan struct{})
	ends := make([]time.Time, len(ops))
	var start time.Time
	var plan *schedule
	for id, op := range ops {
		all.Go(func() {
			<-gate
			if plan != nil {
				ends[id] = r.open(id, op, plan)
			} else {
				ends[id] = r.closed(id, op, start)
			}
		})
	}
	timer := time.AfterFunc(r.l.time+drain, func() { r.fail(errStuck) })
	defer timer.Stop()
	start = time.Now()
	if r.l.rate > 0 {
		plan = newSchedule(start, start.Add(r.l.time), r.l.rate, r.l.seed)
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
func (r runner) closed(id int, op Op, start time.Time) (end time.Time) {
	deadline := start.Add(r.l.time)
	for begin := start; begin.Before(deadline); begin = end {
		units, err := op(r.ctx)
		end = time.Now()
		if !r.count(id, units, err, end.Sub(begin)) {
			break
		}
	}
	return end
}

// open begins operations when the schedule says so. Latencies count from then, so they include the
// wait for a free client.
func (r runner) open(id int, op Op, plan *schedule) (end time.Time) {
	for {
		at, more := plan.next()
		if !more {
			return end
		}
		if pace.Sleep(r.ctx, time.Until(at)) != nil {
			return end
		}
		if !time.Now().Before(plan.end) {
			r.rec.failed(id, "unstarted", 1)
			continue
		}
		units, err := op(r.ctx)
		end = time.Now()
		if !r.count(id, units, err, end.Sub(at)) {
			return end
		}
	}
}

// count records one operation; false ends the client.
func (r runner) count(id, units int, err error, took time.Duration) bool {
	if err == nil {
		r.rec.done(id, units, took)
		return true
	}
	if r.ctx.Err() != nil {
		return false // it is only the echo of why all have to end
	}
	if kind := failureKind(err); kind != "" {
		r.rec.failed(id, kind, 1)
		return true
	}
	r.fail(fmt.Errorf("client %d: %w", id, err))
	return false
}

// schedule says when the operations of an open loop are due: at random moments, as many a second as
// was asked for on average, whether a client is free or not.
type schedule struct {
	end  time.Time
	step float64 // nanoseconds between two, on average

	mu     sync.Mutex
	last   time.Time
	random *rand.Rand
}

func newSchedule(start, end time.Time, rate float64, seed uint64) *schedule {
	return &schedule{end: end, step: 1e9 / rate, last: start, random: rand.New(rand.NewPCG(seed, 1))}
}

// next returns the next moment; false when the time is up.
func (s *schedule) next() (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = s.last.Add(time.Duration(s.random.ExpFloat64() * s.step))
	return s.last, s.last.Before(s.end)
}
