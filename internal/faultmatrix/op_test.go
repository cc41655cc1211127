package faultmatrix

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/queue"
)

// Kinds of ops.
const (
	opGrant   = "grant"   // an acquisition that returned, with its token.
	opEnter   = "enter"   // the caller is in the section of a lease.
	opExpire  = "expire"  // the caller is about to move the end of the section to End.
	opLeave   = "leave"   // it was, until End at most.
	opSection = "section" // a section of a session lock, known with its release.
	opWriting = "writing" // a write that is about to commit: a killed process logs no more of it.
	opWrite   = "write"
	opRead    = "read" // of what a shared lock protects; Now is the value
	opOrder   = "order"
	opRepeat  = "repeat" // an order that is about to be sent again: a killed process logs no more of it
	opEnqueue = "enqueue"
	opCall    = "call"  // any other
	opPause   = "pause" // the process stood still
	opKill    = "kill"  // the process was killed
)

type outcome string

const (
	done    outcome = "done"
	refused outcome = "refused" // the error says that nothing is written
	unknown outcome = "unknown"
	stuck   outcome = "stuck"   // the call did not return
	unnamed outcome = "unnamed" // an error of no documented class
)

// op is what a worker did: one line of its log. Times are by uptime.
type op struct {
	Kind       string
	Worker     int
	Control    bool   `json:",omitempty"`
	ID         string `json:",omitempty"`
	Key        string `json:",omitempty"`
	Token      int64  `json:",omitempty"`
	Mode       dblock.Mode
	Permits    int `json:",omitempty"`
	Was, Now   int64
	Begin, End time.Duration
	Limit      time.Duration // what its context allowed; 0: the call is not checked
	Outcome    outcome       `json:",omitempty"`
	Err        string        `json:",omitempty"`
}

// opLog is the log of one process. Each op is one write, so that a killed process has written it,
// or nothing.
type opLog struct {
	file   *os.File
	worker int
}

func openLog(path string, worker int) (*opLog, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	return &opLog{file, worker}, err
}

func (l *opLog) note(o op) {
	if o.Kind != opKill {
		o.Worker = l.worker
	}
	line, err := json.Marshal(o)
	if err == nil {
		_, err = l.file.Write(append(line, '\n'))
	}
	if err != nil {
		panic(fmt.Errorf("the log of a worker: %w", err))
	}
}

func readLog(path string) (ops []op, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(data) {
		var o op
		if err := json.Unmarshal(line, &o); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", path, line, err)
		}
		ops = append(ops, o)
	}
	return ops, nil
}

// errFunc marks the error of a caller's own function, which dblock returns as it is after a
// rollback.
var errFunc = errors.New("the caller's function")

// refusals are the documented errors after which nothing is written.
var refusals = []error{
	dblock.ErrLost, dblock.ErrFenced, dblock.ErrNotAcquired, dblock.ErrNotHeld, dblock.ErrBusy, dblock.ErrUnavailable,
	dblock.ErrOverloaded, dblock.ErrConflict, dblock.ErrClosed, dblock.ErrTxEnded, inventory.ErrSoldOut, inventory.ErrRejected,
	queue.ErrDuplicate, context.DeadlineExceeded, context.Canceled, errFunc,
}

// outcomeOf says what an error means for its caller.
func outcomeOf(err error) outcome {
	if err == nil {
		return done
	}
	if errors.Is(err, dblock.ErrOutcomeUnknown) {
		return unknown
	}
	for _, class := range refusals {
		if errors.Is(err, class) {
			return refused
		}
	}
	return unnamed
}
