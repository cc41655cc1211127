package pgqueue_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/migrations"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/pgqueue"
)

// Welcome is what a job of the kind "welcome" needs to know.
type Welcome struct{ Name string }

func Example() {
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

	ctx, stop := context.WithCancel(ctx)
	err = queue.Handle(jobs, "welcome", func(_ context.Context, job queue.Job[Welcome]) error {
		fmt.Println("welcome,", job.Args.Name)
		stop() // a service works until it shuts down
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	// The job is there if and when the transaction commits, with whatever else it writes.
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := pgqueue.EnqueueTx(ctx, jobs, tx, queue.Task{Kind: "welcome", Args: Welcome{Name: "ann"}})
		return err
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := jobs.Work(ctx, queue.WorkerOptions{}); err != nil {
		fmt.Println(err)
	}
	// Output: welcome, ann
}
