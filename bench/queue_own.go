package bench

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/mysqlqueue"
	"github.com/dblock-go/dblock/queue/pgqueue"
)

// queueConns is more than a Queue takes by itself: 8, one for its heartbeats, and 5 for leases.
const queueConns = 16

// queues are package queue's. Scenarios of one family are comparable: queue/… burns a backlog down.
func queues() []Scenario {
	own := func(name, about string, o ownOptions) JobsScenario {
		conns := queueConns
		if o.apart {
			conns *= 2
		}
		return JobsScenario{Name: name, About: about, Conns: conns, Open: func(ctx context.Context, env *Env) (Jobs, error) {
			return openOwn(ctx, env, o)
		}}
	}
	return []Scenario{
		own("queue/burn", "a backlog of jobs that do nothing: default options", ownOptions{}).Burn(),
		own("queue/history", "the same, and jobs that have ended are kept (Options.History)", ownOptions{history: 1}).Burn(),
		own("enqueue/many", "5000 jobs in a call of EnqueueMany, from one client", ownOptions{}).Enqueue(),
		own("pickup/other", "300 jobs a second, one by one: from the call of Enqueue in one process to the handler in another", ownOptions{apart: true}).Pickup(),
	}
}

type ownOptions struct {
	apart   bool // what enqueues is another process
	history int
}

// nothing is the kind of the jobs, and what they carry.
const nothing = "nothing"

type number struct {
	N int `json:"n"`
}

// ownJobs are Queues on pools of their own, as processes have them.
type ownJobs struct {
	enqueuer *queue.Queue
	worker   *queue.Queue // it may be the same
	progress atomic.Pointer[Progress]
	side     *Database
	undo     []func() error
}

func openOwn(ctx context.Context, env *Env, o ownOptions) (_ *ownJobs, err error) {
	j := &ownJobs{}
	j.progress.Store(&Progress{Begun: func(int) {}, Ended: func(int) {}})
	defer func() {
		if err != nil {
			err = errors.Join(err, j.Close())
		}
	}()
	if j.side, err = env.side(ctx); err != nil {
		return nil, err
	}
	options := queue.Options{History: o.history, Observer: queue.Observer{Recorded: func(_ string, jobs int, _ time.Duration) { j.progress.Load().Ended(jobs) }}}
	if j.worker, err = j.process(ctx, env, options); err != nil {
		return nil, err
	}
	if j.enqueuer = j.worker; o.apart {
		j.enqueuer, err = j.process(ctx, env, options)
	}
	return j, err
}

// process opens a Queue as a process of its own would have it.
func (j *ownJobs) process(ctx context.Context, env *Env, o queue.Options) (*queue.Queue, error) {
	conns := pick(env.Kind, 1, queueConns) // on Postgres the Queue makes a pool like it
	db, err := env.database(ctx, conns)
	if err != nil {
		return nil, err
	}
	q, err := on(db,
		func(pool *pgxpool.Pool) (*queue.Queue, error) { return pgqueue.New(ctx, pool, o) },
		func(db *sql.DB) (*queue.Queue, error) { return mysqlqueue.New(ctx, db, o) })
	if err != nil {
		return nil, err
	}
	j.undo = append(j.undo, db.Close, func() error { return q.Close(context.Background()) })
	return q, queue.Handle(q, nothing, func(_ context.Context, job queue.Job[number]) error {
		j.progress.Load().Begun(job.Args.N)
		return nil
	})
}

func (j *ownJobs) Close() error {
	var errs []error
	for _, undo := range slices.Backward(j.undo) {
		errs = append(errs, undo())
	}
	if j.side != nil {
		errs = append(errs, j.side.Close())
	}
	return errors.Join(errs...)
}

func (j *ownJobs) Clean(ctx context.Context) error {
	for _, table := range strings.Fields("job ready scheduled claim dead history key blocked") {
		if _, err := j.side.Exec(ctx, "TRUNCATE TABLE dblock_queue_"+table); err != nil {
			return err
		}
	}
	return nil
}

func (j *ownJobs) Enqueue(ctx context.Context, first, n int) error {
	if n == 1 {
		_, err := j.enqueuer.Enqueue(ctx, queue.Task{Kind: nothing, Args: number{first}})
		return err
	}
	tasks := make([]queue.Task, n)
	for i := range tasks {
		tasks[i] = queue.Task{Kind: nothing, Args: number{first + i}}
	}
	_, err := j.enqueuer.EnqueueMany(ctx, tasks)
	return err
}

func (j *ownJobs) Work(ctx context.Context, progress Progress) error {
	j.progress.Store(&progress)
	return j.worker.Work(ctx, queue.WorkerOptions{})
}

func (j *ownJobs) Left(ctx context.Context) (left int64, err error) {
	err = j.side.Query(ctx, "SELECT count(*) FROM dblock_queue_job").Scan(&left)
	return left, err
}
