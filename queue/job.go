package queue

import (
	"fmt"
	"math"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/callback"
	"github.com/dblock-go/dblock/internal/root"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// Limits of what a Queue takes.
const (
	MaxNameBytes    = 100     // of a queue or a kind, as UTF-8
	MaxPayloadBytes = 1 << 20 // of an encoded payload
	MaxDelay        = 10 * 365 * 24 * time.Hour
	MaxAttempts     = 1000
)

// DefaultQueue is the queue of a Task that names none.
const DefaultQueue = "default"

// Task is a job as it is enqueued.
type Task struct {
	// Kind names the handler of the job. 1 to 100 bytes of UTF-8, without NUL.
	Kind string

	// Args is what the handler gets, encoded by Options.Codec: at most 1 MiB.
	Args any

	// Queue is the one whose workers run the job. Default "default"; at most 100 bytes.
	Queue string

	// Priority: the lowest comes first. Default 0.
	Priority int16

	// Delay is how long the job is not run, by the database's clock. It may start about a quarter
	// of a second later. Default 0; at most MaxDelay.
	Delay time.Duration

	// MaxAttempts is how often the job is tried before it is dead. If a process is killed for
	// the first time with the job, this counts as an attempt, begun or not. From then on, and of
	// its last attempt, each beginning is recorded first, in one round trip more, and an attempt
	// that never began does not count. Default 25, at most 1,000.
	MaxAttempts int

	// Unique is a key that one job of the queue has at a time, from when it is enqueued until it
	// has ended: completed, cancelled or dead. Retries keep the key. A task whose key is taken
	// is not enqueued: see DuplicateError. Default: none; at most MaxTaskKeyBytes.
	Unique string

	// Group is a key of jobs of the queue of which GroupLimit are begun at once. The others are
	// blocked, and each that ends admits the next one, in the order in which they were enqueued. A
	// job that is tried again, or snoozed, keeps its place meanwhile. Its Priority counts once it
	// is admitted. A delayed one joins its group when its time has come. Default: none; at most
	// MaxTaskKeyBytes.
	Group string

	// GroupLimit is how many jobs of Group are begun at once. With 1 they run strictly in order,
	// one after the other. The job that was enqueued last decides for all, also if it is delayed;
	// of a group without jobs the first one that comes. A raised limit counts from the next end of
	// a job at the latest. A lowered one does not count for jobs that were
	// admitted before. Default 1; at most MaxGroupLimit.
	GroupLimit int
}

const defaultAttempts = 25

// Info describes a job, without its arguments.
type Info struct {
	ID          ID
	Queue, Kind string
	Priority    int16
	Attempt     int // which one this is, from 1
	MaxAttempts int
	EnqueuedAt  time.Time // by the database's clock
	ReadyAt     time.Time // when it became ready for this attempt, by the database's clock
}

// Job is a job as its handler gets it.
type Job[T any] struct {
	Info
	Args T
}

// insert checks a task and encodes its arguments.
func (t *Task) insert(id driver.ID, codec Codec) (driver.Insert, error) {
	in := driver.Insert{ID: id, Queue: t.Queue, Kind: t.Kind, Priority: t.Priority, MaxAttempts: defaultAttempts, Delay: t.Delay}
	if in.Queue == "" {
		in.Queue = DefaultQueue
	}
	if err := root.CheckText("Task.Kind", t.Kind, 1, MaxNameBytes); err != nil {
		return in, err
	}
	if err := root.CheckText("Task.Queue", t.Queue, 0, MaxNameBytes); err != nil {
		return in, err
	}
	switch {
	case t.Delay < 0 || t.Delay > MaxDelay:
		return in, &dblock.InvalidError{Field: "Task.Delay", Reason: fmt.Sprintf("%v is not within 0 to %v", t.Delay, MaxDelay)}
	case t.MaxAttempts < 0 || t.MaxAttempts > MaxAttempts:
		return in, &dblock.InvalidError{Field: "Task.MaxAttempts", Reason: fmt.Sprintf("%d is not within 1 to %d, nor 0 for %d", t.MaxAttempts, MaxAttempts, defaultAttempts)}
	case t.MaxAttempts > 0:
		in.MaxAttempts = int16(min(t.MaxAttempts, math.MaxInt16))
	}
	if err := t.keys(&in); err != nil {
		return in, err
	}
	var payload []byte
	var err error
	if p := callback.Recover(func() { payload, err = codec.Encode(t.Args) }); p != nil {
		err = p
	}
	if err != nil {
		return in, &dblock.InvalidError{Field: "Task.Args", Reason: fmt.Sprintf("a job of kind %q can't be encoded: %v", t.Kind, err)}
	}
	if len(payload) > MaxPayloadBytes {
		return in, &dblock.InvalidError{Field: "Task.Args", Reason: fmt.Sprintf("a job of kind %q has %d bytes encoded, more than %d: "+
			"keep the data elsewhere, and its name in the job", t.Kind, len(payload), MaxPayloadBytes)}
	}
	if payload == nil {
		payload = []byte{}
	}
	in.Payload = payload
	return in, nil
}
