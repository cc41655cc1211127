package queue

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/queue"
)

func enqueuesInATransaction(t *testing.T, d *env) {
	q, done := d.open(t, queue.Options{}), make(chan int, 10)
	handle(t, q, "note", record(done))
	work(t, q, queue.WorkerOptions{Poll: 10 * time.Millisecond, Promote: 10 * time.Millisecond})
	for n, commit := range []bool{false, true} {
		tx := d.openTx(t)
		task := queue.Task{Kind: "note", Args: n}
		made, err := d.e.EnqueueTx(t.Context(), q, tx, task, queue.Task{Kind: "note", Args: n, Delay: 1}, task)
		require.NoError(t, err)
		assert.Len(t, made, 3)
		_, err = d.e.EnqueueTx(t.Context(), q, tx, task, queue.Task{})
		assert.ErrorIs(t, err, dblock.ErrInvalid, "a bad task")
		made, err = d.e.EnqueueTx(t.Context(), q, tx)
		assert.NoError(t, err, "no tasks")
		assert.Empty(t, made, "no tasks")
		if commit {
			require.NoError(t, tx.Commit())
		} else {
			require.NoError(t, tx.Rollback())
		}
		_, err = d.e.EnqueueTx(t.Context(), q, tx, task)
		assert.Error(t, err, "a transaction that has ended")
	}
	for range 3 {
		assert.Equal(t, 1, wait(t, done, "a job"), "transaction 0 was rolled back")
	}
	d.empty(t)
}

func enqueuesAllOrNone(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	tasks := []queue.Task{{Kind: "note", Args: 1}, {Kind: "note", Args: make(chan int)}, {Kind: "note", Args: 3}}
	made, err := q.EnqueueMany(t.Context(), tasks)
	assert.ErrorIs(t, err, dblock.ErrInvalid)
	assert.ErrorContains(t, err, "note")
	assert.Nil(t, made)
	d.rows(t, "job", 0)
	assert.Nil(t, enqueueMany(t, q, nil))
	tasks = repeat(9, queue.Task{Kind: "note"})
	for i := range tasks {
		tasks[i].Args = strings.Repeat("x", queue.MaxPayloadBytes-2)
	}
	assert.Len(t, enqueueMany(t, q, tasks), 9, "9 MiB")
	d.rows(t, "ready", 9)
}

func refusesBadTasks(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	long := strings.Repeat("x", queue.MaxNameBytes+1)
	for what, task := range map[string]queue.Task{
		"no kind":                    {},
		"a long kind":                {Kind: long},
		"a kind with NUL":            {Kind: "a\x00b"},
		"a kind that is not UTF-8":   {Kind: "a\xff"},
		"a long queue":               {Kind: "k", Queue: long},
		"a negative delay":           {Kind: "k", Delay: -1},
		"a delay for ever":           {Kind: "k", Delay: math.MaxInt64},
		"no attempts":                {Kind: "k", MaxAttempts: -1},
		"too many attempts":          {Kind: "k", MaxAttempts: math.MaxInt16 + 2},
		"a long unique key":          {Kind: "k", Unique: long + long},
		"a group with NUL":           {Kind: "k", Group: "a\x00b"},
		"a negative limit":           {Kind: "k", Group: "a", AtMost: -1},
		"a limit without a group":    {Kind: "k", AtMost: 2},
		"too high a limit":           {Kind: "k", Group: "a", AtMost: queue.MaxAtMost + 1},
		"10 MB":                      {Kind: "k", Args: strings.Repeat("x", 10_000_000)},
		"a value that JSON does not": {Kind: "k", Args: math.Inf(1)},
	} {
		id, err := q.Enqueue(t.Context(), task)
		var invalid *dblock.InvalidError
		if assert.ErrorAs(t, err, &invalid, what) {
			assert.NotEmpty(t, invalid.Field, what)
		}
		assert.Zero(t, id, what)
	}
	handle(t, q, "k", nop)
	for what, err := range map[string]error{
		"too many tasks": suite.Second(q.EnqueueMany(t.Context(), make([]queue.Task, queue.MaxTasks+1))),
		"two handlers":   queue.Handle(q, "k", nop),
		"no kind":        queue.Handle(q, "", nop),
		"no handler":     queue.Handle[int](q, "other", nil),
		"a nil option":   queue.Handle(q, "other", nop, nil),
		"an id":          suite.Second(queue.ParseID("4711")),
	} {
		assert.ErrorIs(t, err, dblock.ErrInvalid, what)
	}
	d.rows(t, "job", 0)
}

func refusesBadWorkers(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	for what, o := range map[string]queue.WorkerOptions{
		"a long queue":       {Queue: strings.Repeat("x", queue.MaxNameBytes+1)},
		"no handlers":        {Concurrency: -1},
		"too many handlers":  {Concurrency: 1 << 20},
		"a negative batch":   {Batch: -1},
		"a large batch":      {Batch: 5001},
		"a negative poll":    {Poll: -1},
		"a rare poll":        {Poll: time.Hour},
		"too many exchanges": {Exchanges: 17},
		"a rare promotion":   {Promote: time.Hour},
	} {
		assert.ErrorIs(t, q.Work(t.Context(), o), dblock.ErrInvalid, what)
	}
	for what, o := range map[string]queue.Options{
		"a short TTL":     {TTL: time.Millisecond},
		"a short timeout": {Timeout: time.Millisecond},
		"a schema":        {Schema: "a\x00"},
		"a label":         {Label: strings.Repeat("x", 256)},
		"a queue":         {MaxQueue: -1},
	} {
		assert.ErrorIs(t, d.opens(d.dsn, o), dblock.ErrInvalid, what)
	}
}

// opens returns the error of opening a Queue.
func (d *env) opens(dsn string, o queue.Options) error {
	q, closePool, err := d.e.Open(context.Background(), dsn, o)
	if err != nil {
		return err
	}
	defer closePool()
	return closeIn(q, time.Minute)
}

func refusesBadQuestions(t *testing.T, d *env) {
	q, ctx := d.open(t, queue.Options{}), t.Context()
	long := strings.Repeat("q", queue.MaxNameBytes+1)
	for what, err := range map[string]error{
		"pause":        q.Pause(ctx, long),
		"resume":       q.Resume(ctx, "a\x00"),
		"list a queue": suite.Second(q.List(ctx, queue.Filter{Queue: long})),
		"list a state": suite.Second(q.List(ctx, queue.Filter{State: 99})),
		"list many":    suite.Second(q.List(ctx, queue.Filter{Limit: 1001})),
		"purge an age": suite.Second(q.Purge(ctx, "", -1)),
		"purge":        suite.Second(q.Purge(ctx, long, 0)),
		"retry":        suite.Second(q.RetryAll(ctx, long)),
		"parse":        suite.Second(queue.ParseState("moving")),
		"history":      d.opens(d.dsn, queue.Options{History: -1}),
	} {
		assert.ErrorIs(t, err, dblock.ErrInvalid, what)
	}
	assert.ErrorIs(t, q.Discard(ctx, queue.ID{1}, "x"), queue.ErrNoJob)
}

func queueRefusesOnceClosed(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	handle(t, q, "note", nop)
	stop := work(t, q, queue.WorkerOptions{})
	enqueue(t, q, queue.Task{Kind: "note", Args: 1})
	d.empty(t)
	require.NoError(t, closeIn(q, time.Minute))
	assert.NoError(t, stop())
	assert.Zero(t, d.count(t, suite.Members))
	assert.ErrorIs(t, suite.Second(q.Enqueue(t.Context(), queue.Task{Kind: "note", Args: 1})), dblock.ErrClosed)
	assert.ErrorIs(t, q.Work(t.Context(), queue.WorkerOptions{}), dblock.ErrClosed)
	assert.NoError(t, closeIn(q, time.Minute), "a second close")
}

func queueChecksTheTables(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	d.exec(t, "INSERT INTO dblock_schema_version (version_id, is_applied) VALUES (999, true)")
	var wrong *dblock.SchemaError
	require.ErrorAs(t, d.opens(d.dsn, queue.Options{}), &wrong)
	assert.EqualValues(t, 999, wrong.Have)
	d.exec(t, "DELETE FROM dblock_schema_version WHERE version_id = 999")
	open := func() error { return d.opens(d.dsn, queue.Options{}) }
	suite.RefusesUnsafeTables(t, d.e.Kind, "dblock_queue_job", func(s string) { t.Helper(); d.exec(t, s) }, open)
	d.exec(t, "ALTER TABLE dblock_queue_job DROP COLUMN group_most")
	if err := open(); !suite.IsDifferent(err, "dblock_queue_job.group_most") {
		t.Errorf("a column is missing: %v", err)
	}
	openAt := func(dsn string) error { return d.opens(dsn, queue.Options{}) }
	assert.NoError(t, suite.RefusesBadSessions(t, d.e.Kind, d.dsn, openAt))
	d.exec(t, "DROP TABLE dblock_queue_ready")
	assert.ErrorIs(t, suite.Second(q.Enqueue(t.Context(), queue.Task{Kind: "k", Args: 1})), dblock.ErrSchema)
}
