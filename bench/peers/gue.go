package main

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/vgarvardt/gue/v5"
	"github.com/vgarvardt/gue/v5/adapter/pgxv5"

	"github.com/dblock-go/dblock/bench"
	"github.com/dblock-go/dblock/internal/devdb"
)

const (
	gueWorkers = 16
	guePoll    = 20 * time.Millisecond

	// gueBatch is how many jobs it is given at once: each has 8 parameters, of which a statement
	// has 65,535 at most.
	gueBatch = 1000
)

// gueScenarios are github.com/vgarvardt/gue on pgx. Each job is one transaction, in which its
// handler runs.
func gueScenarios() []bench.Scenario {
	scenario := func(name, about string) bench.JobsScenario {
		return bench.JobsScenario{
			Name: name, About: "github.com/vgarvardt/gue: " + about, Engines: []devdb.Kind{devdb.Postgres}, Conns: gueWorkers + 4, First: 1000, Open: openGue,
		}
	}
	return []bench.Scenario{
		scenario("queue/gue", "a backlog of jobs that do nothing, 16 workers").Burn(),
		scenario("enqueue/gue", "1000 jobs in a call of EnqueueBatch, from one client").Enqueue(),
	}
}

// gueTables are those of its migrations/schema.sql.
const gueTables = `
CREATE TABLE gue_jobs (
  job_id      TEXT        NOT NULL PRIMARY KEY,
  priority    SMALLINT    NOT NULL,
  run_at      TIMESTAMPTZ NOT NULL,
  job_type    TEXT        NOT NULL,
  args        BYTEA       NOT NULL,
  error_count INTEGER     NOT NULL DEFAULT 0,
  last_error  TEXT,
  queue       TEXT        NOT NULL,
  created_at  TIMESTAMPTZ NOT NULL,
  updated_at  TIMESTAMPTZ NOT NULL
);
CREATE INDEX idx_gue_jobs_selector ON gue_jobs (queue, run_at, priority)`

type gueJobs struct {
	pool   *pgxpool.Pool
	client *gue.Client
}

func openGue(ctx context.Context, env *bench.Env) (bench.Jobs, error) {
	pool, err := env.Postgres(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := pool.Exec(ctx, gueTables); err != nil {
		pool.Close()
		return nil, err
	}
	client, err := gue.NewClient(pgxv5.NewConnPool(pool))
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &gueJobs{pool, client}, nil
}

// Work reports ends when the table shows that all are committed: gue itself reports none.
func (g *gueJobs) Work(ctx context.Context, progress bench.Progress) error {
	backlog, err := g.Left(ctx)
	if err != nil {
		return err
	}
	var begun atomic.Int64
	handled := make(chan struct{})
	work := func(_ context.Context, job *gue.Job) error {
		var args riverArgs
		if err := json.Unmarshal(job.Args, &args); err != nil {
			return err
		}
		progress.Begun(args.N)
		if begun.Add(1) == backlog {
			close(handled)
		}
		return nil
	}
	workers, err := gue.NewWorkerPool(g.client, gue.WorkMap{"nothing": work}, gueWorkers, gue.WithPoolPollInterval(guePoll))
	if err != nil {
		return err
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	over := make(chan error, 1)
	go func() { over <- workers.Run(working) }()
	select {
	case <-handled:
		if err = g.await(ctx); err != nil {
			stop()
		} else {
			progress.Ended(int(backlog))
		}
	case <-ctx.Done():
	}
	return errors.Join(err, <-over)
}

// await waits until no job is left: the last few have yet to be committed.
func (g *gueJobs) await(ctx context.Context) error {
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for ctx.Err() == nil {
		if n, err := g.Left(ctx); err != nil || n == 0 {
			return err
		}
		select {
		case <-look.C:
		case <-ctx.Done():
		}
	}
	return nil
}

func (g *gueJobs) Enqueue(ctx context.Context, first, n int) error {
	for n > 0 {
		jobs := make([]*gue.Job, min(n, gueBatch))
		for i := range jobs {
			args, err := json.Marshal(riverArgs{first + i})
			if err != nil {
				return err
			}
			jobs[i] = &gue.Job{Type: "nothing", Args: args}
		}
		if err := g.client.EnqueueBatch(ctx, jobs); err != nil {
			return err
		}
		first += len(jobs)
		n -= len(jobs)
	}
	return nil
}

func (g *gueJobs) Clean(ctx context.Context) error {
	_, err := g.pool.Exec(ctx, "TRUNCATE TABLE gue_jobs")
	return err
}

func (g *gueJobs) Left(ctx context.Context) (n int64, err error) {
	err = g.pool.QueryRow(ctx, "SELECT count(*) FROM gue_jobs").Scan(&n)
	return n, err
}

func (g *gueJobs) Close() error { g.pool.Close(); return nil }
