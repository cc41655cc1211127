package mysqlqueue_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/migrations"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/mysqlqueue"
)

// Welcome is what a job of the kind "welcome" needs to know.
type Welcome struct{ Name string }

func Example() {
	ctx := context.Background()
	dsn, done := testdb.ExampleDSN(family()[0]) // yours: app@tcp(db.example:3306)/shop
	defer done()

	db, err := sql.Open("mysql", dsn)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = db.Close() }()
	if _, err := migrations.Up(ctx, db, migrations.Options{}); err != nil { // or: dblock migrate up
		fmt.Println(err)
		return
	}
	jobs, err := mysqlqueue.New(ctx, db, queue.Options{})
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
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := mysqlqueue.EnqueueTx(ctx, jobs, tx, queue.Task{Kind: "welcome", Args: Welcome{Name: "ann"}}); err != nil {
		fmt.Println(errors.Join(err, tx.Rollback()))
		return
	}
	if err := tx.Commit(); err != nil {
		fmt.Println(err)
		return
	}
	if err := jobs.Work(ctx, queue.WorkerOptions{}); err != nil {
		fmt.Println(err)
	}
	// Output: welcome, ann
}
