package queue

import (
	"errors"
	"fmt"
	"math"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/root"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// Limits of keys.
const (
	MaxTaskKeyBytes = 200 // of Task.Unique and Task.Group, as UTF-8
	MaxGroupLimit   = 100_000
)

// ErrDuplicate: another job has the unique key of a task, or of a dead job. Enqueue returns it as a
// *DuplicateError.
var ErrDuplicate = errors.New("queue: another job has this unique key")

// DuplicateError: some tasks were not enqueued, as jobs with the same Task.Unique have not ended;
// all the others were. The IDs that come with it name the jobs that have the keys in the place of
// those tasks. In a transaction of yours it is no reason to roll back.
type DuplicateError struct {
	Duplicates []Duplicate // in the order of the tasks
}

// Duplicate is a task that was not enqueued.
type Duplicate struct {
	Task int    // its place among the tasks, from 0
	Key  string // its Task.Unique
	Job  ID     // which job has it
}

func (e *DuplicateError) Error() string {
	d := e.Duplicates[0]
	if len(e.Duplicates) == 1 {
		return fmt.Sprintf("%v: %q is that of job %s", ErrDuplicate, d.Key, d.Job)
	}
	return fmt.Sprintf("%v: %q is that of job %s, and %d more are taken", ErrDuplicate, d.Key, d.Job, len(e.Duplicates)-1)
}

// Unwrap returns ErrDuplicate.
func (e *DuplicateError) Unwrap() error { return ErrDuplicate }

// keys checks those of a task.
func (t *Task) keys(in *driver.Insert) error {
	if t.Unique == "" && t.Group == "" && t.GroupLimit == 0 {
		return nil
	}
	if err := root.CheckText("Task.Unique", t.Unique, 0, MaxTaskKeyBytes); err != nil {
		return err
	}
	if err := root.CheckText("Task.Group", t.Group, 0, MaxTaskKeyBytes); err != nil {
		return err
	}
	switch {
	case t.GroupLimit < 0 || t.GroupLimit > MaxGroupLimit:
		return &dblock.InvalidError{Field: "Task.GroupLimit", Reason: fmt.Sprintf("%d is not within 1 to %d, nor 0 for 1", t.GroupLimit, MaxGroupLimit)}
	case t.GroupLimit > 0 && t.Group == "":
		return &dblock.InvalidError{Field: "Task.GroupLimit", Reason: fmt.Sprintf("it is %d, and Task.Group does not say of what", t.GroupLimit)}
	}
	in.Unique, in.Group = t.Unique, t.Group
	if t.Group != "" {
		in.GroupLimit = int32(min(max(t.GroupLimit, 1), math.MaxInt32))
	}
	return nil
}
