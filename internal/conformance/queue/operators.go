package queue

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/schema"
	"github.com/dblock-go/dblock/queue"
)

// operatorsOfJobsNeedTheirGrants does what the commands of queue do.
func operatorsOfJobsNeedTheirGrants(t *testing.T, d *env) {
	as, name := suite.GrantedUser(t, d.e.Kind, d.dsn, d.db, schema.PostgresOperatorGrants, schema.MySQLOperatorGrants)
	operator, service := (&env{d.e, as, d.db}).open(t, queue.Options{History: 1}), d.open(t, queue.Options{})
	began := make(chan int, 1)
	handle(t, service, "long", func(ctx context.Context, _ queue.Job[int]) error {
		began <- 1
		<-ctx.Done()
		return ctx.Err()
	})
	work(t, service, queue.WorkerOptions{Queue: "long"})
	n, long := 0, queue.ID{} // a running job, until it is cancelled
	suite.EachGrantIsNeeded(t, d.e.Kind, d.db, name, func(table string) bool { return strings.HasPrefix(table, "dblock_queue") }, func() error {
		n++
		if long == (queue.ID{}) {
			long = enqueue(t, service, queue.Task{Kind: "long", Args: n, Queue: "long"})[0]
			wait(t, began, "the long job")
		}
		jobs := enqueue(t, service,
			queue.Task{Kind: "note", Args: 0, Unique: fmt.Sprint("ready", n)}, queue.Task{Kind: "note", Args: 1, Delay: time.Hour},
			queue.Task{Kind: "note", Args: 2, Group: fmt.Sprint(n)}, queue.Task{Kind: "note", Args: 3, Group: fmt.Sprint(n)},
			queue.Task{Kind: "note", Args: 4}, queue.Task{Kind: "note", Args: 5, Group: fmt.Sprint("dead", n), Unique: fmt.Sprint("dead", n)})
		for _, step := range queueCommands(t.Context(), operator, jobs, long) {
			if err := step(); err != nil {
				return err
			}
		}
		long = queue.ID{}
		return nil
	})
}

// queueCommands change jobs of every state: ready, scheduled, blocked, dead and running.
func queueCommands(ctx context.Context, operator *queue.Queue, jobs []queue.ID, running queue.ID) (steps []func() error) {
	discard := func(id queue.ID) func() error {
		return func() error { return operator.Discard(ctx, id, "not wanted") }
	}
	steps = []func() error{
		func() error { _, err := operator.Stats(ctx); return err },
		func() error { _, err := operator.Show(ctx, jobs[0]); return err },
		func() error { return operator.Pause(ctx, "note") },
		func() error { return operator.Resume(ctx, "note") },
	}
	for state := queue.Ready; state <= queue.Retrying; state++ {
		steps = append(steps, func() error { _, err := operator.List(ctx, queue.Filter{State: state}); return err })
	}
	for _, id := range jobs[4:] {
		steps = append(steps, discard(id), func() error { return operator.Retry(ctx, id) }, discard(id))
	}
	steps = append(steps, func() error { _, err := operator.RetryAll(ctx, ""); return err }, discard(jobs[4]),
		func() error { _, err := operator.Purge(ctx, "", 0); return err })
	for _, id := range append(jobs[:4:4], jobs[5], running) {
		steps = append(steps, func() error { _, err := operator.Cancel(ctx, id); return err })
	}
	return steps
}
