package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/queue"
)

// shownChange is what became of a job, for a program.
type shownChange struct {
	ID    string `json:"id"`
	Did   string `json:"did,omitempty"`
	Was   string `json:"was,omitempty"`
	Error string `json:"error,omitempty"`
}

// changeJobs does one thing to several jobs: what fails for one does not keep the others from it.
func changeJobs(ctx context.Context, f queueFlags, days int, s streams, args []string, do func(*queue.Queue, queue.ID) (did, was string, err error)) error {
	ids := make([]queue.ID, len(args))
	for i, arg := range args {
		var err error
		if ids[i], err = queue.ParseID(arg); err != nil {
			return err
		}
	}
	return f.withHistory(ctx, days, func(q *queue.Queue) error {
		var wrong []error
		shown := []shownChange{}
		for _, id := range ids {
			did, was, err := do(q, id)
			c := shownChange{ID: id.String()}
			if err != nil {
				c.Error = err.Error()
				wrong = append(wrong, err)
			} else {
				c.Did, c.Was = did, was
			}
			shown = append(shown, c)
			if !f.JSON && err == nil {
				_, _ = fmt.Fprintf(s.out, "%s %v\n", did, id)
			}
		}
		if f.JSON {
			wrong = append(wrong, printJSON(s.out, shown))
		}
		return errors.Join(wrong...)
	})
}

// historyFlag is for commands that end jobs.
type historyFlag struct {
	History bool `help:"Keep them in the history, too, with their payloads. Services with a history delete it in time."`
}

func (h historyFlag) days() int {
	if h.History {
		return 1
	}
	return 0
}

// queueRetryCmd is `dblock queue retry`.
type queueRetryCmd struct {
	queueFlags
	queueFlag
	IDs []string `arg:"" optional:"" name:"id" help:"The jobs, as list --state=dead shows them."`
	All bool     `help:"All dead jobs of the queue."`
}

// Validate wants one of both. Kong calls it.
func (c *queueRetryCmd) Validate() error {
	if c.All == (len(c.IDs) > 0) {
		return errors.New("name the jobs, or give --all")
	}
	return c.queueFlag.Validate()
}

// Run has dead jobs run again.
func (c *queueRetryCmd) Run(ctx context.Context, s streams) error {
	if !c.All {
		return changeJobs(ctx, c.queueFlags, 0, s, c.IDs, func(q *queue.Queue, id queue.ID) (string, string, error) {
			return "will run again:", queue.JobDead.String(), q.Retry(ctx, id)
		})
	}
	return c.withQueue(ctx, func(q *queue.Queue) error {
		n, err := q.RetryAll(ctx, c.Queue)
		return errors.Join(c.printCount(s, "retried", "%d jobs will run again\n", n), err)
	})
}

func (f queueFlags) printCount(s streams, name, text string, n int) error {
	if f.JSON {
		return printJSON(s.out, map[string]int{name: n})
	}
	_, err := fmt.Fprintf(s.out, text, n)
	return err
}

// queueCancelCmd is `dblock queue cancel`.
type queueCancelCmd struct {
	queueFlags
	jobArgs
	historyFlag
}

// Run drops jobs.
func (c *queueCancelCmd) Run(ctx context.Context, s streams) error {
	return changeJobs(ctx, c.queueFlags, c.days(), s, c.IDs, func(q *queue.Queue, id queue.ID) (string, string, error) {
		was, err := q.Cancel(ctx, id)
		if was == queue.JobClaimed {
			return "its worker is asked to drop", was.String(), err
		}
		return "dropped", was.String(), err
	})
}

// queueDiscardCmd is `dblock queue discard`.
type queueDiscardCmd struct {
	queueFlags
	jobArgs
	historyFlag
	Reason string `default:"discarded by hand" help:"What is kept as its last error."`
}

// Run gives jobs up.
func (c *queueDiscardCmd) Run(ctx context.Context, s streams) error {
	return changeJobs(ctx, c.queueFlags, c.days(), s, c.IDs, func(q *queue.Queue, id queue.ID) (string, string, error) {
		return "discarded:", "", q.Discard(ctx, id, c.Reason)
	})
}

// queuePurgeCmd is `dblock queue purge`.
type queuePurgeCmd struct {
	queueFlags
	queueFlag
	Older time.Duration `required:"" placeholder:"AGE" help:"Those that died so long ago, or longer, for example 720h; 0s: all."`
}

// Run drops dead jobs.
func (c *queuePurgeCmd) Run(ctx context.Context, s streams) error {
	return c.withQueue(ctx, func(q *queue.Queue) error {
		n, err := q.Purge(ctx, c.Queue, c.Older)
		if err != nil {
			return err
		}
		return c.printCount(s, "purged", "%d dead jobs were dropped\n", n)
	})
}

// queuePauseCmd is `dblock queue pause`.
type queuePauseCmd struct {
	queueFlags
	queueArg
}

// Run pauses a queue.
func (c *queuePauseCmd) Run(ctx context.Context, s streams) error {
	return pausing(ctx, c.queueFlags, s, c.Queue, true)
}

// queueResumeCmd is `dblock queue resume`.
type queueResumeCmd struct {
	queueFlags
	queueArg
}

// Run resumes a queue.
func (c *queueResumeCmd) Run(ctx context.Context, s streams) error {
	return pausing(ctx, c.queueFlags, s, c.Queue, false)
}

func pausing(ctx context.Context, f queueFlags, s streams, name string, pause bool) error {
	return f.withQueue(ctx, func(q *queue.Queue) error {
		set, says := q.Resume, "is not paused any more"
		if pause {
			set, says = q.Pause, "is paused"
		}
		if err := set(ctx, name); err != nil {
			return err
		}
		empty, err := isEmpty(ctx, q, name)
		if f.JSON {
			return errors.Join(err, printJSON(s.out, map[string]any{"queue": name, "paused": pause, "empty": empty}))
		}
		if empty {
			says += "; note: it has no jobs, so check its name if you expect some"
		}
		_, printed := fmt.Fprintf(s.out, "%s %s\n", printable(name), says)
		return errors.Join(err, printed)
	})
}

// isEmpty reports whether a queue has no jobs, which a mistyped name shows.
func isEmpty(ctx context.Context, q *queue.Queue, name string) (bool, error) {
	for _, state := range []queue.JobState{queue.JobReady, queue.JobClaimed, queue.JobScheduled, queue.JobRetrying, queue.JobBlocked, queue.JobDead} {
		jobs, err := q.List(ctx, queue.Filter{Queue: name, State: state, Limit: 1})
		if err != nil || len(jobs) > 0 {
			return false, err
		}
	}
	return true, nil
}
