package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/queue"
)

// othersEnd has another process end the job of a process that was declared dead.
func (d *env) othersEnd(t *testing.T, first func(other *queue.Queue)) {
	t.Helper()
	other := d.open(t, queue.Options{})
	d.handleEffect(t, other, noMore, queue.Backoff(func(int, error) time.Duration { return 0 }))
	first(other)
	d.evict(t)
	suite.Until(t, "the job is rescued", func() bool { // a rescue passes over a claim that is locked
		_, _, err := other.Rescue(t.Context())
		require.NoError(t, err)
		return d.count(t, "SELECT count(*) FROM dblock_queue_claim") == 0
	})
	work(t, other, queue.WorkerOptions{Poll: 10 * time.Millisecond, Rescue: -1})
	d.empty(t)
}

func nothing(*queue.Queue) {}

// A commit that rolled back is not recorded, however another process has ended the job since.
func effectsOfAJobThatOthersEnded(t *testing.T, d *env) {
	for name, test := range map[string]struct {
		attempts, effects int
		cancel            bool
	}{
		"Buried":    {1, 0, false},
		"Elsewhere": {2, 1, false},
		"Cancelled": {2, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := d.e.env(t)
			c := d.cutOff(t, true, faultconn.CutBefore, test.attempts)
			d.othersEnd(t, func(other *queue.Queue) {
				if test.cancel {
					cancel(t, other, c.job, queue.Claimed)
				}
			})
			c.goesOn(t, "lost")
			wait(t, c.unknown, "the unknown outcome")
			assert.EqualValues(t, test.effects, d.count(t, countEffects))
		})
	}
}

// controlAJobThatOthersEnded puts the process's row back. A commit that rolled back counts as
// recorded, and so does the end of a job of Handle.
func controlAJobThatOthersEnded(t *testing.T, d *env) {
	for _, inTx := range []bool{true, false} {
		t.Run(fmt.Sprint(inTx), func(t *testing.T) {
			t.Parallel()
			d := d.e.env(t)
			c := d.cutOff(t, inTx, faultconn.CutBefore, 1)
			d.exec(t, "CREATE TABLE suite_member AS SELECT * FROM dblock_member")
			d.othersEnd(t, nothing)
			d.exec(t, "INSERT INTO dblock_member SELECT * FROM suite_member")
			c.goesOn(t, "recorded")
			assert.Zero(t, d.count(t, countEffects))
		})
	}
}

// A commit that took place is recorded while the process has its row. Without it the outcome is
// unknown.
func effectsOfACommitWithoutAnAnswer(t *testing.T, d *env) {
	for name, want := range map[string]string{"Alive": "recorded", "Gone": "lost"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := d.e.env(t)
			c := d.cutOff(t, true, faultconn.CutAfter, 1)
			d.until(t, countEffects, 1)
			if want == "lost" {
				d.evict(t)
			}
			c.goesOn(t, want)
			if want == "lost" {
				wait(t, c.unknown, "the unknown outcome")
			}
			d.effective(t, c.job)
		})
	}
}

// An end was not recorded, and another process has buried the job since. The end that is sent again
// is not recorded either.
func endsOfAJobThatOthersEnded(t *testing.T, d *env) {
	c := d.cutOff(t, false, faultconn.CutBefore, 1)
	d.othersEnd(t, nothing)
	c.goesOn(t, "lost")
	d.rows(t, "dead", 1)
}

// An end was recorded before it is sent again.
func endsSentAgain(t *testing.T, d *env) {
	c := d.cutOff(t, false, faultconn.CutAfter, 1)
	d.until(t, "SELECT count(*) FROM dblock_queue_job", 0)
	c.goesOn(t, "recorded")
}
