// Package engine is the seam of package queue: what it needs of a database. It decides nothing.
package engine

import (
	"context"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// ID names a job or a claim: a UUID of version 7, made by the client.
type ID [16]byte

// Insert is a job that is to be enqueued.
type Insert struct {
	ID                    ID
	Queue, Kind           string
	Priority, MaxAttempts int16
	Delay                 time.Duration // 0: it is ready at once
	Payload               []byte

	Unique     string // no other job of the queue may have it; empty: none
	Group      string // of the jobs of the queue that have it so many, at most, are there to be taken at once; empty: none
	GroupLimit int32  // with a Group: at least 1
}

// HasKeys tells that it is not only on its own.
func (j *Insert) HasKeys() bool { return j.Unique != "" || j.Group != "" }

// Group is a key of jobs of a queue.
type Group struct{ Queue, Key string }

// Cursor is the place of a job in the order of the times at which jobs are due. Its zero value comes before all jobs.
type Cursor struct {
	RunAt time.Time
	Job   ID
}

// DueLook is among how many jobs whose time has come DueGroups and PromoteGroups look for groups.
const DueLook = 10_000

// Duplicate is a job that was not enqueued, as another one has its unique key.
type Duplicate struct {
	Job    ID
	Holder ID // which one
}

// Job is one that was claimed.
type Job struct {
	ID                             ID
	Kind                           string
	Priority, Attempt, MaxAttempts int16 // Attempt: how many have ended
	EnqueuedAt, ReadyAt            time.Time
	Payload                        []byte
	Bytes                          int  // of the payload
	Unread                         bool // the payload is not here: it is larger than Ask.Inline
	Keyed                          bool // it has a unique key, or is one of a group
	Recorded                       bool // its beginnings are recorded (BeginJobs)
}

// Place is where a worker has a job from.
type Place struct {
	Claim, Job ID
	Keyed      bool // the job's
}

// Deferral gives a job up for now.
type Deferral struct {
	Place
	Attempt int16         // how many have ended
	Failure string        // of the one that has ended now; empty: none has
	Records bool          // its beginnings are recorded from now on (BeginJobs); none has begun that has not ended
	Delay   time.Duration // 0: it is ready again at once
	ReadyAt time.Time     // without a Delay: since when it is ready, which is its place in the order; zero: now
}

// Burial gives a job up for good.
type Burial struct {
	Place
	Attempt int16
	Failure string
}

// Ask is what a worker would like to claim.
type Ask struct {
	Claim ID
	Queue string
	Most  int
	// Inline is up to how many bytes the payload of a job comes with it.
	Inline int
	From   []Mark // where to begin, in the order of priorities; nil: at the start
	Not    []ID   // jobs that are passed over
	Beat   int64  // the member's last: once it has beaten twice more nothing is claimed
}

// Mark says that of a priority nothing that became ready earlier need be looked at. It is a hint.
type Mark struct {
	Priority int16
	ReadyAt  time.Time
}

// Exchange is what a member tells of the jobs that it had, and what it would like to have next: all of it takes place, or nothing.
// No job is in it twice. With a job that is finished or buried its unique key is free, and the next of its group is ready; one that is
// deferred keeps both.
type Exchange struct {
	Member   member.ID
	Take     *Take  // nil: none; comes first
	Kept     []Kept // of those that are finished; comes before they are
	KeepDead bool   // of those that are buried
	Finished []Place
	Deferred []Deferral
	Buried   []Burial
	Closed   []ID // claims of which nothing is outstanding then

	// Broken is what Engine.Broken returned before the first claim of Closed was made. If it returns another number by now, the
	// server may have forgotten ends of their jobs, after a crash or a failover: a claim that has such a job stays.
	Broken int64

	Ask *Ask // nil: none
}

// LocksKeys tells that it locks rows of unique keys and groups: those of jobs that end.
func (x *Exchange) LocksKeys() bool {
	return slices.ContainsFunc(x.Finished, func(p Place) bool { return p.Keyed }) || slices.ContainsFunc(x.Buried, func(b Burial) bool { return b.Keyed })
}

// LeavesGroups tells that jobs with keys which end leave places in their groups. A job that was not
// admitted has none: its end touches no group, and not even a row that appears meanwhile.
func (x *Exchange) LeavesGroups() bool { return x.Take == nil || x.Take.Job.Admitted }

// RowWait is how long it waits for the row of a unique key, a group, or a job that ends; then
// IsLocked of its error. A claim, and the end of a job that waits, take BriefWait.
func (x *Exchange) RowWait() time.Duration {
	if x.Take != nil || x.Ask != nil && x.LocksKeys() {
		return BriefWait
	}
	return LongWait
}

const (
	// BriefWait is enough for other members that end jobs of the same group. It is not enough for a
	// transaction that stays open.
	BriefWait = 5 * time.Millisecond

	// LongWait is how long a statement waits that has no connection to spare.
	LongWait = 50 * time.Millisecond
)

// IsEmpty tells that there is nothing to say, and nothing to ask for.
func (x *Exchange) IsEmpty() bool {
	return len(x.Finished)+len(x.Deferred)+len(x.Buried)+len(x.Closed) == 0 && x.Ask == nil
}

// Ends is how many jobs it gives back.
func (x *Exchange) Ends() int { return len(x.Finished) + len(x.Deferred) + len(x.Buried) }

// Exchanged is what became of it. Fewer than were sent: the claims of the others are not the member's any more.
type Exchanged struct {
	Finished, Deferred, Buried int
	Jobs                       []Job

	// Void is how many rows a claim has removed that are of no job.
	Void int

	// Cancelled are jobs that were to be deferred or buried, and that AskToCancel names. If there are any, nothing has taken place.
	Cancelled []ID
}

// Orphan is a job of a member that is gone. Attempt is how many have ended.
type Orphan struct {
	Place
	Queue, Kind                    string
	Priority, Attempt, MaxAttempts int16
	Begun                          int16 // the attempt that was recorded last as begun; negative: beginnings are not recorded
	EnqueuedAt                     time.Time
}

// Engine is one database. Its errors are what the driver says; Classify tells what they mean.
type Engine interface {
	member.Driver
	People
	Herald

	// Insert enqueues jobs, all or none but for duplicates, in a transaction of its own. No two have the same unique key. It waits for the
	// row of a unique key or a group for wait at most, or not at all, and then IsLocked of its error; 0: while ctx lives.
	Insert(ctx context.Context, jobs []Insert, wait time.Duration) ([]Duplicate, error)

	// Tx returns a caller's transaction; false where it is not one of this engine's.
	Tx(tx CallerTx) (Tx, bool)

	// Exchange is one transaction, of READ COMMITTED.
	Exchange(ctx context.Context, x *Exchange) (Exchanged, error)

	// BeginJobs records that jobs of a member begin their next attempts: Orphan.Begun is
	// Orphan.Attempt + 1. It waits for no row. begun are recorded: while it is under way nothing
	// takes their claims away. locked are not, as another transaction has locked the rows of the
	// jobs or of their claims. The claims of all others are not the member's.
	BeginJobs(ctx context.Context, m member.ID, jobs []Place) (begun, locked []ID, err error)

	// Standing is how many of some jobs have not ended.
	Standing(ctx context.Context, jobs []ID) (int, error)

	// Await waits briefly for a transaction that is about to end a job, and tells whether it has
	// not ended. IsLocked of its error: it still may.
	Await(ctx context.Context, job ID) (stands bool, err error)

	// Stands tells whether a member's row is there. If it is, no other process has ended a job of
	// the member's claims until now: a rescue evicts the member first.
	Stands(ctx context.Context, m member.ID) (bool, error)

	// Holders is who has the unique keys of some jobs, in their order; zero: nobody.
	Holders(ctx context.Context, jobs []Insert) ([]ID, error)

	// ClaimsOf is the claims that are recorded for a member.
	ClaimsOf(ctx context.Context, m member.ID) ([]ID, error)

	// Payloads reads those of jobs that have not ended.
	Payloads(ctx context.Context, jobs []ID) (map[ID][]byte, error)

	// Unclaim has the jobs of a claim be ready again, where there is such a claim: its answer was lost, nobody has begun them. If AskToCancel
	// names some of them, it returns those, and nothing has taken place.
	Unclaim(ctx context.Context, m member.ID, claim ID) (found bool, cancelled []ID, err error)

	// Promote has so many jobs without a group, at most, be ready whose time came within since.
	Promote(ctx context.Context, since time.Duration, most int) (promoted int, err error)

	// PromoteUrgent does so for those with the lowest priorities among all whose time has come. It reads all of them, or a million.
	PromoteUrgent(ctx context.Context, most int) (promoted int, err error)

	// DueGroups returns the groups of the first DueLook jobs after a cursor whose time has come. If there are as many jobs, last is the last
	// one's place; else last is zero.
	DueGroups(ctx context.Context, after Cursor) (groups []Group, last Cursor, err error)

	// PromoteGroups has jobs of some groups come to these: at most so many, whose time has come, after a cursor. It waits for the row of a
	// group for wait at most, or not at all, and then IsLocked of its error.
	PromoteGroups(ctx context.Context, groups []Group, after Cursor, most int, wait time.Duration) (promoted int, err error)

	// Suspects are members that have claims, and that a statement of its own, after the claims were seen, did not find alive.
	Suspects(ctx context.Context) ([]member.ID, error)

	// Evict deletes a member where it has expired, and tells whether it is gone.
	Evict(ctx context.Context, m member.ID) (gone bool, err error)

	// Adopt takes some claims from a member that is gone, and records them for heir, which is no member: that member can end none of their
	// jobs any more, and Exchange of heir can. Requests to cancel these jobs go with them. It passes over claims that a transaction uses at this
	// moment. most is about how many jobs it takes; an engine whose claims can't be divided takes at least one. It returns the claims, and those
	// of their jobs that have not ended.
	Adopt(ctx context.Context, gone, heir member.ID, most int) ([]ID, []Orphan, error)

	// Classify tells what an error of this engine means.
	Classify(err error) sqlerr.Class

	// Exhausted tells that the pool has no connection left: statements wait for one.
	Exhausted() bool

	// Close ends what the engine has made for itself. The pool is its owner's.
	Close()
}

// Tx is a caller's transaction, known to be one of the engine's.
type Tx interface {
	// Insert enqueues jobs in it, but for duplicates. With tell those who listen are told of them when it commits, where they can be.
	Insert(ctx context.Context, jobs []Insert, tell bool) ([]Duplicate, error)
}
