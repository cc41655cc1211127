package queue

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/queue"
)

// aRestartStrandsNoJob kills the server while processes drain a queue, and starts it again. All jobs are done then, though no process can be
// declared dead: what claims and ends without an answer have left is cleared up without waiting for the TTL, an hour here.
func aRestartStrandsNoJob(t *testing.T, d *env) {
	const jobs, processes, before = 4000, 2, 500
	d, server := d.onAServerOfItsOwn(t)
	var handled, rescued atomic.Int64
	middle := make(chan struct{})
	o := queue.Options{TTL: time.Hour, Observer: queue.Observer{Rescued: func(again, dead int) { rescued.Add(int64(again + dead)) }}}
	tasks := make([]queue.Task, jobs)
	for i := range tasks {
		tasks[i] = queue.Task{Kind: "note", Args: i}
		switch {
		case i%20 == 0:
			tasks[i].Group = fmt.Sprint(i % 100)
		case i%20 == 1:
			tasks[i].Unique = fmt.Sprint(i)
		}
	}
	for i := range processes {
		q, closePool, err := d.e.Open(t.Context(), d.dsn, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			_ = q.Close(ctx) // the connection of the heartbeats may have ended with the server
			closePool()
		})
		if i == 0 {
			if _, err := q.EnqueueMany(suite.Soon(t), tasks); err != nil {
				t.Fatal(err)
			}
		}
		handle(t, q, "note", func(context.Context, queue.Job[int]) error {
			if handled.Add(1) == before {
				close(middle)
			}
			return nil
		})
		work(t, q, queue.WorkerOptions{})
	}
	wait(t, middle, "the jobs that are done before the server is killed")
	if server != nil {
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := server.Restart(context.WithoutCancel(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	back := time.Now()
	d.drained(t)
	t.Logf("drained %v after the restart, %d jobs were handled for %d", time.Since(back), handled.Load(), jobs)
	if n := rescued.Load(); n > 0 {
		t.Errorf("%d jobs were rescued", n)
	}
}
