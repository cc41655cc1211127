// Package driver is what package queue needs of a database. It decides nothing.
package driver

import (
	"context"
	"slices"
	"time"

	"github.com/dblock-go/dblock"
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
	Group      string // at most GroupLimit of its jobs are claimed at once; empty: none
	GroupLimit int32  // with a Group: at least 1
}

// HasKeys reports that some of the jobs have a unique key, or a group.
func HasKeys(jobs []Insert) bool {
	return slices.ContainsFunc(jobs, func(j Insert) bool { return j.Unique != "" || j.Group != "" })
}

// DelayMicros is the delay in microseconds: 0 if it is 0.
func (j *Insert) DelayMicros() int64 { return micros(j.Delay) }

// DelayMicros is the delay in microseconds: 0 if it is 0.
func (r *Reschedule) DelayMicros() int64 { return micros(r.Delay) }

func micros(d time.Duration) int64 { return (d + time.Microsecond - 1).Microseconds() }

// Duplicate is a job that was not enqueued, as another one has its unique key.
type Duplicate struct {
	Job    ID
	Holder ID // which one
}

// LockedError is of a batch whose keys other transactions have locked: those of some of its jobs.
type LockedError struct {
	Jobs [][]ID // those of each locked key; none: the keys were free a moment later
	Err  error  // of the server
}

func (e *LockedError) Error() string { return e.Err.Error() }

// Unwrap returns the server's error.
func (e *LockedError) Unwrap() error { return e.Err }

// Job is one that was claimed.
type Job struct {
	ID                             ID
	Kind                           string
	Priority, Attempt, MaxAttempts int16 // Attempt: how many have ended
	EnqueuedAt, ReadyAt            time.Time
	Payload                        []byte
	Bytes                          int  // of the payload
	Unread                         bool // the payload is not here: it is larger than ClaimRequest.Inline
	Keyed                          bool // it has a unique key, or is one of a group
	Recorded                       bool // its beginnings are recorded (BeginJobs)
}

// Position is where a worker has a job from.
type Position struct {
	Claim, Job ID
	Keyed      bool // the job's
}

// Reschedule gives a job up for now.
type Reschedule struct {
	Position
	Attempt int16         // how many have ended.
	Failure string        // of the one that has ended now; empty: none has.
	Records bool          // from now on its beginnings are recorded (BeginJobs), and none is open.
	Delay   time.Duration // 0: it is ready again at once.
	ReadyAt time.Time     // without a Delay: since when it is ready, its place in the order; zero: now.
}

// Discard gives a job up for good.
type Discard struct {
	Position
	Attempt int16
	Failure string
}

// ClaimRequest is what a worker would like to claim.
type ClaimRequest struct {
	Claim ID
	Queue string
	Max   int
	// Inline is up to how many bytes the payload of a job comes with it.
	Inline    int
	From      []ReadyCursor // where to begin, in the order of priorities; nil: at the start
	Not       []ID          // jobs that are passed over
	Heartbeat int64         // the member's last: once it has beaten twice more nothing is claimed
}

// ReadyCursor says that of a priority nothing that became ready earlier need be looked at. It is a
// hint.
type ReadyCursor struct {
	Priority int16
	ReadyAt  time.Time
}

// SyncBatch reports how a member's jobs ended, and asks for more. All of it takes place, or
// nothing. No job is in it twice. With a job that is completed or discarded its unique key is free,
// and the next of its group is ready. One that is rescheduled keeps both.
type SyncBatch struct {
	Member        member.ID
	Take          *Take          // nil: none; comes first
	History       []HistoryEntry // of those that are completed; comes before they are
	KeepDiscarded bool           // the history of those that are discarded
	Completed     []Position
	Rescheduled   []Reschedule
	Discarded     []Discard
	Closed        []ID // claims of which nothing is outstanding then

	// Broken is what Members.Broken returned before the first claim of Closed was made. If it
	// returns another number by now, or if the connections are a pooler's, the server may have
	// forgotten ends of their jobs, after a crash or a failover: a claim that has such a job stays.
	Broken int64

	Claim *ClaimRequest // nil: none

	// WaitsForRows has the batch wait for the locked rows of keys, for the shortest time that the
	// server counts. Other batches fail at once.
	WaitsForRows bool
}

// KeyedEnds are the jobs with keys that end.
func (x *SyncBatch) KeyedEnds() (ends []Position) {
	for _, p := range x.Completed {
		if p.Keyed {
			ends = append(ends, p)
		}
	}
	for i := range x.Discarded {
		if x.Discarded[i].Keyed {
			ends = append(ends, x.Discarded[i].Position)
		}
	}
	return ends
}

// Unfinished are the jobs that are rescheduled or discarded.
func (x *SyncBatch) Unfinished() []Position {
	places := make([]Position, 0, len(x.Rescheduled)+len(x.Discarded))
	for i := range x.Rescheduled {
		places = append(places, x.Rescheduled[i].Position)
	}
	for i := range x.Discarded {
		places = append(places, x.Discarded[i].Position)
	}
	return places
}

// LocksKeys reports that it locks rows of unique keys and groups: those of jobs that end.
func (x *SyncBatch) LocksKeys() bool { return len(x.KeyedEnds()) > 0 }

// LeavesGroups reports that jobs with keys which end leave places in their groups. A job that was
// not admitted has none: its end touches no group, and not even a row that appears meanwhile.
func (x *SyncBatch) LeavesGroups() bool { return x.Take == nil || x.Take.Job.Admitted }

// RowWait is how long it waits for the row of a unique key, a group, or a job that ends; then
// IsLocked of its error. A claim, and the end of a job that waits, take BriefWait.
func (x *SyncBatch) RowWait() time.Duration {
	if x.Take != nil || x.Claim != nil && x.LocksKeys() {
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

// Ends is how many jobs it releases.
func (x *SyncBatch) Ends() int { return len(x.Completed) + len(x.Rescheduled) + len(x.Discarded) }

// SyncResult is what became of it. Fewer than were sent: the claims of the others are not the
// member's any more.
type SyncResult struct {
	Completed, Rescheduled, Discarded int
	Jobs                              []Job

	// Void is how many rows a claim has removed that are of no job.
	Void int

	// Cancelled are jobs that were to be rescheduled or discarded, and that RequestCancel names. If
	// there are any, nothing has taken place.
	Cancelled []ID
}

// Driver is one database: it enqueues jobs, and runs what a worker asks for. Its errors are what
// the server says; Classify and IsLocked return what they mean.
type Driver interface {
	// Enqueue enqueues jobs, all or none but for duplicates.
	Enqueue(ctx context.Context, r *EnqueueRequest) ([]Duplicate, error)

	// Sync is one transaction, of READ COMMITTED. Its error may be a *LockedError.
	Sync(ctx context.Context, x *SyncBatch) (SyncResult, error)

	// BeginJobs records that jobs of a member begin their next attempts: Orphan.Begun is
	// Orphan.Attempt + 1. It waits for no row. begun are recorded: while it is under way nothing
	// takes their claims away. locked are not, as another transaction has locked the rows of the
	// jobs or of their claims. The claims of all others are not the member's.
	BeginJobs(ctx context.Context, m member.ID, jobs []Position) (begun, locked []ID, err error)

	// Payloads reads those of jobs that have not ended.
	Payloads(ctx context.Context, jobs []ID) (map[ID][]byte, error)

	// CountJobs is how many of some jobs have not ended. With wait it is one job. CountJobs waits
	// briefly for a transaction that is about to end it. If IsLocked of its error, it still may.
	CountJobs(ctx context.Context, jobs []ID, wait bool) (int, error)

	// Holders is which job has the unique key of each of some jobs, in their order; zero: none.
	Holders(ctx context.Context, jobs []Insert) ([]ID, error)

	// Classify returns what an error of this driver means.
	Classify(err error) sqlerr.Class

	// IsLocked reports that a statement gave up because another transaction had a row locked.
	IsLocked(err error) bool

	// Exhausted reports that the pool has no connection left: statements wait for one.
	Exhausted() bool

	// RowWaits is how many batches may wait for rows at once, on a server that counts such waits in
	// whole seconds. A batch without WaitsForRows fails there if a row is locked, and is sent
	// again. Transactions that wait for the row get it before such a batch. 0: the server counts
	// shorter waits, and every batch waits.
	RowWaits() int

	// Leases makes locks in the same database, for the election of a worker. Its error is
	// dblock.ErrUnsupported if the pool has too few connections for them.
	Leases(ctx context.Context, ttl time.Duration, label string) (dblock.Locker, error)

	// The other parts of the same driver.
	Members() Members
	Maintenance() Maintenance
	Admin() Admin
	Notifier() Notifier

	// Close ends what the driver has made for itself. The pool is its owner's.
	Close()
}

// ErrForeignTx: EnqueueRequest.Tx is not one of the driver's.
var ErrForeignTx error = &dblock.InvalidError{Field: "tx", Reason: "it is nil, or of another engine than the Queue"}

// EnqueueRequest is jobs of which no two have the same unique key.
type EnqueueRequest struct {
	Jobs []Insert

	// Tx is the transaction of the caller's that they are enqueued in: pglock.Tx or *sql.Tx, as the
	// driver has it; of any other the error is ErrForeignTx. Nil: one of the driver's own.
	Tx *CallerTx

	// Notify has the commit of Tx notify all processes, if the driver can.
	Notify bool

	// Wait is how long it waits for the row of a unique key or a group, or it does not wait at all.
	// Then IsLocked of its error. 0: while ctx lives. It is nothing to Tx.
	Wait time.Duration
}

// CallerTx is a transaction of the caller's, of whatever driver.
type CallerTx struct{ Tx any }

// Members is the row of this process, and those of others.
type Members interface {
	member.Driver

	// Stands reports whether a member's row is there. If it is, no other process has ended a job of
	// the member's claims until now: a rescue evicts the member first.
	Exists(ctx context.Context, m member.ID) (bool, error)

	// Evict deletes a member if it has expired, and reports whether it is gone.
	Evict(ctx context.Context, m member.ID) (gone bool, err error)
}
