package driver

import (
	"context"
	"time"

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
	Worker                         string // the label of its worker
	Payload                        []byte // not in lists

	Member member.ID // its worker's
	Claim  ID        // by which claim
	Seq    int64     // among the blocked ones of its group

	Admitted bool // it takes a place in its group, if it has one; of jobs that have not ended
}

// Take claims one job that waits, of which it was read where it stands, so that the same
// transaction can end it.
type Take struct {
	Claim ID
	Job   Record
}

// HistoryEntry is a job that is completed, and whose history is to be kept.
type HistoryEntry struct {
	Position
	Outcome int16
	Attempt int16  // how many it has had
	Reason  string // why it was cancelled
}

// AgeStep is how many jobs are read at once to find the oldest: in the order of their priorities,
// of each the oldest first.
const AgeStep = 1000

// Counts are those of one queue; none is above what was asked for.
type Counts struct {
	Ready, Scheduled, Retrying, Blocked, Dead int
	Paused                                    time.Duration // negative: it is not
	Oldest                                    time.Duration // how long the oldest ready job has waited
}

// Health is what the server says of what slows queues down; negative: it does not say.
type Health struct {
	DeadTuples     int64
	OldestSnapshot time.Duration
	HistoryLength  int64
}

// ListRequest is which jobs are listed: the first ones of a queue in a state, and the last ones of
// those that are dead or have ended.
type ListRequest struct {
	Queue string
	State State
	Max   int

	// Dead jobs that died before others. A zero time: all.
	Before   time.Time
	BeforeID ID
}

// Admin is what operators ask of a driver.
type Admin interface {
	// SetPaused pauses a queue or resumes it.
	SetPaused(ctx context.Context, queue string, paused bool) error
	IsPaused(ctx context.Context, queue string) (bool, error)

	// NextQueue is the next one by name of which there is something; "": none. Claimed jobs don't
	// count for it.
	NextQueue(ctx context.Context, after string) (string, error)

	// Count counts up to most.
	Count(ctx context.Context, queue string, most int) (Counts, error)

	// Claimed counts the claimed jobs of all queues together, up to most.
	Claimed(ctx context.Context, most int) (map[string]int, error)

	Health(ctx context.Context) (Health, error)

	List(ctx context.Context, r *ListRequest) ([]Record, error)

	// Find is all that is known of a job; false: nothing is. A State of 0: it kept changing state.
	Find(ctx context.Context, id ID) (Record, bool, error)

	// RetryJob makes dead jobs ready again, except those whose unique key another job has. Of
	// several with the same key it revives the one that died last. locked is how many it passed
	// over because another transaction has them locked. IsLocked of its error: one has a job or a
	// key locked.
	RetryJob(ctx context.Context, ids []ID) (revived, locked int, err error)

	// AnyDead reports whether a queue has dead jobs that died so long ago, locked or not.
	AnyDead(ctx context.Context, queue string, age time.Duration) (bool, error)

	// RequestCancel writes down a request to cancel a job of a claim, if the claim has it. From
	// then on Sync neither reschedules nor discards the job.
	RequestCancel(ctx context.Context, m member.ID, claim, job ID) (held bool, err error)
}
