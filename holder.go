package dblock

import (
	"fmt"
	"time"
)

// Mode is how a lock is held.
type Mode uint8

const (
	ModeExclusive Mode = iota // by one
	ModeShared                // beside others who hold it shared: WithShared
	ModePermit                // some of a semaphore's permits: WithPermits
)

func (m Mode) String() string {
	switch m {
	case ModeShared:
		return "shared"
	case ModePermit:
		return "permits"
	default:
		return "exclusive"
	}
}

// Holder is who holds a lock, as far as the database tells.
type Holder struct {
	Label  string // free text of the acquirer's, or of its process
	Member string // the holder's process, a random number in hexadecimal
	Token  int64  // of its acquisition; 0 where the backend has none
}

// HeldError names a holder of the lock that was not acquired. A lock may have several holders. Its Holder is zero if the
// holder is not known. Matches ErrNotAcquired, and where a context ended the wait the context's error, too.
type HeldError struct {
	Key    string
	Holder Holder

	// Remaining is how long the holder may keep the lock without another sign of life; 0 where
	// that is not known. A live holder renews it.
	Remaining time.Duration

	// Wait is what ended the wait, or what ended the call before the server was asked: nil where nothing was waited for.
	Wait error
}

func (e *HeldError) Error() string {
	text := fmt.Sprintf("dblock: %q is held by %s", e.Key, e.Holder)
	switch {
	case e.Holder == Holder{} && e.Wait != nil:
		text = fmt.Sprintf("dblock: %q was not acquired", e.Key)
	case e.Holder == Holder{}:
		text = fmt.Sprintf("dblock: %q was not acquired: its holder is unknown", e.Key)
	case e.Remaining > 0:
		text += fmt.Sprintf(", for %v without another heartbeat", e.Remaining.Round(time.Millisecond))
	}
	if e.Wait != nil {
		text += fmt.Sprintf("; the wait ended: %v", e.Wait)
	}
	return text
}

// Is makes errors.Is(err, ErrNotAcquired) true.
func (e *HeldError) Is(target error) bool { return target == ErrNotAcquired }

// Unwrap returns what ended the wait.
func (e *HeldError) Unwrap() error { return e.Wait }

func (h Holder) String() string {
	switch {
	case h.Label != "" && h.Member != "":
		return fmt.Sprintf("%q (member %s)", h.Label, h.Member)
	case h.Member != "":
		return "member " + h.Member
	case h.Label != "":
		return fmt.Sprintf("%q", h.Label)
	case h.Token != 0:
		return fmt.Sprintf("the holder of token %d", h.Token)
	default:
		return "an unknown holder"
	}
}

// Reason says why a lock was lost.
type Reason string

const (
	// ReasonExpired: no heartbeat was confirmed for so long that others may have the lock.
	ReasonExpired Reason = "the member expired: no heartbeat was confirmed in time"

	// ReasonEvicted: the database no longer knows the member: others have found it dead.
	ReasonEvicted Reason = "the member was evicted: others found it dead"

	// ReasonStolen: the lock's row says that somebody else has it, or nobody.
	ReasonStolen Reason = "the lock was taken away"

	// ReasonTimeUp: the time is up that WithMaxHold, WithoutRenewal or ExpireIn gave.
	ReasonTimeUp Reason = "its time is up"

	// ReasonDisconnected: the connection that the lock lived on was lost.
	ReasonDisconnected Reason = "the connection was lost"

	// ReasonUnconfirmed is the reason if the server did not confirm that a session lock was held until its release.
	ReasonUnconfirmed Reason = "the server did not confirm the release"

	// ReasonReleased: the lock was released. Calls that come after Release return it.
	ReasonReleased Reason = "it was released"

	// ReasonClosed: the Locker was closed.
	ReasonClosed Reason = "the Locker was closed"
)

// LostError is the cause of a lock's context once it is lost, and what Release says then. Matches
// ErrLost.
type LostError struct {
	Key    string
	Reason Reason
}

func (e *LostError) Error() string { return fmt.Sprintf("dblock: lost %q: %s", e.Key, e.Reason) }

// Is makes errors.Is(err, ErrLost) true.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// DeadlockError says that a call waits for a lock that it holds itself, below the lock's own context. Matches
// ErrDeadlock. WithReentrant takes it once more instead, in the mode in which it is held: a lock that is held shared
// can't become exclusive, as two who tried it would wait for each other.
type DeadlockError struct {
	Key   string
	Mode  Mode   // in which it is held
	Where string // file and line of the call that took it
}

func (e *DeadlockError) Error() string {
	held := "held"
	if e.Mode != ModeExclusive {
		held += " (" + e.Mode.String() + ")"
	}
	return fmt.Sprintf("dblock: %q is %s by this very call, since %s: release it first, or acquire it with WithReentrant in the same mode",
		e.Key, held, e.Where)
}

// Is makes errors.Is(err, ErrDeadlock) true.
func (e *DeadlockError) Is(target error) bool { return target == ErrDeadlock }

// LimitError says that a semaphore has another number of permits than an acquisition believes. Matches ErrLimit.
type LimitError struct {
	Key    string
	Stored int // the semaphore's
	Asked  int // the acquisition's
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("dblock: the semaphore %q has %d permits, and not %d: ask with the number that it has, or change that with SetPermits",
		e.Key, e.Stored, e.Asked)
}

// Is makes errors.Is(err, ErrLimit) true.
func (e *LimitError) Is(target error) bool { return target == ErrLimit }

// HeldLock is one lock that somebody holds, as the database shows it.
type HeldLock struct {
	Key       string
	Mode      Mode
	Permits   int // how many, where that is the mode
	Limit     int // of how many
	Fence     Fence
	Holder    Holder
	Age       time.Duration // since it was acquired
	Remaining time.Duration // until it ends without another heartbeat
	Waiters   int64         // processes that wait for it
	Data      []byte        // the data of WithData; Holder reads it, Held does not
}

// SessionLock is one lock that a session of the server has, or waits for, as the server shows it.
type SessionLock struct {
	ID        string // what the server calls it by: a number, or a name
	Namespace string // these two as they were noted; no Key where it was not: it is another program's, or was just acquired
	Key       string
	Mode      Mode
	Waits     bool   // the session waits in the server's line, and does not have it
	Session   string // its number in the server's list of processes
	Label     string // what it calls itself: Postgres' application_name, MySQL's user
	Client    string // where it comes from
	Waiters   int64  // other sessions that have said that they wait
}
