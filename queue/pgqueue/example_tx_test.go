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

// Payment is what a job of the kind "pay" needs to know.
type Payment struct {
	To     string
	Amount int
}

// A payment is booked exactly once, and its receipt is sent if it was.
func ExampleHandleTx() {
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
	if _, err := pool.Exec(ctx, "CREATE TABLE booking (payee text, amount int)"); err != nil {
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
	defer stop()
	err = pgqueue.HandleTx(jobs, "pay", func(ctx context.Context, tx pgx.Tx, job queue.Job[Payment]) error {
		if _, err := tx.Exec(ctx, "INSERT INTO booking VALUES ($1, $2)", job.Args.To, job.Args.Amount); err != nil {
			return err
		}
		if job.Attempt == 1 {
			return fmt.Errorf("a bad day") // what was written is rolled back
		}
		_, err := pgqueue.EnqueueTx(ctx, jobs, tx, queue.Task{Kind: "receipt", Args: job.Args})
		return err
	}, queue.Backoff(queue.Exponential(1, 1)))
	if err != nil {
		fmt.Println(err)
		return
	}
	err = queue.Handle(jobs, "receipt", func(ctx context.Context, job queue.Job[Payment]) error {
		defer stop() // a service works until it shuts down
		var booked int
		if err := pool.QueryRow(ctx, "SELECT sum(amount) FROM booking WHERE payee = $1", job.Args.To).Scan(&booked); err != nil {
			return err
		}
		fmt.Printf("%s has got %d\n", job.Args.To, booked)
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := jobs.Enqueue(ctx, queue.Task{Kind: "pay", Args: Payment{To: "ann", Amount: 10}}); err != nil {
		fmt.Println(err)
		return
	}
	if err := jobs.Work(ctx, queue.WorkerOptions{}); err != nil {
		fmt.Println(err)
	}
	// Output: ann has got 10
}
