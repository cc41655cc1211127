package bench

import (
	"context"
	"fmt"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/queue"
)

// Jobs is a queue of jobs, ours or a peer's. Handlers only report that they were called.
type Jobs interface {
	// Clean drops all jobs, and whatever is kept of those that have ended, as if the tables were
	// new. No worker runs meanwhile.
	Clean(ctx context.Context) error

	// Enqueue enqueues n jobs in one call, durably. They are numbered from first, and the number is
	// all that they carry.
	Enqueue(ctx context.Context, first, n int) error

	// Work does jobs until ctx ends, and returns when what was begun has ended.
	Work(ctx context.Context, progress Progress) error

	// Left counts the jobs that have not ended.
	Left(ctx context.Context) (int64, error)

	Close() error
}

// Progress has the callbacks that Jobs call while they work, on any goroutine.
type Progress struct {
	Begun func(job int)  // the handler of a job is called
	Ended func(jobs int) // so many more jobs are done, and that is committed
}

// jobBatch is how many jobs are enqueued at once, where many are.
const jobBatch = 5000

func (e *Env) jobBatch() int {
	if e.Jobs > 0 {
		return min(e.Jobs, jobBatch)
	}
	return jobBatch
}

// callOf is how many jobs a call carries, where the calls are measured.
func (e *Env) callOf() int {
	if e.Jobs > 0 {
		return min(e.Jobs, queue.MaxTasks)
	}
	return jobBatch
}

// JobsScenario is what the scenarios of queues are made from.
type JobsScenario struct {
	Name, About string
	Engines     []devdb.Kind
	Conns       int // that it has, at most
	First       int // jobs of the first backlog, while nothing is known of its rate; default 20,000
	Open        func(ctx context.Context, env *Env) (Jobs, error)
}

// scenario is one that makes its workload from the Jobs.
func (s JobsScenario) scenario(load func(env *Env, jobs Jobs) Workload) Scenario {
	return Scenario{
		Name: s.Name, About: s.About, Engines: s.Engines, Conns: []int{s.Conns}, MaxClients: 1,
		Open: func(ctx context.Context, env *Env) (Workload, error) {
			jobs, err := s.Open(ctx, env)
			if err != nil {
				return nil, err
			}
			return load(env, jobs), nil
		},
	}
}

// fill enqueues a backlog.
func fill(ctx context.Context, env *Env, jobs Jobs, n int) error {
	batch := env.jobBatch()
	for first := 0; first < n; first += batch {
		if err := jobs.Enqueue(ctx, first, min(batch, n-first)); err != nil {
			return fmt.Errorf("filling the queue: %w", err)
		}
	}
	return nil
}

// noneLeft is the Check of a round that has ended all jobs.
func noneLeft(jobs Jobs) func(context.Context, int64) error {
	return func(ctx context.Context, ok int64) error {
		left, err := jobs.Left(ctx)
		if err == nil && left != 0 {
			err = fmt.Errorf("%d jobs are said to be done, and %d are left", ok, left)
		}
		return err
	}
}
