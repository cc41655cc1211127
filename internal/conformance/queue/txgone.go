package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/queue"
)

// cutOff is a process that gets no answer to the end of its one job. It stands still before it looks
// for the job, or sends the end again.
type cutOff struct {
	job   queue.ID
	told  chan string // what the Observer is called for
	doubt chan error  // ErrOutcomeUnknown
	wake  chan struct{}
}

// cutOff strikes the commit of the first attempt of a job, with HandleTx or with Handle.
func (d *env) cutOff(t *testing.T, inTx bool, mode faultconn.Mode, attempts int) *cutOff {
	t.Helper()
	d.effects(t)
	c := &cutOff{told: make(chan string, 10), doubt: make(chan error, 10), wake: make(chan struct{})}
	asleep := make(chan struct{})
	o := queue.Options{TTL: time.Hour, Timeout: time.Minute, PollOnly: true}
	o.Observer.Finished = func(queue.Info, time.Duration) {
		if inTx { // else it is called before the end is sent
			c.told <- "finished"
		}
	}
	o.Observer.Recorded = func(string, int, time.Duration) { c.told <- "recorded" }
	o.Observer.Lost = func(string, int) { c.told <- "lost" }
	o.Observer.Trouble = func(doing string, err error) {
		if strings.HasPrefix(doing, "committing") || strings.HasPrefix(doing, "exchanging") {
			close(asleep)
			<-c.wake
		}
		if errors.Is(err, dblock.ErrOutcomeUnknown) && strings.HasPrefix(doing, "looking") {
			c.doubt <- err
		}
	}
	dialer := new(faultconn.Dialer)
	q, closePool, err := d.e.OpenOn(t.Context(), d.dsn, dialer, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		dialer.Release()
		_ = q.Close(suite.Soon(t))
		closePool()
	})
	if inTx {
		handleTx(t, d, q, "effect", func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error {
			if err := tx.Do(ctx, effectOf(job.Info)); err != nil {
				return err
			}
			dialer.ArmAt(d.commit(), 1, mode) // nothing else commits
			return nil
		})
	} else {
		handle(t, q, "effect", func(_ context.Context, job queue.Job[int]) error {
			at, mode := d.commit(), mode
			if d.e.Kind == devdb.Postgres { // it commits in the message that has the job
				at = string(job.ID[:])
				if mode == faultconn.CutBefore { // the driver would know that nothing was sent
					mode = faultconn.Late
				}
			}
			dialer.ArmAt(at, 1, mode)
			return nil
		})
	}
	c.job = enqueue(t, q, queue.Task{Kind: "effect", Args: 1, MaxAttempts: attempts})[0]
	work(t, q, queue.WorkerOptions{Concurrency: 1, Ahead: -1, Exchanges: 1, Rescue: -1, Promote: -1})
	wait(t, asleep, "an end that gets no answer")
	return c
}

// goesOn has the process look for its job, and returns what is told of it first.
func (c *cutOff) goesOn(t *testing.T) string {
	t.Helper()
	close(c.wake)
	return wait(t, c.told, "the end of the job")
}

// othersEnd has another process end the job of a member that is gone.
func (d *env) othersEnd(t *testing.T, how func(other *queue.Queue)) {
	t.Helper()
	other := d.open(t, queue.Options{})
	handleTx(t, d, other, "effect", func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error {
		return tx.Do(ctx, effectOf(job.Info))
	}, queue.Backoff(func(int, error) time.Duration { return 0 }))
	how(other)
	d.exec(t, "DELETE FROM dblock_member")
	suite.Until(t, "the job is rescued", func() bool { // the rescue passes over a claim that is locked
		if _, _, err := other.Rescue(t.Context()); err != nil {
			t.Fatal(err)
		}
		return d.count(t, "SELECT count(*) FROM dblock_queue_claim") == 0
	})
	work(t, other, queue.WorkerOptions{Poll: 10 * time.Millisecond, Rescue: -1})
	d.empty(t)
}

// A commit that rolled back is not recorded, however other processes have ended the job since.
func effectsOfAJobThatOthersEnded(t *testing.T, d *env) {
	for name, test := range map[string]struct {
		attempts, effects int
		how               func(other *queue.Queue, c *cutOff)
	}{
		"Buried":    {1, 0, func(*queue.Queue, *cutOff) {}},
		"Elsewhere": {2, 1, func(*queue.Queue, *cutOff) {}},
		"Cancelled": {2, 0, func(other *queue.Queue, c *cutOff) {
			if was, err := other.Cancel(suite.Soon(t), c.job); err != nil || was != queue.Claimed {
				t.Errorf("it was %v, %v", was, err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := d.e.env(t)
			c := d.cutOff(t, true, faultconn.CutBefore, test.attempts)
			d.othersEnd(t, func(other *queue.Queue) { test.how(other, c) })
			if told := c.goesOn(t); told != "lost" {
				t.Fatalf("a commit that was rolled back is %q", told)
			}
			wait(t, c.doubt, "the unknown outcome")
			if n := d.count(t, countEffects); int(n) != test.effects {
				t.Errorf("%d effects, want %d", n, test.effects)
			}
		})
	}
}

// The control of the above: with the member's row there, as if no other process had ended the job,
// the commit counts as recorded. So does the end of a job of Handle.
func controlAJobThatOthersEnded(t *testing.T, d *env) {
	for _, inTx := range []bool{true, false} {
		t.Run(fmt.Sprint(inTx), func(t *testing.T) {
			t.Parallel()
			d := d.e.env(t)
			c := d.cutOff(t, inTx, faultconn.CutBefore, 1)
			d.exec(t, "CREATE TABLE suite_member AS SELECT * FROM dblock_member")
			d.othersEnd(t, func(*queue.Queue) {})
			d.exec(t, "INSERT INTO dblock_member SELECT * FROM suite_member")
			if told := c.goesOn(t); told != "recorded" {
				t.Errorf("an end that was rolled back is %q: the test shows nothing", told)
			}
			if n := d.count(t, countEffects); n != 0 {
				t.Errorf("%d effects", n)
			}
		})
	}
}

// A commit that took place is recorded while the process has its member. Without it the outcome is
// unknown.
func effectsOfACommitWithoutAnAnswer(t *testing.T, d *env) {
	for name, want := range map[string]string{"Alive": "recorded", "Gone": "lost"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := d.e.env(t)
			c := d.cutOff(t, true, faultconn.CutAfter, 1)
			d.until(t, countEffects, 1)
			if want == "lost" {
				d.exec(t, "DELETE FROM dblock_member")
			}
			if told := c.goesOn(t); told != want {
				t.Fatalf("the commit is %q, want %q", told, want)
			}
			if want == "lost" {
				wait(t, c.doubt, "the unknown outcome")
			}
			d.effective(t, c.job)
		})
	}
}

// An end of a job that got no answer and was not recorded is sent again. It is not recorded either if
// another process has buried the job since.
func endsOfAJobThatOthersEnded(t *testing.T, d *env) {
	c := d.cutOff(t, false, faultconn.CutBefore, 1)
	d.othersEnd(t, func(*queue.Queue) {})
	if told := c.goesOn(t); told != "lost" {
		t.Errorf("the end of a job that another process has buried is %q", told)
	}
	if n := d.count(t, "SELECT count(*) FROM dblock_queue_dead"); n != 1 {
		t.Errorf("%d are dead", n)
	}
}

// An end that was recorded before it is sent again is recorded while the process has its member.
func endsSentAgain(t *testing.T, d *env) {
	c := d.cutOff(t, false, faultconn.CutAfter, 1)
	d.until(t, "SELECT count(*) FROM dblock_queue_job", 0)
	if told := c.goesOn(t); told != "recorded" {
		t.Errorf("an end that was recorded is %q", told)
	}
}
