package pgqueue_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/migrations"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/pgqueue"
)

// A job with a unique key dies, and runs again once an operator retries it.
func Example_dead() {
	ctx := context.Background()
	url, done := testdb.ExampleDSN(devdb.Postgres) // yours: postgres://app@db.example/shop
	defer done()
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	if _, err := migrations.Up(ctx, pool, migrations.Options{}); err != nil { // or: dblock migrate up
		fmt.Println(err)
		return
	}
	jobs, err := pgqueue.New(ctx, pool, queue.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = jobs.Close(ctx) }()

	repaired, attempt := false, make(chan struct{}, 1)
	err = queue.Handle(jobs, "rebuild", func(context.Context, queue.Job[string]) error {
		defer func() { attempt <- struct{}{} }()
		if !repaired {
			return queue.Discard(errors.New("no space left"))
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	work := func() error { // until there was an attempt
		ctx, stop := context.WithCancel(ctx)
		go func() { <-attempt; stop() }()
		return jobs.Work(ctx, queue.WorkerOptions{})
	}

	rebuild := queue.Task{Kind: "rebuild", Args: "shop 7", Unique: "rebuild shop 7"}
	id, err := jobs.Enqueue(ctx, rebuild)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = jobs.Enqueue(ctx, rebuild)
	fmt.Println("the same once more:", errors.Is(err, queue.ErrDuplicate))

	if err := work(); err != nil {
		fmt.Println(err)
		return
	}
	job, err := jobs.Show(ctx, id)
	fmt.Println(job.State, job.LastError, err)

	repaired = true
	if err := jobs.Retry(ctx, id); err != nil {
		fmt.Println(err)
		return
	}
	if err := work(); err != nil {
		fmt.Println(err)
		return
	}
	_, err = jobs.Show(ctx, id)
	fmt.Println("completed:", errors.Is(err, queue.ErrNoJob))
	// Output:
	// the same once more: true
	// dead no space left <nil>
	// completed: true
}
