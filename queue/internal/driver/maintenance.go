package driver

import (
	"context"
	"time"

	"github.com/dblock-go/dblock/internal/member"
)

// Maintenance is what one process at a time does for all, and what each does for its own claims.
type Maintenance interface {
	// Promote has jobs be ready whose time has come, and returns how many.
	Promote(ctx context.Context, r *PromoteRequest) (promoted int, err error)

	// DueJobs returns the first jobs that have no group, and whose time has come.
	DueJobs(ctx context.Context, r *DueRequest) ([]DueJob, error)

	// Postpone has a job without a group be due after a while, if it is still scheduled.
	Postpone(ctx context.Context, j DueCursor, after time.Duration) error

	// DueGroups returns the groups of the first MaxDueRead jobs after a cursor whose time has come.
	// If there are as many jobs, last is the last one's place; else last is zero.
	DueGroups(ctx context.Context, after DueCursor) (groups []Group, last DueCursor, err error)

	// Suspects are members that have claims, and that a statement of its own, after the claims were
	// seen, did not find alive.
	Suspects(ctx context.Context) ([]member.ID, error)

	// ClaimsOf is the claims that are recorded for a member.
	ClaimsOf(ctx context.Context, m member.ID) ([]ID, error)

	// Adopt takes claims from one member, and records them for another one. It returns the claims,
	// and those of their jobs that have not ended. Requests to cancel these jobs go with them. It
	// passes over claims that a transaction uses at this moment.
	Adopt(ctx context.Context, r *AdoptRequest) ([]ID, []Orphan, error)

	// CancelRequests is the first requests for jobs of a member that come after one, CancelStep at
	// most.
	CancelRequests(ctx context.Context, m member.ID, after ID) ([]CancelRequest, error)

	// Prune deletes rows that are of no use any more, and returns how many.
	Prune(ctx context.Context, r *PruneRequest) (int, error)
}

// PromoteRequest is which jobs are to be ready. Exactly one of Since, Urgent,
// OfEach, Jobs and Groups is set.
type PromoteRequest struct {
	Max int // jobs

	Since time.Duration // jobs without a group whose time came within that
	// Urgent is jobs without a group: those with the lowest priorities among all whose time has
	// come. It reads all of them, or a million.
	Urgent bool
	// OfEach, if not 0, is how many jobs without a group are promoted of each queue: those whose
	// time came first.
	OfEach int

	// Jobs is jobs without a group: those of them that are still to be promoted.
	Jobs []DueCursor

	// Groups are those that jobs come to, after a cursor. It waits for the row of a group for Wait
	// at most, or not at all, and then IsLocked of its error.
	Groups []Group
	After  DueCursor
	Wait   time.Duration
}

// DueRequest is which jobs to look for.
type DueRequest struct {
	Since   time.Duration // their time came within that
	Queues  []string      // theirs, if OfThese, else those of all others
	OfThese bool
	Max     int
}

// DueJob is a job whose time has come.
type DueJob struct {
	DueCursor
	Queue string
}

// Group is a key of jobs of a queue.
type Group struct{ Queue, Key string }

// DueCursor is the place of a job in the order of the times at which jobs are due. Its zero value
// comes before all jobs.
type DueCursor struct {
	RunAt time.Time
	Job   ID
}

// MaxDueRead is among how many jobs whose time has come groups are looked for.
const MaxDueRead = 10_000

// AdoptRequest is which claims get another owner.
type AdoptRequest struct {
	// From is a member that is gone, and Heir no member: From can end none of the jobs any more,
	// and SyncBatch.Member can be Heir. If both are the same, the claims stay as they are.
	From, Heir member.ID

	Claim ID // the only one; zero: some of From's

	// Most is about how many jobs are taken. A driver whose claims can't be divided takes at least
	// one claim.
	Max int
}

// Orphan is a job of a claim that was adopted. Attempt is how many have ended.
type Orphan struct {
	Position
	Queue, Kind                    string
	Priority, Attempt, MaxAttempts int16
	Begun                          int16 // the attempt recorded last as begun; negative: none is recorded
	EnqueuedAt                     time.Time
}

// Prunable is what Prune deletes.
type Prunable int

const (
	DeadJob       Prunable = iota // the dead job Job.
	DeadJobs                      // those of Queue that died Age ago or longer.
	OldHistory                    // rows of days that are longer ago than Age.
	JobRequests                   // requests to cancel Jobs of Member.
	StaleRequests                 // old requests to cancel jobs that have ended.
	GoneMembers                   // those that expired Age ago or longer.
)

// Day is the unit of OldHistory.
const Day = 24 * time.Hour

// PruneRequest is what is to be deleted.
type PruneRequest struct {
	Kind   Prunable
	Job    ID
	Queue  string
	Age    time.Duration
	Member member.ID
	Jobs   []ID
	Max    int // rows of DeadJobs, OldHistory and GoneMembers
}

// CancelRequest is one to cancel a job that a member has.
type CancelRequest struct {
	Job    ID
	Active bool // the job has not ended
}

// CancelStep is how many requests are read at once.
const CancelStep = 1000
