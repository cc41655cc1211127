package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/queue"
)

// duplicateOf checks that err says that job has the key of the one task that was enqueued.
func duplicateOf(t *testing.T, id queue.ID, err error, job queue.ID, key string) {
	t.Helper()
	var dup *queue.DuplicateError
	require.ErrorAs(t, err, &dup)
	assert.ErrorIs(t, err, queue.ErrDuplicate)
	assert.Equal(t, job, id)
	assert.Equal(t, []queue.Duplicate{{Task: 0, Key: key, Job: job}}, dup.Duplicates)
}

func aUniqueKeyHasOneJob(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	a := enqueue(t, q, queue.Task{Kind: "note", Args: 0, Unique: "a"})[0]
	id, err := q.Enqueue(t.Context(), queue.Task{Kind: "other", Args: 1, Unique: "a"})
	duplicateOf(t, id, err, a, "a")
	enqueue(t, q, queue.Task{Kind: "note", Unique: "a", Queue: "other"}, queue.Task{Kind: "note", Unique: "A"})
	made, err := q.EnqueueMany(t.Context(), []queue.Task{
		{Kind: "note", Args: 2}, {Kind: "note", Args: 3, Unique: "b"}, {Kind: "note", Args: 4, Unique: "a"},
		{Kind: "note", Args: 5, Unique: "b", Group: "g"}, {Kind: "note", Args: 6, Unique: "a"},
	})
	var dup *queue.DuplicateError
	require.ErrorAs(t, err, &dup)
	assert.Equal(t, []queue.ID{made[0], made[1], a, made[1], a}, made)
	assert.Equal(t, []queue.Duplicate{
		{Task: 2, Key: "a", Job: a}, {Task: 3, Key: "b", Job: made[1]}, {Task: 4, Key: "a", Job: a},
	}, dup.Duplicates)
	d.rows(t, "job", 5)
	d.rows(t, "key", 0)
}

// Every end of a job frees its key. A failed attempt, a snooze and a delay do not.
func aUniqueKeyIsFreeOnceItsJobEnds(t *testing.T, d *env) {
	h := newHolder()
	q := d.process(t, queue.Options{}, quickly, h.handle)
	task := queue.Task{Kind: "note", Args: 1, Unique: "key", MaxAttempts: 3, Delay: 1}
	for _, ends := range [][]error{
		{nil}, {errBadDay, errBadDay, nil}, {queue.Discard(errBadDay)}, {queue.Cancel(errBadDay)},
		{queue.Snooze(1), nil}, {errBadDay, errBadDay, errBadDay},
	} {
		job := enqueue(t, q, task)[0]
		for _, end := range ends {
			id, err := q.Enqueue(t.Context(), task)
			duplicateOf(t, id, err, job, "key")
			h.has(t, 1)
			h.end <- end
		}
		d.empty(t)
	}
}

func uniqueKeysInTransactions(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	task := queue.Task{Kind: "note", Args: 1, Unique: "key", Group: "g"}
	for _, commit := range []bool{false, true} {
		tx, made := d.beginWith(t, q, task)
		again, err := d.e.EnqueueTx(t.Context(), q, tx, task)
		require.Len(t, again, 1)
		duplicateOf(t, again[0], err, made[0], "key")
		var id queue.ID
		ended := make(chan error, 1)
		go func() { // waits for the transaction
			var err error
			id, err = q.Enqueue(suite.Soon(t), task)
			ended <- err
		}()
		if commit {
			require.NoError(t, tx.Commit())
			err := wait(t, ended, "the other caller")
			duplicateOf(t, id, err, made[0], "key")
			continue
		}
		require.NoError(t, tx.Rollback())
		assert.NoError(t, wait(t, ended, "the other caller"))
		d.exec(t, "DELETE FROM dblock_queue_unique")
	}
}

// twoAlive counts the unique keys that two jobs have.
const twoAlive = "SELECT count(*) FROM (SELECT queue, unique_key FROM dblock_queue_job WHERE unique_key IS NOT NULL " +
	"GROUP BY queue, unique_key HAVING count(*) > 1) x"

// Many producers want the same few keys. A key never has two jobs, each job runs once, and a
// refusal names a job that runs.
func uniqueJobsAreExact(t *testing.T, d *env) {
	const producers, each, keys = 16, 10, 5
	var did once
	queues := d.processes(t, func(q *queue.Queue) { handle(t, q, "note", did.handleLater) })
	var mu sync.Mutex
	var made, named []queue.ID
	suite.Crowd(producers, func(p int) {
		for n := range each {
			ids, err := queues[p%len(queues)].EnqueueMany(suite.Soon(t), []queue.Task{
				{Kind: "note", Args: n, Unique: fmt.Sprint((p + n) % keys)},
				{Kind: "note", Args: n, Unique: fmt.Sprint((p * n) % keys)},
			})
			dup := &queue.DuplicateError{}
			if err != nil && !assert.ErrorAs(t, err, &dup) {
				return
			}
			mu.Lock()
			for _, x := range slices.Backward(dup.Duplicates) {
				named, ids = append(named, x.Job), slices.Delete(ids, x.Task, x.Task+1)
			}
			made = append(made, ids...)
			mu.Unlock()
			assert.Zero(t, d.count(t, twoAlive), "keys with two jobs")
		}
	})
	d.empty(t)
	did.exactly(t, made)
	for _, id := range named {
		assert.Equal(t, 1, did.times[id], "runs of a job that is said to have a key")
	}
	assert.NotEmpty(t, named, "the test shows nothing")
	assert.Greater(t, len(made), keys, "the test shows nothing")
}

// handleLater is handle for jobs of which some fail in their first attempt.
func (o *once) handleLater(ctx context.Context, job queue.Job[int]) error {
	if job.Attempt == 1 && job.ID[15]%5 == 0 {
		return errBadDay
	}
	return o.handle(ctx, job)
}

func controlWithoutItsRowAKeyHasTwo(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	enqueue(t, q, queue.Task{Kind: "note", Args: 1, Unique: "key"})
	d.exec(t, "DELETE FROM dblock_queue_unique")
	enqueue(t, q, queue.Task{Kind: "note", Args: 1, Unique: "key"})
	assert.EqualValues(t, 1, d.count(t, twoAlive), "keys with two jobs")
}

const killedGroups = 10

// A worker is killed with the first jobs of groups. Their places and keys are kept, and these jobs
// run before others of their groups. Where such a job has no other attempt, the next one is
// admitted.
func keysOutliveTheKilled(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	done := d.killWithKeys(t, q, func(made []queue.ID, fourth queue.Task) {
		id, err := q.Enqueue(t.Context(), fourth)
		duplicateOf(t, id, err, made[3], "3")
	})
	for g := range killedGroups {
		assert.Equal(t, [][]int{{1, 2, 3}, {0, 1, 2, 3}}[g%2], done[g], "group %d", g)
	}
	enqueue(t, q, queue.Task{Kind: "other", Unique: "0"}, queue.Task{Kind: "other", Unique: "1"})
}

// controlKeysDieWithTheKilled deletes the keys and the places with the process that had them.
func controlKeysDieWithTheKilled(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	done := d.killWithKeys(t, q, func(_ []queue.ID, fourth queue.Task) {
		d.exec(t, "DELETE FROM dblock_queue_unique", "UPDATE dblock_queue_key SET taken = 4",
			"INSERT INTO dblock_queue_ready (queue, priority, job_id) "+
				"SELECT queue, priority, job_id FROM dblock_queue_blocked",
			"DELETE FROM dblock_queue_blocked")
		fourth.Group, fourth.Args = "", 1_000
		enqueue(t, q, fourth)
	})
	inOrder := true
	for g := 1; g < killedGroups; g += 2 {
		inOrder = inOrder && slices.Equal([]int{0, 1, 2, 3}, done[g])
	}
	assert.False(t, inOrder, "all ran in order: the test shows nothing")
}

// killWithKeys kills a worker that has the first job of each group, and has others run the rest. It
// returns what ran, by group.
func (d *env) killWithKeys(
	t *testing.T, q *queue.Queue, then func(made []queue.ID, fourth queue.Task),
) (done map[int][]int) {
	t.Helper()
	var tasks []queue.Task
	for n := range 4 {
		for g := range killedGroups {
			task := queue.Task{Kind: "note", Args: 100*g + n, Group: fmt.Sprint(g)}
			if n == 0 {
				task.Unique = fmt.Sprint(g)
				task.MaxAttempts = []int{1, 0}[g%2]
			}
			tasks = append(tasks, task)
		}
	}
	made := enqueueMany(t, q, tasks)
	victim := d.startWorker(t)
	for range killedGroups {
		victim.Says(t, "began")
	}
	victim.Kill()
	then(made, tasks[3])
	var mu sync.Mutex
	done = make(map[int][]int)
	for range 2 {
		d.process(t, queue.Options{}, rescues, func(_ context.Context, job queue.Job[int]) error {
			mu.Lock()
			defer mu.Unlock()
			g, n := job.Args/100, job.Args%100
			done[g] = append(done[g], n)
			assert.Equal(t, n == 0 && g < killedGroups, job.Attempt == 2, "attempt %d of job %d", job.Attempt, job.Args)
			return nil
		})
	}
	d.empty(t)
	return done
}

// Connections of the producer and of the worker break anywhere. Jobs run in order, one at a time,
// and no key stays taken.
func keysSurviveLostReplies(t *testing.T, d *env) {
	l := d.loseReplies(t, func(g string) string { return g })
	assert.Zero(t, l.over, "jobs beside another one")
	assert.Zero(t, l.disorder, "jobs out of order")
	d.rows(t, "dead", 0)
	q := d.process(t, queue.Options{}, queue.WorkerOptions{}, nop)
	enqueue(t, q, queue.Task{Kind: "note", Args: 1, Group: "0", Unique: "0"})
	d.empty(t)
}

func controlLostRepliesWithoutGroups(t *testing.T, d *env) {
	l := d.loseReplies(t, func(string) string { return "" })
	assert.NotZero(t, l.over, "jobs beside another one")
	assert.NotZero(t, l.disorder, "jobs out of order")
}

// loseReplies enqueues and runs jobs of three groups while connections break.
func (d *env) loseReplies(t *testing.T, group func(g string) string) *groupLog {
	t.Helper()
	dialer, l := new(faultconn.Dialer), newGroupLog(1, 0)
	q := d.openOn(t, dialer, queue.Options{TTL: 2 * time.Second})
	handle(t, q, "note", l.handle)
	backoff := func(int, error) time.Duration { return 0 }
	stop := work(t, q, queue.WorkerOptions{Poll: 10 * time.Millisecond, Concurrency: 4, Backoff: backoff})
	sure := 0
	for n := range 45 {
		mode := faultconn.CutAfter
		if n%4 == 0 {
			mode = faultconn.CutBefore
		}
		dialer.Arm(n%11+1, mode, nil)
		var tasks []queue.Task
		for i := range 3 {
			g := fmt.Sprint(n % groups)
			tasks = append(tasks, queue.Task{Kind: "note", Args: member{Group: g, N: 3*n + i}, Group: group(g)})
		}
		tasks[0].Unique = fmt.Sprint(n % 5)
		switch _, err := q.EnqueueMany(suite.Soon(t), tasks); {
		case err == nil, errors.Is(err, queue.ErrDuplicate):
			sure++
		case !suite.IsUnknown(err) && !errors.Is(err, dblock.ErrUnavailable):
			assert.ErrorIs(t, err, dblock.ErrBusy)
		}
	}
	dialer.Disarm()
	d.empty(t)
	assert.NotZero(t, sure, "calls that certainly enqueued")
	assert.NoError(t, stop())
	return l
}
