package programs

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/mysqlqueue"
	"github.com/dblock-go/dblock/queue/pgqueue"
)

// jobEvent is a line about a job: it was enqueued, is cancelled or given up, begins, or succeeds.
type jobEvent struct {
	Job        queueJob
	ID         string
	Called, At int64          // of a call: when it returned
	Unknown    bool           `json:",omitempty"` // of an enqueue
	Refused    bool           `json:",omitempty"` // of an enqueue
	Met        string         `json:",omitempty"` // a section in which another attempt runs
	By         []int          `json:",omitempty"` // the processes that may run it
	Was        queue.JobState `json:",omitempty"` // before Cancel
	Attempt    int            `json:",omitempty"`

	process int // that has logged it
}

// queueClient is a process of a queueProgram.
type queueClient struct {
	job
	program  queueProcess
	server   server
	sections sections
	tasks    atomic.Int64

	mu      sync.Mutex
	queue   *queue.Queue
	worked  chan struct{}
	ids     []queue.ID
	closing sync.Mutex
}

func openQueueOn(ctx context.Context, s server, o queue.Options) (*queue.Queue, error) {
	if my, ok := s.(myServer); ok {
		return mysqlqueue.New(ctx, my.db, o)
	}
	return pgqueue.New(ctx, s.(pgServer).pool, o)
}

// deadlocks is a log that takes notice of deadlocks.
type deadlocks struct{}

func (deadlocks) Write(text []byte) (int, error) {
	if strings.Contains(string(text), "40P01") || strings.Contains(string(text), "Error 1213") {
		say("deadlock", failure{"log", string(text)})
	}
	return len(text), nil
}

func openQueue(ctx context.Context, j job) (client, error) {
	c := &queueClient{job: j, sections: sections{j.Dir, j.Process}}
	err := json.Unmarshal(j.Program, &c.program)
	if err == nil {
		c.server, err = openServer(ctx, j.Kind, j.DSN)
	}
	if err != nil {
		return nil, err
	}
	return c, c.open(ctx)
}

// open makes a Queue, with a worker.
func (c *queueClient) open(ctx context.Context) error {
	o := queue.Options{TTL: c.program.TTL, Log: slog.New(slog.NewTextHandler(deadlocks{}, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	o.Observer.Trouble = func(doing string, err error) { _, _ = fmt.Fprintf(deadlocks{}, "%s: %v", doing, err) }
	o.Observer.Lost = func(string, int) { say("evicted", nil) }
	q, err := openQueueOn(ctx, c.server, o)
	if err != nil {
		return err
	}
	plain := func(ctx context.Context, job queue.Job[queueJob]) error {
		return c.attempt(ctx, job, func() error { return nil })
	}
	err = errors.Join(queue.Handle(q, "plain", plain), queue.Handle(q, timesOut, plain, queue.Timeout(30*time.Millisecond)))
	if _, ok := c.server.(myServer); ok {
		err = errors.Join(err, mysqlqueue.HandleTx(q, "tx", func(ctx context.Context, tx *sql.Tx, job queue.Job[queueJob]) error {
			return c.attempt(ctx, job, func() error { return effect(ctx, myTx{tx}, job.Args) })
		}))
	} else {
		err = errors.Join(err, pgqueue.HandleTx(q, "tx", func(ctx context.Context, tx pgx.Tx, job queue.Job[queueJob]) error {
			return c.attempt(ctx, job, func() error { return effect(ctx, pgTx{tx}, job.Args) })
		}))
	}
	if err != nil {
		return err
	}
	worked := make(chan struct{})
	go func() {
		defer close(worked)
		err := q.Work(context.Background(), queue.WorkerOptions{
			Queue: c.Run, Concurrency: c.program.Handlers, Poll: 20 * time.Millisecond, Promote: 20 * time.Millisecond,
			Timeout: 20 * time.Second, Grace: time.Second, Backoff: func(int, error) time.Duration { return 5 * time.Millisecond },
		})
		if errors.Is(err, queue.ErrNotRecorded) && strings.Contains(err.Error(), "the context of Close has ended") {
			return // the faults lasted for longer: these jobs are rescued
		}
		documented("Work", err, dblock.ErrClosed)
	}()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue, c.worked = q, worked
	return nil
}

func effect(ctx context.Context, t tx, j queueJob) error {
	return t.exec(ctx, fmt.Sprintf("INSERT INTO effect (task) VALUES ('%s')", j.Task))
}

func (c *queueClient) close() {
	c.mu.Lock()
	q, worked := c.queue, c.worked
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = q.Close(ctx)
	<-worked
	c.server.close()
}

func (c *queueClient) run() {
	var all sync.WaitGroup
	for _, caller := range c.program.Callers {
		for range caller.Copies {
			all.Go(func() {
				for range caller.Times {
					for _, s := range caller.Steps {
						c.once(s)
					}
				}
			})
		}
	}
	all.Wait()
}

// attempt is what a handler does.
func (c *queueClient) attempt(ctx context.Context, job queue.Job[queueJob], effect func() error) error {
	e := jobEvent{Job: job.Args, ID: job.ID.String(), At: now(), Attempt: job.Attempt}
	inside, met := c.enter(job.Args, e.ID)
	if met != nil {
		e.Met, e.By = met.Error(), met.by
	}
	say("begin", e)
	select {
	case <-ctx.Done():
	case <-time.After(job.Args.Work):
	}
	if errors.Is(context.Cause(ctx), dblock.ErrLost) {
		say("evicted", nil)
	}
	inside.leave()
	if job.Args.How == snoozes && job.Args.Fails > 0 && time.Since(job.EnqueuedAt) < snoozesFor {
		return queue.Snooze(5 * time.Millisecond)
	}
	if job.Attempt > job.Args.Fails || job.Args.How == snoozes {
		err := effect()
		if err == nil {
			say("success", e)
		}
		return err
	}
	switch job.Args.How {
	case panics:
		panic("as the program says")
	case timesOut:
		<-ctx.Done()
		return ctx.Err()
	case discards:
		return queue.Discard(errors.New("as the program says"))
	case drops:
		return queue.Cancel(errors.New("as the program says"))
	}
	return errors.New("as the program says")
}

const snoozesFor = 40 * time.Millisecond

// enter enters the sections of a job, its key and its group; met is one that another attempt is in.
func (c *queueClient) enter(j queueJob, id string) (all section, met *enterError) {
	names := []string{"job " + id}
	if j.Unique > 0 {
		names = append(names, fmt.Sprint(c.Run, " unique ", j.Unique))
	}
	all, err := c.sections.enter(names, false, 0, 0)
	if err == nil && j.Group > 0 {
		var group section
		group, err = c.sections.enter([]string{fmt.Sprint(c.Run, " group ", j.Group)}, false, 1, j.Group)
		all = append(all, group...)
	}
	if err != nil && !errors.As(err, &met) {
		met = &enterError{err: err}
	}
	return all, met
}

func (c *queueClient) task(j queueJob) (queueJob, queue.Task) {
	j.Task = fmt.Sprintf("%s-%d-%d", c.Run, c.Process, c.tasks.Add(1))
	t := queue.Task{Kind: "plain", Args: j, Queue: c.Run, Delay: j.Delay, MaxAttempts: j.Attempts, Priority: j.Priority}
	switch {
	case j.Tx:
		t.Kind = "tx"
	case j.How == timesOut:
		t.Kind = timesOut
	}
	if j.Unique > 0 && c.Control == "" {
		t.Unique = fmt.Sprint("u", j.Unique)
	}
	if j.Group > 0 && c.Control == "" {
		t.Group, t.GroupLimit = fmt.Sprint("g", j.Group), j.Group
	}
	return j, t
}

// once takes a step.
func (c *queueClient) once(s queueStep) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c.mu.Lock()
	q := c.queue
	c.mu.Unlock()
	switch s.Do {
	case cancels, givesUp:
		c.cancel(ctx, q, s.Do)
	case pauses:
		if documented("Pause", q.Pause(ctx, c.Run), refusals...); rand.IntN(2) == 0 {
			time.Sleep(3 * time.Millisecond)
		}
		documented("Resume", q.Resume(ctx, c.Run), refusals...)
	case closes:
		c.reopen(ctx, q)
	default:
		c.enqueue(ctx, q, s)
	}
}

// refusals are errors that say that nothing was done, or maybe.
var refusals = []error{
	dblock.ErrOverloaded, dblock.ErrBusy, dblock.ErrUnavailable, dblock.ErrClosed, dblock.ErrOutcomeUnknown, dblock.ErrConflict,
	context.DeadlineExceeded,
}

func (c *queueClient) enqueue(ctx context.Context, q *queue.Queue, s queueStep) {
	n := 1
	if s.Do != enqueues {
		n = 3
	}
	jobs, tasks := make([]queueJob, n), make([]queue.Task, n)
	for i := range n {
		j := s.Job
		if k := i; s.Do == many {
			if s.Rollback {
				k = n - 1 - i
			}
			j.Group = (j.Group + k) % 4
			j.Unique = min(j.Unique, 1) * (1 + (j.Unique+k)%3)
		}
		jobs[i], tasks[i] = c.task(j)
	}
	called := now()
	ids, err := make([]queue.ID, n), error(nil)
	switch s.Do {
	case enqueues:
		ids[0], err = q.Enqueue(ctx, tasks[0])
	case many:
		ids, err = q.EnqueueMany(ctx, tasks)
	case inTx:
		ids, err = c.enqueueTx(ctx, q, s, tasks)
	}
	var duplicates *queue.DuplicateError
	refused := map[int]bool{}
	if errors.As(err, &duplicates) {
		for _, d := range duplicates.Duplicates {
			refused[d.Task] = true
		}
		err = nil
	}
	// A transaction that failed at its commit, which is the program's own, may have been committed.
	unknown := err != nil && (s.Do == inTx && !errors.Is(err, errRollback) || errors.Is(err, dblock.ErrOutcomeUnknown) || ctx.Err() != nil)
	if s.Do != inTx {
		documented("enqueue", err, refusals...)
	}
	for i, j := range jobs {
		e := jobEvent{Job: j, Called: called, At: now(), Unknown: unknown, Refused: err != nil && !unknown || refused[i]}
		if err == nil && !e.Refused {
			e.ID = ids[i].String()
			c.mu.Lock()
			c.ids = append(c.ids, ids[i])
			c.mu.Unlock()
		}
		say("enqueued", e)
	}
}

var errRollback = errors.New("as the program says")

func (c *queueClient) enqueueTx(ctx context.Context, q *queue.Queue, s queueStep, tasks []queue.Task) (ids []queue.ID, err error) {
	var duplicates *queue.DuplicateError
	err = c.server.run(ctx, func(ctx context.Context, t tx) (err error) {
		if my, ok := t.(myTx); ok {
			ids, err = mysqlqueue.EnqueueTx(ctx, q, my.tx, tasks...)
		} else {
			ids, err = pgqueue.EnqueueTx(ctx, q, t.(pgTx).tx, tasks...)
		}
		if errors.As(err, &duplicates) {
			err = nil
		}
		if err == nil && s.Rollback {
			err = errRollback
		}
		return err
	})
	if err == nil && duplicates != nil {
		err = duplicates
	}
	return ids, err
}

func (c *queueClient) cancel(ctx context.Context, q *queue.Queue, how string) {
	c.mu.Lock()
	if len(c.ids) == 0 {
		c.mu.Unlock()
		return
	}
	id := c.ids[len(c.ids)-1-rand.IntN(min(4, len(c.ids)))]
	c.mu.Unlock()
	e, err := jobEvent{ID: id.String()}, error(nil)
	say("asks", e)
	defer say("answered", e) // unless the process is killed
	if how == cancels {
		e.Was, err = q.Cancel(ctx, id)
	} else {
		err = q.Discard(ctx, id, "as the program says")
	}
	if errors.Is(err, queue.ErrNoJob) || errors.Is(err, queue.ErrState) {
		return
	}
	documented(how, err, refusals...)
	e.At, e.Unknown = now(), err != nil
	say(how, e)
}

// reopen closes the Queue beside all that uses it, and opens another one.
func (c *queueClient) reopen(ctx context.Context, q *queue.Queue) {
	c.mu.Lock()
	worked, same := c.worked, c.queue == q
	c.mu.Unlock()
	if !same || !c.closing.TryLock() {
		return
	}
	defer c.closing.Unlock()
	documented("Close", q.Close(ctx), refusals...)
	<-worked
	for c.open(context.Background()) != nil {
		time.Sleep(10 * time.Millisecond) // the faults do not let it be opened now
	}
}
