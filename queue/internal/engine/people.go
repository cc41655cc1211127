package engine

import (
	"context"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/member"
)

// State is where a job stands. The numbers are those of the statements.
type State int

const (
	Ready State = iota + 1
	Scheduled
	Blocked
	Claimed
	Dead
	Completed
	Cancelled
	Discarded
	Retrying // scheduled, after an attempt that failed
)

// Outcomes of history.
const (
	OutcomeCompleted int16 = 1
	OutcomeCancelled int16 = 2
	OutcomeDiscarded int16 = 3
)

// Record is what is known of a job.
type Record struct {
	ID                             ID
	Queue, Kind                    string
	State                          State
	Priority, Attempt, MaxAttempts int16
	EnqueuedAt                     time.Time
	At                             time.Time // what of, depends on the state
	UniqueKey, GroupKey            string
	LastError                      string
	Worker                         string // the label of who has it
	Payload                        []byte // not in lists

	Member member.ID // who has it
	Claim  ID        // by which claim
	Seq    int64     // among the blocked ones of its group

	Admitted bool // it takes a place in its group, if it has one; Ready, Scheduled, Retrying, Blocked and Claimed only
}

// Take claims one job that waits, of which it was read where it stands, so that the same transaction can end it.
type Take struct {
	Claim ID
	Job   Record
}

// Request is one to cancel a job that a member has.
type Request struct {
	Job    ID
	Stands bool // the job has not ended
}

// CancelStep is how many requests are read at once.
const CancelStep = 1000

// Kept is a job that is finished, and whose history is to be kept.
type Kept struct {
	Place
	Outcome int16
	Reason  string // why it was cancelled
}

// AgeStep is how many jobs are read at once to find the oldest: in the order of their priorities, of each the oldest first.
const AgeStep = 1000

// Counts are those of one queue; none is above what was asked for.
type Counts struct {
	Ready, Scheduled, Retrying, Blocked, Dead int
	Paused                                    time.Duration // negative: it is not
	Oldest                                    time.Duration // how long the oldest ready job has waited
}

// Health is what the server says of what slows queues down; negative: it does not tell.
type Health struct {
	DeadTuples     int64
	OldestSnapshot time.Duration
	HistoryLength  int64
}

// People is what people ask of an engine, and what only looking after a queue takes.
type People interface {
	Pause(ctx context.Context, queue string) error
	Resume(ctx context.Context, queue string) error
	IsPaused(ctx context.Context, queue string) (bool, error)

	// NextQueue is the next one by name of which there is something; "": none. Claimed jobs don't count for it.
	NextQueue(ctx context.Context, after string) (string, error)

	// Count counts up to most.
	Count(ctx context.Context, queue string, most int) (Counts, error)

	// Claimed counts the claimed jobs of all queues together, up to most.
	Claimed(ctx context.Context, most int) (map[string]int, error)

	Health(ctx context.Context) (Health, error)

	// List is the first jobs of a queue in a state, and, of those that have ended, the last.
	List(ctx context.Context, queue string, s State, most int) ([]Record, error)

	// Find is all that is known of a job; false: nothing is. A State of 0: it is in none of the places, as it moves.
	Find(ctx context.Context, id ID) (Record, bool, error)

	// DeadBefore lists the dead jobs of a queue that died before others, the last ones first. A zero time: all.
	DeadBefore(ctx context.Context, queue string, before time.Time, id ID, most int) ([]Record, error)

	// Revive makes dead jobs ready again, except those whose unique key another job has. Of several with the same key it revives the one
	// that died last. IsLocked of its error: another transaction has one of the keys locked.
	Revive(ctx context.Context, ids []ID) (revived int, err error)

	// IsLocked tells that a statement gave up because another transaction had a row locked.
	IsLocked(err error) bool

	// Forget drops a dead job.
	Forget(ctx context.Context, id ID) (bool, error)

	// Purge drops so many dead jobs, at most, that died so long ago.
	Purge(ctx context.Context, queue string, age time.Duration, most int) (int, error)

	// AskToCancel writes down a request to cancel a job of a claim, where the claim has it. From then on Exchange neither defers nor buries
	// the job.
	AskToCancel(ctx context.Context, m member.ID, claim, id ID) (held bool, err error)

	// Cancels is the first requests for jobs of a member that come after one, CancelStep at most. DropCancels deletes requests.
	Cancels(ctx context.Context, m member.ID, after ID) ([]Request, error)
	DropCancels(ctx context.Context, m member.ID, jobs []ID) error

	// PruneCancels drops old requests for jobs that have ended.
	PruneCancels(ctx context.Context) error

	// PruneHistory drops so many rows, at most, of days that are longer ago than this.
	PruneHistory(ctx context.Context, days, most int) (int, error)

	// Leases are locks in the same database, for those who campaign to look after the queues; an error that is dblock.ErrUnsupported where
	// the pool has too few connections for them.
	Leases(ctx context.Context, ttl time.Duration, label string) (dblock.Locker, error)
}
