package mysqlqueue_test

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/migrations"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/mysqlqueue"
)

// Payment is what a job of the kind "pay" needs to know.
type Payment struct {
	To     string
	Amount int
}

// A payment is booked exactly once, and its receipt is sent if it was.
func ExampleHandleTx() {
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
	if _, err := db.ExecContext(ctx, "CREATE TABLE booking (payee varchar(100), amount int)"); err != nil {
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
	defer stop()
	err = mysqlqueue.HandleTx(jobs, "pay", func(ctx context.Context, tx *sql.Tx, job queue.Job[Payment]) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO booking VALUES (?, ?)", job.Args.To, job.Args.Amount); err != nil {
			return err
		}
		if job.Attempt == 1 {
			return fmt.Errorf("a bad day") // what was written is rolled back
		}
		_, err := mysqlqueue.EnqueueTx(ctx, jobs, tx, queue.Task{Kind: "receipt", Args: job.Args})
		return err
	}, queue.Backoff(queue.Exponential(1, 1)))
	if err != nil {
		fmt.Println(err)
		return
	}
	err = queue.Handle(jobs, "receipt", func(ctx context.Context, job queue.Job[Payment]) error {
		defer stop() // a service works until it shuts down
		var booked int
		if err := db.QueryRowContext(ctx, "SELECT sum(amount) FROM booking WHERE payee = ?", job.Args.To).Scan(&booked); err != nil {
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
