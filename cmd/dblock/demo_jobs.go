package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/queue"
)

// jobsResult is one run of the queue's demo.
type jobsResult struct {
	Server   string  `json:"server"`
	Jobs     int     `json:"jobs"`
	Done     int     `json:"done"`
	Failures int     `json:"failures"` // attempts: each was tried again
	Dead     int     `json:"dead"`
	EachS    float64 `json:"jobs_per_s"`
}

// parcel is what a job of the demo is about.
type parcel struct{ Number int }

var (
	errAbsent    = errors.New("the recipient is absent")
	errNoAddress = errors.New("there is no such address")
)

// jobs has two workers deliver parcels. Every tenth attempt fails at first, and every hundredth
// parcel can't be delivered at all.
func (c *demoCmd) jobs(ctx context.Context, s *shop, std streams) ([]any, error) {
	var done, failures, dead atomic.Int64
	over := make(chan struct{}) // all jobs have ended
	ended := func() {
		if done.Load()+dead.Load() == int64(c.Jobs) {
			close(over)
		}
	}
	var counting sync.Mutex
	count := func(of *atomic.Int64) {
		counting.Lock()
		defer counting.Unlock()
		of.Add(1)
		ended()
	}
	seen := queue.Observer{
		Completed: func(queue.Info, time.Duration) { count(&done) },
		Failed:    func(queue.Info, error, time.Duration) { failures.Add(1) },
		Discarded: func(queue.Info, error) { count(&dead) },
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	var workers [2]*queue.Queue
	for i := range workers { // in a service each is a process of its own
		var err error
		if workers[i], err = s.queue(ctx, queue.Options{Label: fmt.Sprint("worker ", i+1), Observer: seen}); err != nil {
			return nil, err
		}
		defer func() { _ = closeSoon(ctx, workers[i].Close) }()
		if err := queue.Handle(workers[i], "deliver", deliver); err != nil {
			return nil, err
		}
	}
	tasks := make([]queue.Task, c.Jobs)
	for i := range tasks {
		tasks[i] = queue.Task{Kind: "deliver", Args: parcel{Number: i + 1}}
	}
	for from := 0; from < len(tasks); from += queue.MaxTasks {
		if _, err := workers[0].EnqueueMany(ctx, tasks[from:min(from+queue.MaxTasks, len(tasks))]); err != nil {
			return nil, err
		}
	}
	began := time.Now()
	left := make(chan error, len(workers))
	for _, w := range workers {
		go func() {
			left <- w.Work(working, queue.WorkerOptions{Backoff: queue.Exponential(10*time.Millisecond, time.Second)})
		}()
	}
	select {
	case <-over:
	case <-ctx.Done():
	}
	took := time.Since(began)
	stop()
	var err error
	for range workers {
		err = errors.Join(err, <-left)
	}
	r := jobsResult{
		Server: string(s.server.Kind), Jobs: c.Jobs, Done: int(done.Load()), Failures: int(failures.Load()), Dead: int(dead.Load()),
		EachS: float64(done.Load()) / took.Seconds(),
	}
	if !c.JSON {
		_, _ = fmt.Fprintf(std.out, "%s: of %d jobs %d were done and %d given up, after %d attempts that failed; %.0f a second\n",
			r.Server, r.Jobs, r.Done, r.Dead, r.Failures, r.EachS)
	}
	return []any{r}, errors.Join(err, context.Cause(ctx))
}

func deliver(_ context.Context, job queue.Job[parcel]) error {
	switch {
	case job.Args.Number%100 == 0:
		return queue.Discard(errNoAddress)
	case job.Args.Number%10 == 0 && job.Attempt == 1:
		return errAbsent
	}
	return nil
}
