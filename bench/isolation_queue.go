package bench

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/queue"
)

const (
	isolatedGroups = 100
	hotGroup       = "hot"

	// promotedAfter is how long jobs wait that are enqueued for later.
	promotedAfter = 20 * time.Millisecond
)

func isolatedJobs() (all []Scenario) {
	for _, kind := range []struct {
		name, about string
		jobs        isolatedQueue
	}{
		{"jobs", "jobs without a key, from Enqueue to the handler,", isolatedQueue{works: true}},
		{"keyed", "jobs of 100 groups, from Enqueue to the handler,", isolatedQueue{works: true, grouped: true}},
		{"enqueues", "calls of Enqueue for 100 groups", isolatedQueue{grouped: true}},
		{"promotion", "jobs for 20 ms later, from Enqueue to the handler,", isolatedQueue{works: true, delay: promotedAfter}},
	} {
		all = append(all, isolationScenarios(kind.name, kind.about, queueConns, func(ctx context.Context, env *Env) (isolated, error) {
			jobs, err := openOwn(ctx, env, ownOptions{workers: 1})
			if err != nil {
				return nil, err
			}
			w := kind.jobs
			w.ownJobs, w.env, w.begun = jobs, env, new(sync.Map)
			return &w, nil
		})...)
	}
	return all
}

// isolatedQueue enqueues jobs, and does them beside those of the neighbour's group.
type isolatedQueue struct {
	works   bool // the jobs are done: what is measured ends when a handler begins
	grouped bool
	delay   time.Duration

	*ownJobs
	env   *Env
	crew  *crew
	begun *sync.Map // by operation: chan time.Time
}

// crowded is the number of the neighbour's jobs.
const crowded = -1

func (w *isolatedQueue) Begin(ctx context.Context, _, _ int) error {
	if err := w.Clean(ctx); err != nil {
		return err
	}
	w.begun.Clear()
	if w.works {
		w.crew = beginWork(ctx, w.ownJobs, Told{Begun: w.tell, Ended: func(int) {}})
	}
	return nil
}

func (w *isolatedQueue) tell(job int) {
	if began, ok := w.begun.LoadAndDelete(job); ok {
		began.(chan time.Time) <- time.Now()
	}
}

func (w *isolatedQueue) End() error {
	if w.crew == nil {
		return nil
	}
	err := w.crew.end(nil)
	w.crew = nil
	return err
}

func (w *isolatedQueue) Do(ctx context.Context, i int) (<-chan time.Time, error) {
	task := queue.Task{Kind: nothing, Args: number{i}, Delay: w.delay}
	if w.grouped {
		task.Group = "cold-" + strconv.Itoa(i%isolatedGroups)
	}
	if !w.works {
		_, err := w.enqueuer.Enqueue(ctx, task)
		return nil, err
	}
	began := make(chan time.Time, 1)
	w.begun.Store(i, began)
	if _, err := w.enqueuer.Enqueue(ctx, task); err != nil {
		w.begun.Delete(i)
		return nil, err
	}
	return began, nil
}

func (w *isolatedQueue) Crowd(ctx context.Context, i int) error {
	task := queue.Task{Kind: nothing, Args: number{crowded}, Group: hotGroup, Delay: w.delay}
	if i == 0 {
		task.Delay = 0 // so that the group is there
	}
	_, err := w.enqueuer.Enqueue(ctx, task)
	return err
}

// Lock does what an open transaction does that has enqueued a job of the group.
func (w *isolatedQueue) Lock() string {
	insert := "INSERT INTO dblock_queue_key (queue, group_key, most, taken) VALUES ('" + queue.DefaultQueue + "', '" + hotGroup + "', 1, 0) "
	if w.env.Kind == devdb.Postgres {
		return insert + "ON CONFLICT (queue, group_key) DO UPDATE SET most = excluded.most"
	}
	return insert + "ON DUPLICATE KEY UPDATE next_seq = next_seq + 1"
}
