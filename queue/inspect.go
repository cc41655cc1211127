package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// JobState is the state of a job.
type JobState int

// The states. JobCompleted, JobCancelled and JobDiscarded are known only of jobs whose history is
// kept (Options.History).
const (
	JobReady     JobState = iota + 1 // it can be worked on now.
	JobScheduled                     // for later: delayed or snoozed.
	JobBlocked                       // it waits for others of its group.
	JobClaimed                       // a worker has it: it runs, or is about to.
	JobDead                          // its attempts are used up, or it was discarded; it is kept.
	JobCompleted                     // done.
	JobCancelled                     // dropped.
	JobDiscarded                     // it was dead, and was purged since.
	JobRetrying                      // for later, after an attempt that failed.
)

var states = [...]string{"moving", "ready", "scheduled", "blocked", "claimed", "dead", "completed", "cancelled", "discarded", "retrying"}

// String is the word that ParseJobState reads. The state 0 is that of a job that kept changing
// state.
func (s JobState) String() string {
	if s < 0 || int(s) >= len(states) {
		return fmt.Sprintf("JobState(%d)", int(s))
	}
	return states[s]
}

// ParseJobState reads what String writes.
func ParseJobState(word string) (JobState, error) {
	for s, known := range states {
		if word == known && s > 0 {
			return JobState(s), nil
		}
	}
	return 0, &dblock.InvalidError{Field: "state", Reason: fmt.Sprintf("there is no %q; there are ready, scheduled, retrying, blocked, claimed, dead, completed, cancelled and discarded", word)}
}

// Errors of changes to jobs.
var (
	// ErrNoJob: there is no such job: it has ended, and no history of it is kept, or it never was.
	ErrNoJob = errors.New("queue: there is no such job")

	// ErrState: the call is not possible for a job in its state.
	ErrState = errors.New("queue: the job is not in a state for that")

	// ErrCancelled is the cause of a handler's context whose job was cancelled (Queue.Cancel).
	ErrCancelled = errors.New("queue: the job was cancelled")
)

// Record describes a job to operators.
type Record struct {
	ID          ID
	Queue, Kind string
	State       JobState
	Priority    int16
	Attempts    int // that have ended; a last attempt counts from its beginning
	MaxAttempts int // 0: not known any more
	EnqueuedAt  time.Time

	// At is when it became ready, will be run, was claimed, died, or ended, whichever its state
	// says, by the database's clock. Zero: blocked.
	At time.Time

	// LastError is that of the attempt that failed last. Of a job that has ended it is why the job
	// was cancelled or discarded.
	LastError string
	Worker    string // Options.Label of the process that has it, where one has
	UniqueKey string // Show only; empty: none
	GroupKey  string // Show only: what it is ordered or limited by; empty: none
	Payload   []byte // Show only: as the Codec encoded it
}

// Filter selects the jobs that List shows.
type Filter struct {
	Queue string   // default: DefaultQueue
	State JobState // default: JobReady
	Limit int      // default 100, at most 1,000
}

const (
	defaultList = 100
	maxList     = 1000
)

// List returns jobs of a queue in a state: in the order in which they will be taken, or, if they
// have died or ended, the last ones first. Of history it looks through 10,000 jobs of all queues:
// those of the last days, and of a day those that were enqueued last.
//
// Errors: dblock.ErrInvalid, and those of the database.
func (q *Queue) List(ctx context.Context, f Filter) ([]Record, error) {
	if err := q.begin(); err != nil {
		return nil, err
	}
	defer q.calls.Done()
	name, err := queueName(f.Queue)
	if err != nil {
		return nil, err
	}
	if f.State == 0 {
		f.State = JobReady
	}
	if f.Limit == 0 {
		f.Limit = defaultList
	}
	switch {
	case f.State < JobReady || f.State > JobRetrying:
		return nil, &dblock.InvalidError{Field: "Filter.State", Reason: fmt.Sprintf("there is no %v", f.State)}
	case f.Limit < 0 || f.Limit > maxList:
		return nil, &dblock.InvalidError{Field: "Filter.Limit", Reason: fmt.Sprintf("%d is not within 1 to %d", f.Limit, maxList)}
	}
	ctx, cancel := context.WithTimeout(ctx, q.o.Timeout)
	defer cancel()
	found, err := q.driver.Admin().List(ctx, &driver.ListRequest{Queue: name, State: driver.State(f.State), Max: f.Limit})
	if err != nil {
		return nil, q.db.explain(sqlerr.Unwritten(err), "listing jobs")
	}
	all := make([]Record, len(found))
	for i, r := range found {
		all[i] = record(r)
	}
	return all, nil
}

// Show returns all that is known of a job. A ready or scheduled one is looked for among those of
// its queue that came after it was enqueued, which takes a while if they are millions.
//
// Errors: ErrNoJob, and those of the database.
func (q *Queue) Show(ctx context.Context, id ID) (Record, error) {
	if err := q.begin(); err != nil {
		return Record{}, err
	}
	defer q.calls.Done()
	ctx, cancel := context.WithTimeout(ctx, q.o.Timeout)
	defer cancel()
	r, err := q.find(ctx, id)
	return record(r), err
}

// find looks again for a job that moves.
func (q *Queue) find(ctx context.Context, id ID) (r driver.Record, err error) {
	for n := range moves {
		found := false
		r, found, err = q.driver.Admin().Find(ctx, driver.ID(id))
		switch {
		case err != nil:
			return r, q.db.explain(sqlerr.Unwritten(err), "looking for a job")
		case !found:
			return r, fmt.Errorf("%w: %v has ended, or never was", ErrNoJob, id)
		case r.State != 0:
			return r, nil
		}
		if pace.Sleep(ctx, pace.Jitter(time.Duration(n+1)*time.Millisecond)) != nil {
			break
		}
	}
	return r, nil
}

// moves is how often a job is looked for that others move at the same time.
const moves = 20

// infoOf is what observers learn of a job that no worker has.
func infoOf(r driver.Record) Info {
	return Info{
		ID: ID(r.ID), Queue: r.Queue, Kind: r.Kind, Priority: r.Priority, Attempt: int(r.Attempt) + 1, MaxAttempts: int(r.MaxAttempts),
		EnqueuedAt: r.EnqueuedAt, ReadyAt: r.At,
	}
}

func record(r driver.Record) Record {
	if r.State == driver.Blocked {
		r.At = time.Time{}
	}
	return Record{
		ID: ID(r.ID), Queue: r.Queue, Kind: r.Kind, State: JobState(r.State), Priority: r.Priority, Attempts: int(r.Attempt), MaxAttempts: int(r.MaxAttempts),
		EnqueuedAt: r.EnqueuedAt, At: r.At, LastError: r.LastError, Worker: r.Worker, UniqueKey: r.UniqueKey, GroupKey: r.GroupKey, Payload: r.Payload,
	}
}
