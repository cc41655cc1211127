package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/dblock-go/dblock/bench"
	"github.com/dblock-go/dblock/internal/devdb"
)

// riverConns is more than a client has at once.
const riverConns = 16

// riverScenarios are github.com/riverqueue/river on pgx. It keeps jobs that are done for a day.
func riverScenarios() []bench.Scenario {
	scenario := func(name, about string, first int, o riverOptions) bench.JobsScenario {
		return bench.JobsScenario{
			Name: name, About: "github.com/riverqueue/river: " + about, Engines: []devdb.Kind{devdb.Postgres}, Conns: riverConns + 2, First: first,
			Open: func(ctx context.Context, env *bench.Env) (bench.Jobs, error) { return openRiver(ctx, env, o) },
		}
	}
	const backlog, slow = "a backlog of jobs that do nothing: ", 1000
	tuned := riverOptions{workers: 2000, cooldown: 2 * time.Millisecond, poll: 20 * time.Millisecond}
	defaults := riverOptions{workers: 100}
	fast := defaults
	fast.fast = true
	return []bench.Scenario{
		scenario("queue/river", backlog+"the settings of its own benchmark, 2000 workers", 0, tuned).Burn(),
		scenario("queue/riverdefaults", backlog+"its defaults, 100 workers", slow, defaults).Burn(),
		scenario("enqueue/river", "5000 jobs in a call of InsertMany, from one client", 0, defaults).Enqueue(),
		scenario("enqueue/rivercopy", "5000 jobs in a call of InsertManyFast, which is COPY", 0, fast).Enqueue(),
		scenario("pickup/riverother", "300 jobs a second, one by one, inserted by a client on another pool: its defaults, 100 workers", 0, defaults).Pickup(),
	}
}

type riverOptions struct {
	workers        int
	cooldown, poll time.Duration // 0: its defaults
	fast           bool          // InsertManyFast
}

// riverArgs is what a job carries: its number.
type riverArgs struct {
	N int `json:"n"`
}

func (riverArgs) Kind() string { return "nothing" }

type riverJobs struct {
	riverOptions
	pool, inserting *pgxpool.Pool
	inserter        *river.Client[pgx.Tx]
}

func openRiver(ctx context.Context, env *bench.Env, o riverOptions) (_ bench.Jobs, err error) {
	r := &riverJobs{riverOptions: o}
	if r.pool, err = env.Postgres(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	driver := riverpgxv5.New(r.pool)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: silent()})
	if err != nil {
		return nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	cfg := r.pool.Config()
	cfg.MaxConns, cfg.MinConns = 2, 2
	if r.inserting, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, err
	}
	r.inserter, err = river.NewClient(riverpgxv5.New(r.inserting), &river.Config{Logger: silent()})
	return r, err
}

func silent() *slog.Logger { return slog.New(slog.DiscardHandler) }

// client makes one that works.
func (r *riverJobs) client(begun func(int)) (*river.Client[pgx.Tx], error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(_ context.Context, job *river.Job[riverArgs]) error {
		begun(job.Args.N)
		return nil
	}))
	return river.NewClient(riverpgxv5.New(r.pool), &river.Config{
		Logger: silent(), Workers: workers, FetchCooldown: r.cooldown, FetchPollInterval: r.poll,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: r.workers}},
	})
}

// riverEvents is how many events may wait: events beyond it are dropped.
const riverEvents = 1 << 20

// Work counts events, which are sent after the commit that they are about.
func (r *riverJobs) Work(ctx context.Context, progress bench.Progress) error {
	client, err := r.client(progress.Begun)
	if err != nil {
		return err
	}
	completed, unsubscribe := client.SubscribeConfig(&river.SubscribeConfig{ChanSize: riverEvents, Kinds: []river.EventKind{river.EventKindJobCompleted}})
	var counting sync.WaitGroup
	counting.Go(func() {
		for range completed {
			progress.Ended(1)
		}
	})
	defer counting.Wait()
	defer unsubscribe()
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	<-ctx.Done()
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return client.Stop(stopping)
}

func (r *riverJobs) Enqueue(ctx context.Context, first, n int) error {
	if n == 1 {
		_, err := r.inserter.Insert(ctx, riverArgs{first}, nil)
		return err
	}
	jobs := make([]river.InsertManyParams, n)
	for i := range jobs {
		jobs[i].Args = riverArgs{first + i}
	}
	var err error
	if r.fast {
		_, err = r.inserter.InsertManyFast(ctx, jobs)
	} else {
		_, err = r.inserter.InsertMany(ctx, jobs)
	}
	return err
}

func (r *riverJobs) Clean(ctx context.Context) error {
	_, err := r.pool.Exec(ctx, "TRUNCATE TABLE river_job")
	return err
}

func (r *riverJobs) Left(ctx context.Context) (n int64, err error) {
	err = r.pool.QueryRow(ctx, "SELECT count(*) FROM river_job WHERE finalized_at IS NULL").Scan(&n)
	return n, err
}

func (r *riverJobs) Close() error {
	if r.inserting != nil {
		r.inserting.Close()
	}
	r.pool.Close()
	return nil
}
