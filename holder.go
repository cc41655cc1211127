package dblock

import (
	"fmt"
	"time"
)

// Mode is how a lock is held.
type Mode uint8

const (
	ModeExclusive Mode = iota // by one holder
	ModeShared                // by any number of holders in this mode: WithShared
	ModePermit                // by a semaphore's permits: WithPermits
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

// Holder describes the holder of a lock, as far as the database knows it.
type Holder struct {
	Label  string // free text of the acquirer's, or of its process
	Member string // the holder's process, a random number in hexadecimal
	Token  int64  // of its acquisition; 0 if the backend has none
}

// HeldError names a holder of the lock that was not acquired. A lock may have several holders.
// Holder is zero if the holder is not known. The error matches ErrNotAcquired and, if a context
// ended the wait, the context's error.
type HeldError struct {
	Key    string
	Holder Holder

	// Remaining is for how long the holder keeps the lock without another heartbeat; 0 if that is
	// not known. A live holder renews it.
	Remaining time.Duration

	// Wait is what ended the wait, or what ended the call before the server was asked; nil if the
	// call did not wait.
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
	// ReasonExpired: no heartbeat was confirmed for so long that others may hold the lock.
	ReasonExpired Reason = "the member expired: no heartbeat was confirmed in time"

	// ReasonEvicted: the database no longer knows the member, because others found it dead.
	ReasonEvicted Reason = "the member was evicted: others found it dead"

	// ReasonStolen: the lock's row names another holder, or none.
	ReasonStolen Reason = "the lock was taken away"

	// ReasonTimeUp: the time given by WithMaxHold, WithoutRenewal or ExpireIn has passed.
	ReasonTimeUp Reason = "its time is up"

	// ReasonDisconnected: the connection of a session lock was lost.
	ReasonDisconnected Reason = "the connection was lost"

	// ReasonUnconfirmed: the server did not confirm that a session lock was held until its release.
	ReasonUnconfirmed Reason = "the server did not confirm the release"

	// ReasonReleased: the lock was released. Calls after Release return it.
	ReasonReleased Reason = "it was released"

	// ReasonClosed: the Locker was closed.
	ReasonClosed Reason = "the Locker was closed"
)

// LostError is the cause of a lock's context after the loss, and what Release then returns. It
// matches ErrLost.
type LostError struct {
	Key    string
	Reason Reason
}

func (e *LostError) Error() string { return fmt.Sprintf("dblock: lost %q: %s", e.Key, e.Reason) }

// Is makes errors.Is(err, ErrLost) true.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// DeadlockError says that a call would wait for a lock that it holds itself, further up in its
// context. It matches ErrDeadlock. WithReentrant acquires the lock once more instead, in the mode
// in which it is held. A shared lock can't become exclusive: two callers that tried it would wait
// for each other.
type DeadlockError struct {
	Key   string
	Mode  Mode   // in which it is held
	Where string // file and line of the call that acquired it
}

func (e *DeadlockError) Error() string {
	held := "held"
	if e.Mode != ModeExclusive {
		held += " (" + e.Mode.String() + ")"
	}
	return fmt.Sprintf("dblock: %q is %s by this very call, since %s: release it first, or acquire the same keys with WithReentrant in the same mode",
		e.Key, held, e.Where)
}

// Is makes errors.Is(err, ErrDeadlock) true.
func (e *DeadlockError) Is(target error) bool { return target == ErrDeadlock }

// LimitError says that a semaphore has another number of permits than the acquisition's limit. It
// matches ErrLimit.
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

// HeldLock is one lock that is held, as the database shows it.
type HeldLock struct {
	Key       string
	Mode      Mode
	Permits   int // how many are held, in ModePermit
	Limit     int // how many the semaphore has
	Fence     Fence
	Holder    Holder
	Age       time.Duration // since it was acquired
	Remaining time.Duration // until it ends without another heartbeat
	Waiters   int64         // processes that wait for it
	Data      []byte        // the data of WithData; Holder reads it, Held does not
}

// SessionLock is one lock that a session of the server holds, or waits for, as the server shows it.
type SessionLock struct {
	ID        string // the server's own number or name of the lock
	Namespace string // as dblock recorded it
	Key       string // as dblock recorded it; empty for a lock of another program, or one just acquired
	Mode      Mode
	Waits     bool   // the session waits for the lock, and does not hold it
	Session   string // its number in the server's list of processes; empty: a prepared transaction.
	Label     string // Postgres' application_name, or the prepared transaction; MySQL's user.
	Client    string // the client's address
	Waiters   int64  // other sessions that have announced that they wait
}
