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

// By is on whose behalf leases are taken. The statement does nothing once the member has beaten twice
// more than Beat: what is under way for so long has been given up.
type By struct {
	Member member.ID
	Beat   int64
}

// Ask is one acquisition.
type Ask struct {
	Key       string
	Handle    Handle
	Label     string
	Data      []byte
	Hold      time.Duration // it ends so long after it was granted, whatever the member does; 0: never
	Detached  bool          // no member keeps it: it lasts for Hold
	Contended bool          // somebody else had it when it was last asked for
	Instead   Handle        // an acquisition that is given up for this one, where it still stands; zero: none
	Gone      member.ID     // a member that is gone for good (see Evict): what it held is free; zero: none
	InTurn    bool          // only where nobody has a ticket for the key
	Over      bool          // readers may be there still: what is granted is to be held only when they have gone

	Permits, Limit int // where permits are asked for: how many, of how many
}

// Answer is what became of an Ask.
type Answer struct {
	Token  int64  // of the grant; 0: it was not granted
	Handle Handle // of the acquisition that the database says it granted; the core refuses a grant of another one
	Err    error  // what failed for this ask alone; the other answers of its batch count

	// What follows says why, as one statement saw it.
	MemberGone bool // ours: it has expired, or has beaten on
	Held       bool // somebody has it; else it was locked for a moment, and may be free
	Holder     Holder
	Shared     bool        // no live holder has it alone, but readers may be there, and it was not asked for Over them
	Stored     int         // the semaphore's number of permits; 0: there is none
	Usable     int         // how many of its permits seem free
	Dead       []member.ID // those who hold permits and have expired or are gone
}

// Holder is who has a lease.
type Holder struct {
	Member    member.ID // zero: nobody keeps it alive
	Label     string
	Token     int64
	Dead      bool          // the member has expired or is gone: the lease can be taken over
	Remaining time.Duration // until it ends without a heartbeat
}

// Turn is what has become of a call that waits with a ticket: its Token where it has the key.
type Turn struct {
	Answer
	Left    time.Duration // until the end of what it has, where it has one of its own
	Waits   bool          // its ticket is there, and its member is alive
	Missing bool          // the key has no row, and so is free
}

// Back is one acquisition to be given back. Token 0 is any: the handle is enough.
type Back struct {
	Key    string
	Token  int64
	Handle Handle
	Mode   dblock.Mode
	Lasts  time.Duration // it ends so long after it was granted, as no member keeps it; 0: with its member
}

// MayWait returns those of a batch that may have a ticket: a lease whose token is known was granted.
func MayWait(backs []Back) []Back {
	var waits []Back
	for _, b := range backs {
		if b.Token == 0 {
			waits = append(waits, b)
		}
	}
	return waits
}

// back is what undoes an Ask.
func (a Ask) back(mode dblock.Mode) Back {
	b := Back{Key: a.Key, Handle: a.Handle, Mode: mode}
	if a.Detached {
		b.Lasts = a.Hold
	}
	return b
}

// Returned is what became of a Back.
type Returned struct {
	Freed bool // by this very call
	Stood bool // the row was ours when the statement began: not freed, it was locked
}

// Listed is an acquisition that is held.
type Listed struct {
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
	Data        []byte // Look alone reads it
}

// Engine is the leases of one database. Each call but Evict is one autocommit statement, or acts as
// one, under a lock timeout. Its errors are what the driver says; Classify tells what
// they mean.
type Engine interface {
	member.Engine

	// Acquire grants what is free of a batch, which has each key once (see CheckKeys); all or none of it are asked for
	// InTurn. A row that another transaction has locked is passed over.
	Acquire(ctx context.Context, by By, asks []Ask) ([]Answer, error)

	// AcquireAll grants a batch as a whole, or nothing of it. All have one handle. Rows that are missing are not made.
	AcquireAll(ctx context.Context, by By, asks []Ask) ([]Answer, error)

	// MakeFree makes the rows of keys where they are missing; nobody holds them.
	MakeFree(ctx context.Context, keys []string) error

	// Enqueue notes a batch of calls that wait, in their order, and returns their tickets, which grow; 0 where the
	// member is gone.
	Enqueue(ctx context.Context, by By, asks []Ask) ([]int64, error)

	// SeeTurn reads what has become of one of them.
	SeeTurn(ctx context.Context, key string, handle Handle, ticket int64) (Turn, error)

	// Serve grants a key that is free, or that a member holds which is gone for good, to who has the lowest ticket
	// and is alive; false where nobody was served.
	Serve(ctx context.Context, key string, gone member.ID) (bool, error)

	// PassOn withdraws the tickets of those that may wait, see MayWait, and then releases what a batch holds. The
	// same statement grants a key to the lowest ticket whose member is alive. A batch may have a key more than once.
	PassOn(ctx context.Context, backs []Back) ([]Returned, error)

	// AcquireShared grants a batch to readers, which may have a key more than once.
	AcquireShared(ctx context.Context, by By, asks []Ask) ([]Answer, error)

	// Readers are those who hold a key shared, in a statement of its own; of very many some.
	Readers(ctx context.Context, key string) ([]Holder, error)

	// AcquirePermits grants a batch, each ask all that it wants, or nothing. It may have a key more than once.
	AcquirePermits(ctx context.Context, by By, asks []Ask) ([]Answer, error)

	// MakeSemaphore makes one where there is none; SetPermits gives it a number, whether or not there is one, and
	// wakes who waits.
	MakeSemaphore(ctx context.Context, key string, limit int) error
	SetPermits(ctx context.Context, key string, limit int) error

	// Reap ends what is held of a key, shared or as permits, by members that are gone for good, or whose time is up.
	Reap(ctx context.Context, mode dblock.Mode, key string, gone []member.ID) error

	// Evict ends a member that was seen to have expired, and makes sure in a statement of its own that it is gone
	// for good: false if it is not. It also ends what keeps the member's leases locked and would never end by itself.
	Evict(ctx context.Context, id member.ID) (gone bool, err error)

	// Release gives a batch back that is all of one mode. What is exclusive has each key once.
	Release(ctx context.Context, backs []Back) ([]Returned, error)

	// ReleaseAll gives back what is still ours of a set, or nothing of it.
	ReleaseAll(ctx context.Context, backs []Back) ([]Returned, error)

	// ExpireIn ends all leases of one acquisition d from now, or none; false if not all of them are ours any more.
	ExpireIn(ctx context.Context, backs []Back, d time.Duration) (bool, error)

	// Holding tells, for a batch of one mode, which acquisitions are still ours: all rows of each, none past its own
	// end. It reads and waits for no lock.
	Holding(ctx context.Context, backs []Back) (ours []bool, err error)

	// Wait notes that a process waits for keys, so that whoever gives one back says so; StopWaiting ends it.
	Wait(ctx context.Context, keys []string, id member.ID, ttl time.Duration) error
	StopWaiting(ctx context.Context, keys []string, id member.ID) error

	// OthersWait tells whether another member that is alive waits for a key.
	OthersWait(ctx context.Context, key string, id member.ID) (bool, error)

	// Listen calls wake with each key that was given back while somebody waited, until ctx ends or
	// the connection breaks; ready is called when it is certain that they come. Where a database cannot, it
	// returns ErrUnsupported.
	Listen(ctx context.Context, ready func(), wake func(key string)) error

	// List reads what is held, sorted by key.
	List(ctx context.Context) ([]Listed, error)

	// HoldersOf reads the acquisitions that hold one key, in any mode, without their ages, waiters and data.
	HoldersOf(ctx context.Context, key string) ([]Listed, error)

	// HeldBy reads what stands under a member, its tickets included: a Back for each key and handle, with Token 0. It may
	// have one twice. What no member keeps is not in it.
	HeldBy(ctx context.Context, id member.ID) ([]Back, error)

	// Look reads one lease, with its data: the exclusive holder, or else any that holds the key shared,
	// or permits of it; false if no living process holds it. It then returns the
	// token of the last acquisition, or 0 if that is not known any more.
	Look(ctx context.Context, key string) (l Listed, held bool, err error)

	// Sweep tidies away members, waiters and leases that nobody has used for so long, in small steps.
	Sweep(ctx context.Context, unused time.Duration) (removed int64, err error)

	// Lingers is for how long a statement may wait at the server for others' locks before it takes effect, though
	// its client has given up.
	Lingers() time.Duration

	// LongestStatement is how many bytes a statement may have; 0: the engine knows no bound.
	LongestStatement() int

	// Classify tells what an error of this engine means.
	Classify(err error) sqlerr.Class
}

// Watcher is an Engine whose server tells nobody anything unasked, but looks at keys for whoever asks it to.
type Watcher interface {
	// Watch begins on a connection of its own. Where there is none to spare it returns ErrUnsupported.
	Watch(ctx context.Context) (Watch, error)

	// Free tells which of these keys are free for whoever asks now.
	Free(ctx context.Context, keys []string) ([]Seen, error)
}

// Watch is a connection on which the server looks at keys.
type Watch interface {
	// Look returns as soon as some of these keys seem to be free, or to be held by one of these handles, which may
	// not be committed; about d later with none. What was told is passed over.
	Look(ctx context.Context, keys []string, turns []Handle, told []Seen, d time.Duration) ([]Seen, error)

	// Close ends the connection.
	Close()
}

// Seen is a key that was seen free. It has that token until it is acquired again. Where a call has it that waited,
// that is its Handle.
type Seen struct {
	Key    string
	Token  int64
	Handle Handle
}
