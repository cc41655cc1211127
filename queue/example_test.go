package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/dblock-go/dblock/queue"
)

// Welcome is what a job of the kind "welcome" needs to know.
type Welcome struct{ Address string }

// send sends a mail.
func send(context.Context, string) error { return nil }

// A Queue enqueues jobs, and runs them until ctx ends. The packages pgqueue and mysqlqueue have
// whole programs.
func ExampleQueue() {
	ctx := context.Background()
	var jobs *queue.Queue // of pgqueue.New or mysqlqueue.New

	err := queue.Handle(jobs, "welcome", func(ctx context.Context, job queue.Job[Welcome]) error {
		return send(ctx, job.Args.Address) // an error: again after a while
	})
	if err != nil {
		log.Fatal(err)
	}
	id, err := jobs.Enqueue(ctx, queue.Task{Kind: "welcome", Args: Welcome{Address: "ann@example.com"}})
	if err != nil {
		log.Fatal(err)
	}
	log.Print("enqueued ", id)
	if err := jobs.Work(ctx, queue.WorkerOptions{Concurrency: 10}); err != nil {
		log.Fatal(err)
	}
}

// What a handler returns decides what becomes of its job.
func ExampleHandle() {
	var jobs *queue.Queue // of pgqueue.New or mysqlqueue.New
	var errNoSuchAddress, errUnsubscribed, errTooEarly error

	err := queue.Handle(jobs, "welcome", func(ctx context.Context, job queue.Job[Welcome]) error {
		switch err := send(ctx, job.Args.Address); {
		case errors.Is(err, errTooEarly):
			return queue.Snooze(time.Hour) // again in an hour, which is no attempt
		case errors.Is(err, errNoSuchAddress):
			return queue.Discard(err) // dead: kept with the error
		case errors.Is(err, errUnsubscribed):
			return queue.Cancel(err) // cancelled: nothing is kept
		default:
			return err // nil: completed; else again after the backoff
		}
	}, queue.Timeout(5*time.Minute), queue.Backoff(queue.Exponential(time.Second, time.Hour)))
	if err != nil {
		log.Fatal(err)
	}
}

// One job of the queue has a unique key at a time. Jobs of a group run one after the other, in the
// order in which they were enqueued.
func ExampleTask() {
	ctx := context.Background()
	var jobs *queue.Queue // of pgqueue.New or mysqlqueue.New

	id, err := jobs.Enqueue(ctx, queue.Task{Kind: "rebuild", Args: "shop 7", Unique: "rebuild shop 7"})
	if errors.Is(err, queue.ErrDuplicate) {
		log.Print(id, " has the key, and has not ended")
	}
	_, err = jobs.EnqueueMany(ctx, []queue.Task{
		{Kind: "opened", Args: 7, Group: "account 7"},
		{Kind: "closed", Args: 7, Group: "account 7", Delay: time.Hour},
	})
	if err != nil {
		log.Print(err)
	}
}

// Dead jobs are kept until an operator retries or purges them.
func ExampleQueue_Retry() {
	ctx := context.Background()
	var jobs *queue.Queue // of pgqueue.New or mysqlqueue.New

	dead, err := jobs.List(ctx, queue.Filter{State: queue.JobDead})
	if err != nil {
		log.Fatal(err)
	}
	for _, job := range dead {
		log.Print(job.ID, " died of ", job.LastError)
		if err := jobs.Retry(ctx, job.ID); err != nil {
			log.Print(err)
		}
	}
	if _, err := jobs.Purge(ctx, "", 30*24*time.Hour); err != nil { // those that died a month ago
		log.Print(err)
	}
}

// The first pause is a second, the last a minute, each give or take a quarter.
func ExampleExponential() {
	backoff := queue.Exponential(time.Second, time.Minute)
	first, last := backoff(1, nil), backoff(25, nil)
	fmt.Println(first >= 750*time.Millisecond && first <= 1250*time.Millisecond)
	fmt.Println(last >= 45*time.Second && last <= 75*time.Second)
	// Output:
	// true
	// true
}
