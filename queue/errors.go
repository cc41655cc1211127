package queue

import (
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/callback"
)

// Errors of the queue. Those that all of dblock shares are in package dblock: ErrInvalid,
// ErrUnavailable, ErrOutcomeUnknown, ErrOverloaded, ErrBusy, ErrConflict, ErrClosed, ErrSchema,
// ErrServerTooOld, ErrLost.
var (
	// ErrUnknownKind: no handler is registered for the kind of a job. The job is left to processes
	// that know it: it is put off for about an eighth of its age, 1 s to 1 min, without counting an
	// attempt. Observer.Trouble and Options.Log get the error, once a minute for each kind.
	ErrUnknownKind = errors.New("queue: no handler for this kind")

	// ErrDecode: a job's payload is not what its handler takes. It counts as an attempt.
	ErrDecode = errors.New("queue: the payload can't be decoded")

	// ErrTimeout: a handler took longer than its timeout. It is the cause of the handler's context
	// then.
	ErrTimeout = errors.New("queue: the job took longer than its timeout")

	// ErrStopped is the cause of a handler's context when Work was ended and Grace is over. A
	// handler that returns an error then has its job handed back, without counting it as an
	// attempt.
	ErrStopped = errors.New("queue: the worker was stopped")

	// ErrStillRunning: Work was ended, and handlers have not returned though their contexts have
	// ended. What becomes of their jobs is recorded when they return, while the Queue is open. Once
	// it is closed, or the process has ended, the jobs are rescued.
	ErrStillRunning = errors.New("queue: handlers still run")

	// ErrNotRecorded: Work was ended, and the database has not taken the ends of jobs for
	// Options.Timeout, or Close did not wait for them. The Queue goes on to record them while it is
	// open. Once it is closed, or the process has ended, the jobs are rescued, and done again.
	ErrNotRecorded = errors.New("queue: the ends of jobs are not recorded")
)

// PanicError is what a handler's panic is turned into, and its runtime.Goexit.
type PanicError struct {
	Value any    // what it panicked with; nil: it called runtime.Goexit
	Stack []byte // of its goroutine
}

// panicOf is the error of a handler that panicked with a value.
func panicOf(value any, stack []byte) error {
	if err, is := value.(error); is {
		value = callback.Sound(err)
	}
	return callback.Sound(&PanicError{Value: value, Stack: stack})
}

func (e *PanicError) Error() string {
	if e.Value == nil {
		return "queue: the handler ended its goroutine (runtime.Goexit)"
	}
	return fmt.Sprintf("queue: the handler panicked: %v\n%s", e.Value, e.Stack)
}

// Unwrap returns what it panicked with, if that is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Snooze is what a handler returns to have its job run again after d, without counting it as an
// attempt. At least 1 ms.
func Snooze(d time.Duration) error { return &snoozed{max(d, time.Millisecond)} }

// Discard is what a handler returns if its job can't succeed: it is dead, is kept with err, and is
// not tried again.
func Discard(err error) error { return &discarded{orUnsaid(err)} }

// Cancel is what a handler returns if its job is no longer wanted: nothing is kept of it.
func Cancel(err error) error { return &cancelled{orUnsaid(err)} }

func orUnsaid(err error) error {
	if err == nil {
		return errors.New("queue: no reason was given")
	}
	return callback.Sound(err)
}

type snoozed struct{ d time.Duration }

func (e *snoozed) Error() string { return fmt.Sprintf("queue: snoozed for %v", e.d) }

type discarded struct{ error }

func (e *discarded) Unwrap() error { return e.error }

type cancelled struct{ error }

func (e *cancelled) Unwrap() error { return e.error }
