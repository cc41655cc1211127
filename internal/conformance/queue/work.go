package queue

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/queue"
)

// The observer counts each job once, and none before its end is committed.
func (mainTests) TellsWhatIsRecorded(t *testing.T, d *env) {
	const jobs = 300
	var recorded atomic.Int64
	all := make(chan struct{})
	var o queue.Options
	o.Observer.Recorded = func(name string, n int, took time.Duration) {
		sum := recorded.Add(int64(n)) // before those that are left are counted, since others end meanwhile
		var left int64
		assert.NoError(t, d.DB.DB.QueryRow("SELECT count(*) FROM dblock_queue_job").Scan(&left))
		assert.LessOrEqual(t, left, jobs-sum, "jobs left when %d are recorded", sum)
		assert.Equal(t, queue.DefaultQueue, name)
		assert.Positive(t, took)
		if sum == jobs {
			close(all)
		}
	}
	enqueueMany(t, d.open(t, queue.Options{}), repeat(jobs, queue.Task{Kind: "note"}))
	wo := queue.WorkerOptions{Batch: 20, Backoff: fast, Promote: 10 * time.Millisecond}
	d.process(t, o, wo, func(_ context.Context, job queue.Job[int]) error {
		switch {
		case job.Args%7 == 0 && job.Attempt == 1:
			return errBadDay
		case job.Args%11 == 0:
			return queue.Cancel(errBadDay)
		}
		return nil
	})
	suite.Wait(t, all, "the last end")
	d.empty(t)
	assert.EqualValues(t, jobs, recorded.Load())
}

func (mainTests) ALoneJobIsDoneAtOnce(t *testing.T, d *env) {
	q, done := d.open(t, queue.Options{}), make(chan queue.Job[map[string]string], 1)
	handle(t, q, "greet", func(_ context.Context, job queue.Job[map[string]string]) error {
		done <- job
		return nil
	})
	work(t, q, queue.WorkerOptions{Poll: time.Minute})
	d.empty(t)
	args := map[string]string{"name": "ann"}
	for range 5 {
		id := enqueue(t, q, queue.Task{Kind: "greet", Args: args, Priority: 3, MaxAttempts: 7})[0]
		got := suite.Wait(t, done, "the job")
		assert.False(t, got.EnqueuedAt.IsZero())
		assert.False(t, got.ReadyAt.Before(got.EnqueuedAt.Add(-time.Second)), "%v, %v", got.ReadyAt, got.EnqueuedAt)
		got.EnqueuedAt, got.ReadyAt = time.Time{}, time.Time{}
		assert.Equal(t, queue.Job[map[string]string]{Args: args, Info: queue.Info{
			ID: id, Kind: "greet", Queue: "default", Priority: 3, MaxAttempts: 7, Attempt: 1,
		}}, got)
		parsed := suite.Must(queue.ParseID(id.String()))(t)
		assert.Equal(t, id, parsed)
		d.empty(t)
	}
}

// One exchange at a time claims jobs, since two overtake each other.
func (mainTests) LowerPrioritiesFirst(t *testing.T, d *env) {
	const jobs = 12
	done := make(chan int, jobs)
	tasks := repeat(jobs, queue.Task{Kind: "note"})
	for n := range tasks {
		tasks[n].Priority = int16(-n % 3)
	}
	enqueue(t, d.open(t, queue.Options{}), tasks...)
	d.process(t, queue.Options{}, queue.WorkerOptions{Concurrency: 1, Syncs: 1}, record(done))
	var got []int
	for range jobs {
		got = append(got, suite.Wait(t, done, "a job"))
	}
	assert.Equal(t, []int{2, 5, 8, 11, 1, 4, 7, 10, 0, 3, 6, 9}, got)
}

// Many jobs of one call take several messages. Wherever the connection is cut, all of them are
// enqueued, or none. A caller without an error has all, and an error that says that nothing was
// written is right.
func (faultTests) BulksSurviveLostReplies(t *testing.T, d *env) {
	const each = 1200
	dialer := new(faultconn.Dialer)
	q := d.openOn(t, dialer, queue.Options{})
	tasks := repeat(each, queue.Task{Kind: "note"})
	outcomes := make(map[int64]int)
	for _, mode := range []faultconn.Mode{faultconn.CutBefore, faultconn.CutAfter} {
		for k, struck := 1, true; struck && k < suite.CutPoints; k++ {
			name := fmt.Sprintf("%v %d", mode, k)
			for i := range tasks {
				tasks[i].Queue, tasks[i].Delay = name, time.Duration(1-min(1, i%3))*time.Hour
			}
			dialer.Arm(k, mode, nil)
			made, err := q.EnqueueMany(suite.Soon(t), tasks)
			struck = dialer.Disarm()
			var counts [3]string
			for i, table := range []string{"job", "ready", "scheduled"} {
				counts[i] = fmt.Sprintf("(SELECT count(*) FROM dblock_queue_%s WHERE queue = '%s')", table, name)
			}
			// One statement, since a call without a reply may be committed between two.
			var jobs, ready, scheduled int64
			rows := d.Text(t, "SELECT concat("+strings.Join(counts[:], ", ' ', ")+")")
			_, scanErr := fmt.Sscan(rows, &jobs, &ready, &scheduled)
			require.NoError(t, scanErr, rows)
			assert.Equal(t, [2]int64{jobs / 3 * 2, jobs / 3}, [2]int64{ready, scheduled}, name)
			if err == nil {
				assert.Len(t, made, int(jobs), name)
			}
			if jobs != 0 && jobs != each || err == nil && jobs == 0 || suite.Definite(err) && jobs != 0 {
				t.Errorf("%s: %d of %d jobs, and the error is %v", name, jobs, each, err)
			}
			outcomes[jobs]++
		}
	}
	t.Log(outcomes)
	assert.Positive(t, outcomes[0], "calls that enqueued nothing")
	assert.Positive(t, outcomes[each], "calls that enqueued all")
}
