package queue

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/queue"
)

// stranded is a worker that has claimed ahead, and whose handlers block.
type stranded struct {
	*holder
	q    *queue.Queue
	rest []queue.ID // jobs behind those that block
	did  once       // of them
}

// strand has a worker run many quick jobs, so that it claims ahead, and then block. Other jobs are behind these.
func (d *env) strand(t *testing.T) *stranded {
	t.Helper()
	const quick, handlers, rest = 600, 4, 40
	s := &stranded{q: d.open(t, queue.Options{}), holder: newHolder()}
	handle(t, s.q, "quick", nop)
	handle(t, s.q, "block", s.handle)
	handle(t, s.q, "rest", s.did.handle)
	tasks := slices.Concat(repeat(quick, queue.Task{Kind: "quick"}), repeat(handlers, queue.Task{Kind: "block", Priority: 1}),
		repeat(rest, queue.Task{Kind: "rest", Priority: 2}))
	s.rest = enqueueMany(t, s.q, tasks)[quick+handlers:]
	work(t, s.q, queue.WorkerOptions{Concurrency: handlers, Exchanges: 1}) // two overtake each other
	s.has(t, handlers)
	return s
}

// ready waits until all jobs behind those that block are ready, in their order. They have had no attempt.
func (s *stranded) ready(t *testing.T) {
	t.Helper()
	suite.Until(t, "the jobs are ready in their order", func() bool {
		var order []queue.ID
		for _, r := range suite.Must(s.q.List(suite.Soon(t), queue.Filter{}))(t) {
			order = append(order, r.ID)
			assert.Zero(t, r.Attempts, "attempts of job %v", r.ID)
		}
		return slices.Equal(order, s.rest)
	})
	assert.Zero(t, s.did.done(), "jobs that began")
}

// Jobs that wait for handlers which block are handed back, and another process runs them meanwhile.
func handsBackWhatIsStranded(t *testing.T, d *env) {
	s := d.strand(t)
	s.ready(t)
	other := d.open(t, queue.Options{})
	done := make(chan queue.ID, 1000)
	handle(t, other, "rest", func(_ context.Context, job queue.Job[int]) error {
		assert.Equal(t, 1, job.Attempt)
		done <- job.ID
		return nil
	})
	work(t, other, queue.WorkerOptions{})
	for range s.rest {
		wait(t, done, "job of a worker that blocks")
	}
	close(s.end)
	d.empty(t)
	assert.Zero(t, s.did.done()+len(done), "jobs that were done twice")
}

// Jobs of a paused queue that have not begun are handed back, at once in the process that pauses it.
func handsBackWhatIsPaused(t *testing.T, d *env) {
	s := d.strand(t)
	require.NoError(t, s.q.Pause(suite.Soon(t), ""))
	close(s.end)
	s.ready(t)
	d.until(t, "SELECT count(*) FROM dblock_queue_claim", 0)
	require.NoError(t, s.q.Resume(suite.Soon(t), ""))
	d.empty(t)
	s.did.exactly(t, s.rest)
}

// Another process pauses the queue. A worker hands back the jobs that it has claimed and not begun.
// It begins none until another process resumes the queue.
func aPauseReachesOtherProcesses(t *testing.T, d *env) {
	s := d.strand(t)
	other := d.open(t, queue.Options{})
	require.NoError(t, other.Pause(suite.Soon(t), ""))
	s.ready(t)
	close(s.end)
	d.until(t, "SELECT count(*) FROM dblock_queue_claim", 0)
	s.rest = append(s.rest, enqueue(t, other, queue.Task{Kind: "rest", Args: -1, Priority: 2})...)
	s.ready(t)
	require.NoError(t, other.Resume(suite.Soon(t), ""))
	d.empty(t)
	s.did.exactly(t, s.rest)
}
