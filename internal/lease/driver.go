package lease

import (
	"context"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// Handle names one acquisition: random, never used twice.
type Handle = member.ID

// By is the member for which leases are acquired. The statement has no effect once the member has
// sent two more heartbeats than Heartbeat: a statement that takes so long has been given up.
type By struct {
	Member    member.ID
	Heartbeat int64
}

// AcquireRequest is one acquisition.
type AcquireRequest struct {
	Key            string
	Handle         Handle
	Label          string
	Data           []byte
	Hold           time.Duration // it ends so long after it was granted, whatever the member does; 0: never.
	Detached       bool          // no member keeps it: it lasts for Hold.
	Contended      bool          // another handle held the key at the last request.
	Instead        Handle        // an acquisition that this one replaces if the database still has it; zero: none.
	DeadMember     member.ID     // a member that is gone for good (see Evict): what it held is free; zero: none.
	NoTickets      bool          // only if no call has a ticket for the key.
	DespiteReaders bool          // readers may be there still: what is granted is to be held only when they have gone.

	Permits, Limit int // where permits are asked for: how many, of how many
}

// AcquireResult is what became of an AcquireRequest.
type AcquireResult struct {
	Token  int64  // of the grant; 0: it was not granted.
	Ticket int64  // in the fair queue; 0: the member is gone.
	Handle Handle // of the acquisition that the database says it granted; the core refuses a grant of another one.
	Err    error  // of this request; the other results of its batch count.

	// What follows says why, as one statement saw it.
	MemberGone bool // the member of the request has expired, or has sent more heartbeats
	Held       bool // the key is held; else its row was locked for a moment, and it may be free
	Holder     Holder
	Shared     bool        // no live holder has it exclusively, but readers may have it, and the request was not Over them.
	Stored     int         // the semaphore's number of permits; 0: there is none.
	Usable     int         // how many of its permits seem free.
	Dead       []member.ID // holders of permits that have expired or are gone.
}

// Holder describes the holder of a lease.
type Holder struct {
	Member    member.ID // zero: no member keeps it alive
	Label     string
	Token     int64
	Dead      bool          // the member has expired or is gone: the lease can be taken over
	Remaining time.Duration // until it ends without a heartbeat
}

// QueueEntry is what has become of a call that waits with a ticket: its Token where it has the key.
type QueueEntry struct {
	AcquireResult
	Remaining time.Duration // until the end of what it has, where it has one of its own
	Waits     bool          // its ticket is there, and its member is alive
	Missing   bool          // the key has no row, and so is free
}

// ReleaseRequest is one acquisition to be released. Token 0 is any: the handle is enough.
type ReleaseRequest struct {
	Key    string
	Token  int64
	Handle Handle
	Mode   dblock.Mode
	Lasts  time.Duration // it ends so long after it was granted, as no member keeps it; 0: with its member
}

// MayWait returns those of a batch that may have a ticket. A lease with a known token was granted.
func MayWait(backs []ReleaseRequest) []ReleaseRequest {
	var waits []ReleaseRequest
	for _, b := range backs {
		if b.Token == 0 {
			waits = append(waits, b)
		}
	}
	return waits
}

// undo is what undoes an AcquireRequest.
func (a AcquireRequest) undo(mode dblock.Mode) ReleaseRequest {
	b := ReleaseRequest{Key: a.Key, Handle: a.Handle, Mode: mode}
	if a.Detached {
		b.Lasts = a.Hold
	}
	return b
}

// ReleaseResult is what became of a ReleaseRequest.
type ReleaseResult struct {
	Freed bool // by this very call
	Held  bool // the database had the lease when the statement began; without Freed, its row was locked
}

// HeldLease is an acquisition that is held.
type HeldLease struct {
	Key         string
	Mode        dblock.Mode
	Permits     int
	Limit       int
	Token       int64
	Handle      Handle
	Holder      Holder
	MemberLabel string
	Age         time.Duration
	Waiters     int64
	Data        []byte // read by Get only
}

// Kind is what a statement does with its requests.
type Kind int

const (
	KindExclusive Kind = iota // one holder for each key
	KindShared                // readers
	KindPermits               // permits of semaphores: a request gets all that it wants, or none
	KindSet                   // all of the requests, which have one handle, or none
	KindFair                  // the fair queue: an acquisition takes tickets, a release passes keys on
)

// kinds are the kinds of statements for single keys, by the mode of the lock.
var kinds = [...]Kind{dblock.ModeExclusive: KindExclusive, dblock.ModeShared: KindShared, dblock.ModePermit: KindPermits}

// AcquireBatch is what one statement asks for. KindExclusive has each key once (see CheckKeys), and
// all or none of its requests are NoTickets. A batch of another kind may have a key more than once.
type AcquireBatch struct {
	Kind     Kind
	By       By
	Requests []AcquireRequest
}

// ReleaseBatch is what one statement releases. KindExclusive and KindSet have each key once.
// KindFair withdraws the tickets of those that may wait (see MayWait), and then releases what the
// batch holds: the same statement grants a key to the lowest ticket whose member is alive.
type ReleaseBatch struct {
	Kind     Kind
	Requests []ReleaseRequest
}

// Traits are constants of a driver and its server.
type Traits struct {
	// Classify returns what an error of the driver means.
	Classify func(error) sqlerr.Class // required

	// LockWait is how long a statement may wait for a lock at the server before it takes effect,
	// although its client has given up.
	LockWait time.Duration

	// MaxStatementBytes bounds a statement; 0: the driver has no bound.
	MaxStatementBytes int
}

// Driver executes the statements of lease locks in one database. Each call but Listen is one
// autocommit statement, or acts as one, with a lock timeout. Its errors are the database driver's:
// Traits.Classify returns what they mean.
type Driver interface {
	// Acquire grants the requests of a batch that can be granted. It skips a row that another
	// transaction has locked. A set is granted as a whole; its rows that are missing are not made.
	// KindFair returns tickets, which grow; 0 if the member is gone.
	Acquire(ctx context.Context, batch AcquireBatch) ([]AcquireResult, error)

	// Release releases the requests of a batch that are still held. A set is released as a whole.
	Release(ctx context.Context, batch ReleaseBatch) ([]ReleaseResult, error)

	// Make makes the rows of keys that have none. The rows are free: leases, or a semaphore if
	// permits is its number of permits.
	Make(ctx context.Context, keys []string, permits int) error

	// Entry reads what has become of a call that waits with a ticket.
	Entry(ctx context.Context, key string, handle Handle, ticket int64) (QueueEntry, error)

	// Serve grants a key that is free, or that the member gone holds, to the lowest ticket whose
	// member is alive. It returns false if there is none.
	Serve(ctx context.Context, key string, gone member.ID) (bool, error)

	// Readers returns the shared holders of a key, or some of very many. It is a statement of its
	// own.
	Readers(ctx context.Context, key string) ([]Holder, error)

	// Reap ends what members that are gone hold of a key, shared or as permits, and what has
	// expired.
	Reap(ctx context.Context, mode dblock.Mode, key string, gone []member.ID) error

	// ExpireIn ends all leases of one acquisition d from now, or none. It returns false if not all
	// of them are held any more.
	ExpireIn(ctx context.Context, held []ReleaseRequest, d time.Duration) (bool, error)

	// Holding returns which acquisitions of one kind are still held: all rows of each, none
	// expired. It reads and waits for no lock.
	Holding(ctx context.Context, held []ReleaseRequest) ([]bool, error)

	// HeldBy reads all that a member has, its tickets included: a request for each key and handle,
	// with Token 0. It may return one twice.
	HeldBy(ctx context.Context, id member.ID) ([]ReleaseRequest, error)

	// Evict ends a member that was seen to have expired. A second statement makes sure that it is
	// gone for good: gone is false if it is not. Evict also ends what keeps the member's leases
	// locked and would never end by itself.
	Evict(ctx context.Context, id member.ID) (gone bool, err error)

	// Wait notes for ttl that a process waits for keys, so that a release of one notifies it. With
	// ttl 0 it ends that.
	Wait(ctx context.Context, keys []string, id member.ID, ttl time.Duration) error

	// OthersWait returns whether another member that is alive waits for a key.
	OthersWait(ctx context.Context, key string, id member.ID) (bool, error)

	// Listen calls wake with each key that was released while a process waited, until ctx ends or
	// the connection breaks. It calls ready once notifications are sure to arrive. It returns
	// ErrUnsupported if the database has none.
	Listen(ctx context.Context, ready func(), wake func(key string)) error
}

// Inspector reads and changes leases for operators.
type Inspector interface {
	// List reads what is held, sorted by key: of all keys, or of one without ages, waiters and
	// data.
	List(ctx context.Context, key string) ([]HeldLease, error)

	// Get reads one lease, with its data: the exclusive holder, or else any shared holder or
	// permits. It returns false if no live process holds it, with the token of the last
	// acquisition, or 0 if that is unknown.
	Get(ctx context.Context, key string) (l HeldLease, held bool, err error)

	// SetPermits gives a semaphore a number of permits, makes it if there is none, and wakes
	// waiters.
	SetPermits(ctx context.Context, key string, limit int) error

	// Sweep removes members, waiters and leases that have been unused for a time, in small steps.
	Sweep(ctx context.Context, unused time.Duration) (removed int64, err error)
}

// Backend is what a driver has for one database.
type Backend struct {
	Member    member.Driver
	Driver    Driver
	Inspector Inspector
	Traits    Traits
	Close     func()
}

// Watcher is a Driver whose server sends no notifications, but can watch keys in a statement.
type Watcher interface {
	// Watch begins on a connection of its own. Where there is none to spare it returns
	// ErrUnsupported.
	Watch(ctx context.Context) (Watch, error)

	// Free returns which of these keys a request could acquire now.
	Free(ctx context.Context, keys []string) ([]LeaseState, error)
}

// Watch is a connection on which the server looks at keys.
type Watch interface {
	// Watch returns as soon as some of these keys seem to be free, or to be held by one of these
	// handles. That may not be committed yet. After about d it returns none. States that are known
	// already are skipped.
	Watch(ctx context.Context, keys []string, turns []Handle, known []LeaseState, d time.Duration) ([]LeaseState, error)

	// Close ends the connection.
	Close()
}

// LeaseState is a key that was seen free. It has that token until it is acquired again. Where a
// call has it that waited, that is its Handle.
type LeaseState struct {
	Key    string
	Token  int64
	Handle Handle
}
