package queue

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/queue"
)

func (d *env) openTx(t *testing.T) *sql.Tx { t.Helper(); return d.Tx(t, sql.LevelDefault) }

// beginWith begins a transaction and enqueues in it.
func (d *env) beginWith(t *testing.T, q *queue.Queue, tasks ...queue.Task) (*sql.Tx, []queue.ID) {
	t.Helper()
	tx := d.openTx(t)
	return tx, suite.Must(d.e.EnqueueTx(t.Context(), q, tx, tasks...))(t)
}

func (d *env) enqueueTx(t *testing.T, q *queue.Queue, tasks ...queue.Task) {
	t.Helper()
	tx, _ := d.beginWith(t, q, tasks...)
	require.NoError(t, tx.Commit())
}

// lock locks rows until release is called.
func (d *env) lock(t *testing.T, rows ...string) (release func()) {
	t.Helper()
	for i, of := range rows {
		rows[i] = "SELECT 1 FROM " + of + " FOR UPDATE"
	}
	return d.Locked(t, rows...)
}

const (
	lockedGroup = "dblock_queue_key WHERE queue = 'default' AND group_key = 'locked'"
	lockedKey   = "dblock_queue_unique WHERE queue = 'default' AND unique_key = 'locked'"
)

// all reports whether each of some jobs was done.
func (o *once) all(jobs []queue.ID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, id := range jobs {
		if o.times[id] == 0 {
			return false
		}
	}
	return true
}

// standing counts the jobs that have not ended.
func (d *env) standing(t *testing.T, jobs []queue.ID) (n int) {
	t.Helper()
	stand := suite.ValuesOf[string](t, d.DB, "SELECT job_id FROM dblock_queue_job")
	for _, id := range jobs {
		if slices.Contains(stand, d.sql(id.String(), string(id[:]))) {
			n++
		}
	}
	return n
}

// ended waits until all of some jobs have ended.
func (d *env) ended(t *testing.T, jobs []queue.ID) {
	t.Helper()
	suite.Until(t, "all of these jobs have ended", func() bool { return d.standing(t, jobs) == 0 })
}

// processHeld is process, with a holder for jobs of kind held.
func (d *env) processHeld(t *testing.T, o queue.Options, wo queue.WorkerOptions, fn func(context.Context, queue.Job[int]) error) (*queue.Queue, *holder) {
	t.Helper()
	q, h := d.process(t, o, wo, fn), newHolder(t)
	handle(t, q, "held", h.handle)
	return q, h
}

// An open transaction has enqueued to a group and with a unique key, and has locked another key.
// Jobs of that group and with that key end. Jobs without keys, of other groups and with other keys
// are enqueued, promoted and run meanwhile.
func (mainTests) AnOpenTransactionStopsNobody(t *testing.T, d *env) {
	const each = 50
	var did once
	q, h := d.processHeld(t, queue.Options{Timeout: time.Minute}, quickly, did.handle)
	waits := enqueue(t, q, queue.Task{Kind: "held", Group: "locked"}, queue.Task{Kind: "held", Unique: "locked"})
	h.has(t, 2)
	tx, _ := d.beginWith(t, q, queue.Task{Kind: "note", Group: "locked"}, queue.Task{Kind: "note", Unique: "taken"})
	suite.Must(tx.ExecContext(t.Context(), "SELECT job_id FROM "+lockedKey+" FOR UPDATE"))(t)
	// These are due before all others, and their group is locked.
	enqueue(t, q, repeat(3, queue.Task{Kind: "note", Group: "locked", Delay: time.Microsecond})...)
	close(h.end)

	var late sync.WaitGroup
	for _, task := range []queue.Task{{Kind: "note", Group: "locked"}, {Kind: "note", Unique: "taken"}} {
		for range 20 {
			late.Go(func() {
				if _, err := q.Enqueue(suite.Soon(t), task); err != nil {
					assert.ErrorIs(t, err, queue.ErrDuplicate)
				}
			})
		}
	}
	all := make([][]queue.ID, 4)
	suite.Crowd(len(all), func(p int) {
		for n := range each {
			id, err := q.Enqueue(suite.Soon(t), []queue.Task{
				{Kind: "note"},
				{Kind: "note", Group: fmt.Sprint(n % 7)},
				{Kind: "note", Unique: fmt.Sprint(n)},
				{Kind: "note", Delay: time.Millisecond, Group: []string{"", fmt.Sprint("late", n%5)}[n%2]},
			}[p])
			assert.NoError(t, err)
			all[p] = append(all[p], id)
		}
	})
	made := slices.Concat(all...)
	d.ended(t, made)
	assert.True(t, did.all(made), "each job ran")
	assert.Equal(t, 2, d.standing(t, waits), "jobs whose keys are locked")
	require.NoError(t, tx.Commit())
	late.Wait()
	d.empty(t)
}

// Many callers want unique keys that open transactions have taken. Tasks with other keys and
// without keys are enqueued meanwhile.
func (mainTests) WaitsForAUniqueKeyAlone(t *testing.T, d *env) {
	const keys, callers = 6, 60
	q := d.open(t, queue.Options{Timeout: time.Minute})
	var txs []*sql.Tx
	var first []queue.ID
	for n := range keys {
		task := queue.Task{Kind: "note", Unique: fmt.Sprint(n)}
		tx, made := d.beginWith(t, q, task)
		txs, first = append(txs, tx), append(first, made...)
		again, err := d.e.EnqueueTx(t.Context(), q, tx, task)
		require.Len(t, again, 1)
		duplicateOf(t, again[0], err, made[0], task.Unique)
	}
	won := make([]atomic.Int32, keys)
	var answers atomic.Int32
	var waiting sync.WaitGroup
	for n := range callers {
		key := n % keys
		waiting.Go(func() {
			id, err := q.Enqueue(suite.Soon(t), queue.Task{Kind: "note", Args: n, Unique: fmt.Sprint(key)})
			answers.Add(1)
			if err == nil {
				won[key].Add(1)
			} else if assert.ErrorIs(t, err, queue.ErrDuplicate) && key%2 == 0 {
				assert.Equal(t, first[key], id, "the job that has the key")
			}
		})
	}
	for n := range 20 {
		enqueue(t, q, queue.Task{Kind: "note"}, queue.Task{Kind: "note", Group: "other"},
			queue.Task{Kind: "note", Unique: fmt.Sprint("other", n)})
	}
	assert.Zero(t, answers.Load(), "callers that did not wait")
	for n, tx := range txs {
		require.NoError(t, []func() error{tx.Commit, tx.Rollback}[n%2]())
	}
	waiting.Wait()
	for key := range won {
		assert.EqualValues(t, key%2, won[key].Load(), "a key is free after a rollback only")
	}
	assert.Zero(t, d.Count(t, twoAlive), "keys with two jobs")
}

// The count of one group is wrong, so that the server refuses the end of its job. All other jobs
// run, and those of the group once its count is right.
func (mainTests) AWrongCountStopsNoOthers(t *testing.T, d *env) {
	var did once
	trouble := make(chan string, 1000)
	o := queue.Options{Timeout: time.Minute}
	o.Observer.Trouble = func(doing string, _ error) { trouble <- doing }
	q, h := d.processHeld(t, o, queue.WorkerOptions{}, did.handle)
	wrong := enqueue(t, q, queue.Task{Kind: "held", Group: "wrong"}, queue.Task{Kind: "note", Group: "wrong"})
	h.has(t, 1)
	d.exec(t, "UPDATE dblock_queue_key SET taken = 0 WHERE group_key = 'wrong'")
	close(h.end)
	var made []queue.ID
	for n := range 50 {
		made = append(made, enqueue(t, q, queue.Task{Kind: "note"}, queue.Task{Kind: "note", Group: fmt.Sprint(n % 5)},
			queue.Task{Kind: "note", Unique: fmt.Sprint(n)})...)
	}
	d.ended(t, made)
	did.exactly(t, made)
	assert.Equal(t, 2, d.standing(t, wrong), "jobs of the group")
	for suite.Wait(t, trouble, "the report") != "recording the end of a job" {
	}
	d.exec(t, "UPDATE dblock_queue_key SET taken = 1 WHERE group_key = 'wrong'")
	d.empty(t)
}

// One message has the ends of three jobs whose rows are locked, which are done, dead and retried,
// and of 50 others. The others are recorded, and later jobs run and fail meanwhile. The server
// keeps no session for a statement whose caller has left. The three end once the lock is released.
func (mainTests) ALockedJobStopsNoEnds(t *testing.T, d *env) {
	const locked, others = 3, 50
	wo := queue.WorkerOptions{Syncs: 1, Backoff: fast, Promote: 10 * time.Millisecond}
	var did once
	q, h := d.processHeld(t, queue.Options{Timeout: 3 * time.Second}, wo, did.handleLater)
	tasks := repeat(locked+others, queue.Task{Kind: "held"})
	for i, end := range []error{nil, queue.Discard(errBadDay), errBadDay} {
		tasks[i].Kind = fmt.Sprint("locked ", i)
		handle(t, q, tasks[i].Kind, func(ctx context.Context, job queue.Job[int]) error {
			if job.Attempt > 1 {
				return nil
			}
			_ = h.handle(ctx, job)
			return end
		})
	}
	made := enqueueMany(t, q, tasks)
	h.has(t, len(made))
	release := d.lock(t, fmt.Sprint("dblock_queue_job ORDER BY job_id LIMIT ", locked))
	close(h.end)
	began, most := time.Now(), int64(0)
	ended := func(what string, jobs []queue.ID, but int) {
		suite.Until(t, what, func() bool {
			most = max(most, d.sessions(t))
			return d.standing(t, jobs) == but
		})
	}
	ended("the other ends of the message are recorded", made, locked)
	assert.Less(t, time.Since(began), 40*time.Second, "the server gives up after 50 s")
	ended("later jobs have ended", enqueue(t, q, repeat(others, queue.Task{Kind: "note"})...), 0)
	assert.Equal(t, locked, d.standing(t, made[:locked]), "locked jobs")
	if d.Kind != devdb.Postgres {
		assert.LessOrEqual(t, most, int64(20), "sessions: a pool of 16, and some that end")
	}
	release()
	d.empty(t)
	d.rows(t, "dead", 1)
}

// The table of dead jobs is locked. More jobs die than the worker runs at once. Others end.
func (mainTests) ALockedDeadTableStopsNoEnds(t *testing.T, d *env) {
	wo := queue.WorkerOptions{Concurrency: 2, Ahead: -1}
	var did, died once
	q := d.process(t, queue.Options{}, wo, did.handleLater)
	handle(t, q, "dies", func(ctx context.Context, job queue.Job[int]) error {
		died.did(job.ID)
		return queue.Discard(errBadDay)
	})
	release := d.LockTables(t, "dblock_queue_dead")
	dead := enqueue(t, q, repeat(20, queue.Task{Kind: "dies"})...)
	d.ended(t, enqueue(t, q, repeat(20, queue.Task{Kind: "note"})...))
	assert.Equal(t, len(dead), d.standing(t, dead))
	release()
	d.ended(t, dead)
	died.exactly(t, dead)
}

// sessions counts the sessions in the database but for the test's own.
func (d *env) sessions(t *testing.T) int64 {
	t.Helper()
	return d.Count(t, "SELECT count(*) FROM "+
		d.sql("pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'",
			devdb.Processlist+" WHERE db = DATABASE()")) - int64(d.DB.DB.Stats().OpenConnections)
}

// An open transaction has a group and a unique key locked. Calls of several keys that need one of
// them wait. Calls with keys that sort before it and after it pass meanwhile.
func (mainTests) ACallOfSeveralKeysStopsNobody(t *testing.T, d *env) {
	const others, each = 8, 3
	q := d.open(t, queue.Options{Timeout: time.Minute})
	tx, _ := d.beginWith(t, q, queue.Task{Kind: "note", Group: "m-locked"},
		queue.Task{Kind: "note", Unique: "m-locked"})
	calls := [][]queue.Task{
		{{Kind: "note", Group: "a-first"}, {Kind: "note", Group: "m-locked"}},
		{{Kind: "note", Group: "m-locked"}, {Kind: "note", Group: "z-last"}},
		{{Kind: "note", Unique: "a-first"}, {Kind: "note", Unique: "m-locked"}},
		{{Kind: "note", Unique: "b-first", Group: "m-locked"}},
	}
	answers := make(chan error, each*len(calls))
	for n := range cap(answers) {
		go func() { answers <- suite.Second(q.EnqueueMany(suite.Soon(t), calls[n%len(calls)])) }()
	}
	ctx, stop := context.WithTimeout(t.Context(), 40*time.Second) // less than the calls wait
	defer stop()
	for n := range others {
		for _, task := range []queue.Task{
			{Group: "a-first"}, {Unique: fmt.Sprint("a-first", n)}, {Unique: "a-first"}, {Group: "z-last"},
			{Group: "m-locked", Delay: time.Hour}, {},
		} {
			task.Kind = "note"
			if _, err := q.Enqueue(ctx, task); err != nil {
				require.ErrorIs(t, err, queue.ErrDuplicate, "beside the calls that wait: %+v", task)
			}
		}
	}
	assert.Empty(t, answers, "calls that did not wait")
	require.NoError(t, tx.Commit())
	for range cap(answers) {
		if err := suite.Wait(t, answers, "a call"); err != nil {
			assert.ErrorIs(t, err, queue.ErrDuplicate)
		}
	}
	d.rows(t, "job WHERE group_key = 'a-first'", others+each)
	d.rows(t, "job WHERE group_key = 'm-locked'", 1+others+2*each+1)
	d.rows(t, "job WHERE group_key = 'z-last'", others+each)
}

// ALockedTableLeavesNoSession has another session lock the table of the jobs.
func (mainTests) ALockedTableLeavesNoSession(t *testing.T, d *env) {
	const timeout, conns = 2 * time.Second, 16
	q := d.open(t, queue.Options{Timeout: timeout})
	const divided = 2*timeout + 10*time.Second // a batch is divided for 10 s at most
	d.BehindATable(t, "dblock_queue_job", conns, 2*divided, map[string]func(context.Context) error{
		"enqueue": func(ctx context.Context) error { return suite.Second(q.Enqueue(ctx, queue.Task{Kind: "x"})) },
		"show":    func(ctx context.Context) error { return suite.Second(q.Show(ctx, queue.ID{1})) },
		"revive":  func(ctx context.Context) error { return q.Retry(ctx, queue.ID{1}) },
	})
	enqueue(t, q, queue.Task{Kind: "x"})
}
