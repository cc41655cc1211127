package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/batch"
	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// The last attempt of a job is recorded as begun before its handler is called. So is each attempt
// at a job that was rescued before. If the process is killed, the rescue can distinguish a job
// whose attempt had begun from one that was only claimed. Calls share a statement. It passes over
// jobs whose rows another transaction has locked: they are sent again. Of a job that was never
// rescued, earlier attempts are not recorded: the rescue counts the one, begun or not.

// beginning is a job whose attempt is to begin, and is to be recorded before.
type beginning struct {
	of       *incarnation
	position driver.Position
}

// newBegins makes the queue of those that wait for a statement.
func (q *Queue) newBegins() *batch.Queue[beginning, driver.Beginning] {
	return batch.New(batch.Options[beginning, driver.Beginning]{
		Run:   q.beginMerged,
		Key:   func(b beginning) string { return string(b.of.inc.ID[:]) },
		Ends:  func(beginning) bool { return true }, // there are no more than handlers
		Apart: true, Classify: q.db.classify,
	})
}

// beginMerged records the beginnings of one member.
func (q *Queue) beginMerged(ctx context.Context, all []beginning, _ bool) ([]batch.Result[driver.Beginning], error) {
	positions, at := make([]driver.Position, len(all)), make(map[driver.ID]int, len(all))
	for i, b := range all {
		positions[i], at[b.position.Job] = b.position, i
	}
	results := make([]batch.Result[driver.Beginning], len(all))
	err := q.db.again(ctx, "recording that jobs begin", func(ctx context.Context) error {
		clear(results)
		begun, locked, err := q.driver.BeginJobs(ctx, all[0].of.inc.ID, positions)
		for _, job := range begun {
			results[at[job]].Value = driver.BeginRecorded
		}
		for _, job := range locked {
			results[at[job]].Value = driver.BeginLocked
		}
		return err
	})
	return results, err
}

// recordsBeginning reports whether the attempt at a job that is to begin has to be recorded.
func (j *claimedJob) recordsBeginning() bool {
	return (j.Recorded || j.Attempt+1 >= j.MaxAttempts) && !j.cancelled.Load()
}

// begin records that the attempt at a job begins, if it has to. It returns false if the job is not
// to be run. That is noted then.
func (w *worker) begin(j *claimedJob) bool {
	ctx := j.claim.owner.ctx
	for n := 1; j.recordsBeginning(); n++ {
		got, err := w.q.begins.Do(ctx, beginning{j.claim.owner, j.position()})
		j.begun = j.begun || got != driver.BeginLocked
		switch {
		case !w.state.is(working) || ctx.Err() != nil:
			w.sync.releaseUnbegun(j)
		case err != nil:
			w.q.trouble(recordingABeginning, err)
			w.sync.ended(end{claimedJob: j, outcome: outcomeRescheduled, attempt: j.Attempt, delay: pace.Jitter(beginAgain)})
		case got == driver.BeginRecorded:
			return true
		case got == driver.BeginLocked:
			if n%restsToReport == 0 {
				w.q.trouble(recordingABeginning, fmt.Errorf("%w: the row of job %v is locked", dblock.ErrBusy, ID(j.ID)))
			}
			_ = pace.Sleep(ctx, pace.Jitter(min(firstRest<<min(n, 10), longestRest)))
			continue
		default: // to be refused, and counted, with the others of its claim
			w.sync.releaseUnbegun(j)
		}
		return false
	}
	return true
}

const recordingABeginning = "recording that a job begins"

// beginAgain is about how long a job waits that could not begin: its attempt was not recorded, or
// it got no transaction.
const beginAgain = time.Second
