// Command worker is a service that has its work done by a queue in its own database. Beside a
// throwaway server of each kind that is found:
//
//	go run ./cmd/dblock demo -- go run ./examples/worker
//
// On a database of yours that has dblock's tables (dblock migrate up) give its address in
// DBLOCK_POSTGRES_URL or DBLOCK_MYSQL_DSN. It ends when its jobs are done; with -stay it works
// until it is interrupted, and any number of them share the work.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/mysqlqueue"
	"github.com/dblock-go/dblock/queue/pgqueue"
)

// Order is what a job needs to know.
type Order struct {
	Number int
	Email  string
}

func main() {
	stay := flag.Bool("stay", false, "work until it is interrupted")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *stay); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, stay bool) error {
	shop, err := open(ctx)
	if err != nil {
		return err
	}
	defer shop.close()

	var mailed sync.WaitGroup
	err = queue.Handle(shop.jobs, "confirm order", func(_ context.Context, job queue.Job[Order]) error {
		if job.Args.Number == 3 && job.Attempt == 1 {
			log.Print("order 3: the mail server does not answer: it is tried again in about a second")
			return errors.New("no answer")
		}
		log.Printf("order %d: a mail to %s (attempt %d)", job.Args.Number, job.Args.Email, job.Attempt)
		if !stay {
			mailed.Done()
		}
		return nil
	})
	if err != nil {
		return err
	}
	for n := range 5 { // as a web server would, whose requests these are
		mailed.Add(1)
		if err := shop.order(ctx, Order{Number: n + 1, Email: fmt.Sprintf("customer%d@example.com", n+1)}); err != nil {
			return err
		}
	}

	ctx, done := context.WithCancel(ctx)
	if !stay {
		go func() {
			mailed.Wait()
			done()
		}()
	}
	defer done()
	return shop.jobs.Work(ctx, queue.WorkerOptions{Concurrency: 10}) // what runs may end, and what was not begun is handed back
}

// shop is the service's database.
type shop struct {
	jobs  *queue.Queue
	order func(context.Context, Order) error // one transaction: the order, and the job that belongs to it
	close func()
}

func open(ctx context.Context) (*shop, error) {
	options := queue.Options{Label: "worker"}
	task := func(o Order) queue.Task { return queue.Task{Kind: "confirm order", Args: o} }
	switch {
	case os.Getenv("DBLOCK_POSTGRES_URL") != "":
		pool, err := pgxpool.New(ctx, os.Getenv("DBLOCK_POSTGRES_URL"))
		if err != nil {
			return nil, err
		}
		jobs, err := pgqueue.New(ctx, pool, options)
		if err != nil {
			return nil, err
		}
		order := func(ctx context.Context, o Order) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				// INSERT INTO orders … with the same tx
				_, err := pgqueue.EnqueueTx(ctx, jobs, tx, task(o))
				return err
			})
		}
		return &shop{jobs, order, func() { closeJobs(jobs); pool.Close() }}, nil
	case os.Getenv("DBLOCK_MYSQL_DSN") != "":
		db, err := sql.Open("mysql", os.Getenv("DBLOCK_MYSQL_DSN"))
		if err != nil {
			return nil, err
		}
		jobs, err := mysqlqueue.New(ctx, db, options)
		if err != nil {
			return nil, err
		}
		order := func(ctx context.Context, o Order) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }() // nothing, once it is committed
			if _, err = mysqlqueue.EnqueueTx(ctx, jobs, tx, task(o)); err != nil {
				return err
			}
			return tx.Commit()
		}
		return &shop{jobs, order, func() { closeJobs(jobs); _ = db.Close() }}, nil
	}
	return nil, errors.New("set DBLOCK_POSTGRES_URL or DBLOCK_MYSQL_DSN, or run it by: go run ./cmd/dblock demo -- go run ./examples/worker")
}

func closeJobs(jobs *queue.Queue) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := jobs.Close(ctx); err != nil {
		log.Print(err)
	}
}
