package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/migrations"
	"github.com/dblock-go/dblock/queue"
)

func (mainTests) EnqueuesAllOrNone(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	tasks := []queue.Task{{Kind: "note", Args: 1}, {Kind: "note", Args: make(chan int)}, {Kind: "note", Args: 3}}
	made, err := q.EnqueueMany(t.Context(), tasks)
	assert.ErrorIs(t, err, dblock.ErrInvalid)
	assert.ErrorContains(t, err, "note")
	assert.Nil(t, made)
	tx := d.openTx(t)
	task := queue.Task{Kind: "note", Args: 1}
	assert.Empty(t, suite.Must(d.e.EnqueueTx(t.Context(), q, tx))(t), "no tasks")
	_, err = d.e.EnqueueTx(t.Context(), q, tx, task, queue.Task{})
	assert.ErrorIs(t, err, dblock.ErrInvalid, "a bad task")
	require.NoError(t, tx.Commit())
	assert.Error(t, suite.Second(d.e.EnqueueTx(t.Context(), q, tx, task)), "a transaction that has ended")
	d.rows(t, "job", 0)
	assert.Nil(t, enqueueMany(t, q, nil))
	tasks = repeat(9, queue.Task{Kind: "note"})
	for i := range tasks {
		tasks[i].Args = strings.Repeat("x", queue.MaxPayloadBytes-2)
	}
	assert.Len(t, enqueueMany(t, q, tasks), 9, "9 MiB")
	d.rows(t, "ready", 9)
}

// opens returns the error of opening a Queue.
func (d *env) opens(dsn string, o queue.Options) error {
	q, closePool, err := d.e.Open(context.Background(), dsn, o)
	if err != nil {
		return err
	}
	defer closePool()
	return suite.CloseWithin(q, time.Minute)
}

func (mainTests) ChecksTheTables(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	d.exec(t, "INSERT INTO dblock_schema_version (version_id, is_applied) VALUES (999, true)")
	var wrong *dblock.SchemaError
	require.ErrorAs(t, d.opens(d.DSN, queue.Options{}), &wrong)
	assert.EqualValues(t, 999, wrong.Have)
	d.exec(t, "DELETE FROM dblock_schema_version WHERE version_id = 999")
	open := func() error { return d.opens(d.DSN, queue.Options{}) }
	suite.RefusesUnsafeTables(t, d.Kind, "dblock_queue_job", func(s string) { t.Helper(); d.exec(t, s) }, open)
	d.exec(t, "ALTER TABLE dblock_queue_job DROP COLUMN group_most")
	if err := open(); !suite.IsDifferent(err, "dblock_queue_job.group_most") {
		t.Errorf("a column is missing: %v", err)
	}
	openAt := func(dsn string) error { return d.opens(dsn, queue.Options{}) }
	assert.NoError(t, suite.RefusesBadSessions(t, d.Kind, d.DSN, openAt))
	d.exec(t, "DROP TABLE dblock_queue_ready")
	assert.ErrorIs(t, suite.Second(q.Enqueue(t.Context(), queue.Task{Kind: "k", Args: 1})), dblock.ErrSchema)
	assert.ErrorIs(t, d.opens(d.DSN, queue.Options{Schema: "a\x00"}), dblock.ErrInvalid)
}

// RunWith runs every statement over connections with unusual settings. A setting makes one DSN of
// another.
func (e Queue) RunWith(t *testing.T, settings map[string]suite.Setting) {
	suite.Each(t, settings, func(t *testing.T, setting suite.Setting) {
		d := e.env(t)
		d.everything(t, d.as(setting(t, d.DSN)), queue.Options{})
		d.empty(t)
		d.rows(t, "dead", 1)
	})
}

// RunReadOnly enqueues and works while the server becomes read-only and back.
func (e Queue) RunReadOnly(t *testing.T) {
	s := suite.NewReadOnlyServer(t, e.Kind)
	if s == nil {
		return
	}
	d, h := &env{s.DB, e}, newHolder(t)
	q := d.open(t, queue.Options{TTL: 3 * time.Second})
	handle(t, q, "note", h.handle)
	stop := work(t, q, queue.WorkerOptions{})
	first := enqueue(t, q, queue.Task{Kind: "note"})[0]
	h.has(t, 1)
	s.Become(t, true)
	suite.SaysReadOnly(t, "enqueuing", suite.Second(q.Enqueue(t.Context(), queue.Task{Kind: "note"})))
	close(h.end)
	s.Become(t, false)
	last := enqueue(t, q, queue.Task{Kind: "note"})[0]
	for id := first; id != last; { // the first job again if its end was not recorded in time
		id = h.has(t, 1)[0].ID
		assert.Contains(t, []queue.ID{first, last}, id)
	}
	d.Until(t, "SELECT count(*) FROM dblock_queue_job", 0)
	require.NoError(t, stop())
}

// queuesInASchema has the tables in a schema where the connection does not look by itself.
func (mainTests) UsesASchemaOfTheHostsChoice(t *testing.T, d *env) {
	name := "elsewhere"
	if d.Kind != devdb.Postgres { // databases are the server's
		name = d.Text(t, "SELECT DATABASE()") + "_e"
		d.exec(t, "CREATE DATABASE "+name)
		t.Cleanup(func() { _, _ = d.DB.DB.ExecContext(context.WithoutCancel(t.Context()), "DROP DATABASE "+name) })
	}
	suite.Must(migrations.Up(t.Context(), d.DB.DB, migrations.Options{Schema: name}))(t)
	d.everything(t, d, queue.Options{Schema: name})
	d.rows(t, "job", 0)
	d.rows(t, "dead", 0)
	assert.EqualValues(t, 1, d.Count(t, "SELECT count(*) FROM "+name+".dblock_queue_dead"))
}

func (mainTests) RunsWithTheDocumentedGrants(t *testing.T, d *env) {
	d.everything(t, d.as(d.ServiceUser(t)), queue.Options{})
}

// everything runs every statement of a service once.
func (d *env) everything(t *testing.T, as *env, o queue.Options) {
	t.Helper()
	dead, elected := make(chan error, 1), make(chan string, 20)
	o.Observer.Discarded = func(_ queue.Info, err error) { dead <- err }
	o.Observer.Trouble = func(doing string, err error) { assert.NoError(t, err, doing) }
	o.Observer.Elected = func(duty string, is bool) {
		if is {
			elected <- duty
		}
	}
	q := as.open(t, o)
	handle(t, q, "note", func(_ context.Context, job queue.Job[int]) error {
		switch {
		case job.Attempt == 1:
			return errors.New("it fails")
		case job.Args == 0:
			return queue.Discard(errBadDay)
		}
		return nil
	})
	handleTx(t, as, q, "follow", func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error {
		_, err := tx.Enqueue(ctx, queue.Task{Kind: "note", Args: job.Args, Group: "g"})
		return err
	})
	enqueue(t, q, queue.Task{Kind: "follow", Args: 1})
	enqueue(t, q, queue.Task{Kind: "follow", Args: 1, Group: "h", Unique: "follow"})
	for n := range 3 {
		delay := time.Duration(n) * time.Millisecond
		enqueue(t, q, queue.Task{Kind: "note", Args: n, Delay: delay})
		enqueue(t, q, queue.Task{Kind: "note", Args: n + 1, Delay: delay, Group: "g", Unique: fmt.Sprint(n)})
	}
	if _, err := q.Enqueue(t.Context(), queue.Task{Kind: "note", Args: 1, Unique: "2"}); err != nil {
		assert.ErrorIs(t, err, queue.ErrDuplicate)
	}
	d.enqueueTx(t, q, queue.Task{Kind: "note", Args: 1},
		queue.Task{Kind: "note", Args: 1, Group: "g", GroupLimit: 2, Unique: "tx"})
	work(t, q, queue.WorkerOptions{Backoff: fast, Promote: 10 * time.Millisecond, Rescue: 10 * time.Millisecond})
	for duties := map[string]bool{}; !duties["promote"] || !duties["rescue"]; {
		duties[suite.Wait(t, elected, "an election")] = true
	}
	assert.ErrorIs(t, suite.Wait(t, dead, "the job that is discarded"), errBadDay)
	in := ""
	if o.Schema != "" {
		in = o.Schema + "."
	}
	d.Until(t, "SELECT count(*) FROM "+in+"dblock_queue_job", 0)
	rescue(t, q, 0, 0)
	promote(t, q, 0)
}

// operatorsOfJobsNeedTheirGrants does what the commands of dblock queue do.
func (mainTests) OperatorsOfJobsNeedTheirGrants(t *testing.T, d *env) {
	service := d.open(t, queue.Options{})
	h := newHolder(t)
	handle(t, service, "long", h.obey)
	work(t, service, queue.WorkerOptions{Queue: "long", Grace: -1}) // the last job runs to the end of the test
	n, long := 0, queue.ID{}                                        // a running job, until it is cancelled
	ofJobs := func(table string) bool { return strings.HasPrefix(table, "dblock_queue") }
	d.OperatorNeedsEachGrant(t, ofJobs, func(dsn string) func() error {
		operator := d.as(dsn).open(t, queue.Options{History: 1})
		return func() error {
			n++
			if long == (queue.ID{}) {
				long = enqueue(t, service, queue.Task{Kind: "long", Args: n, Queue: "long"})[0]
				h.has(t, 1)
			}
			group, key := fmt.Sprint(n), fmt.Sprint("dead", n)
			jobs := enqueueMany(t, service, []queue.Task{
				{Kind: "note", Unique: fmt.Sprint("ready", n)}, {Kind: "note", Delay: time.Hour},
				{Kind: "note", Group: group}, {Kind: "note", Group: group},
				{Kind: "note"}, {Kind: "note", Group: key, Unique: key},
			})
			for _, step := range queueCommands(t.Context(), operator, jobs, long) {
				if err := step(); err != nil {
					return err
				}
			}
			long = queue.ID{}
			return nil
		}
	})
}

// queueCommands change jobs of every state: ready, scheduled, blocked, dead and running.
func queueCommands(ctx context.Context, operator *queue.Queue, jobs []queue.ID, running queue.ID) []func() error {
	discard := func(id queue.ID) func() error {
		return func() error { return operator.Discard(ctx, id, "not wanted") }
	}
	steps := []func() error{
		func() error { return suite.Second(operator.Stats(ctx)) },
		func() error { return suite.Second(operator.Show(ctx, jobs[0])) },
		func() error { return operator.Pause(ctx, "note") },
		func() error { return operator.Resume(ctx, "note") },
	}
	for state := queue.JobReady; state <= queue.JobRetrying; state++ {
		steps = append(steps, func() error { return suite.Second(operator.List(ctx, queue.Filter{State: state})) })
	}
	for _, id := range jobs[4:] {
		steps = append(steps, discard(id), func() error { return operator.Retry(ctx, id) }, discard(id))
	}
	steps = append(steps, func() error { return suite.Second(operator.RetryAll(ctx, "")) }, discard(jobs[4]),
		func() error { return suite.Second(operator.Purge(ctx, "", 0)) })
	for _, id := range append(jobs[:4:4], jobs[5], running) {
		steps = append(steps, func() error { return suite.Second(operator.Cancel(ctx, id)) })
	}
	return steps
}

// mixed are tasks of which some are of the kind "banned": some with groups, with unique keys, for
// later, and with one attempt.
func mixed(n int, name string) []queue.Task {
	tasks := repeat(n, queue.Task{Kind: "note"})
	for i := range tasks {
		switch i % 4 {
		case 1:
			tasks[i].Group = fmt.Sprint(i % 3)
		case 2:
			tasks[i].Unique = fmt.Sprint(name, i)
		case 3:
			tasks[i].MaxAttempts = 1
		}
		if i/4 == 3 {
			tasks[i].Kind, tasks[i].Group = "banned", ""
		}
	}
	return tasks
}

// A trigger refuses to insert jobs of one kind, with each kind of error that a trigger has. Jobs of
// other kinds that share a statement with these are enqueued.
func (mainTests) ARefusedTaskFailsAlone(t *testing.T, d *env) {
	refusals, waits := d.Refusals(t)
	if !d.Postgres() {
		delete(waits, "a lock timeout") // after which a statement waits again
	}
	q := d.open(t, queue.Options{})
	for name, statement := range suite.Both(refusals, waits) {
		drop := d.Trigger(t, "AFTER INSERT", "dblock_queue_job", "NEW.kind = 'banned'", statement)
		tasks := mixed(48, name)
		suite.Crowd(len(tasks), func(i int) {
			if _, err := q.Enqueue(suite.Soon(t), tasks[i]); tasks[i].Kind == "banned" {
				assert.Error(t, err, name)
			} else {
				assert.NoError(t, err, name)
			}
		})
		drop()
	}
	d.rows(t, "job WHERE kind = 'banned'", 0)
}

// A trigger refuses the ends, and the beginnings, of jobs of one kind. Jobs of other kinds that are
// claimed with these end. Those that were refused end when the trigger is gone.
func (mainTests) ARefusedEndFailsAlone(t *testing.T, d *env) {
	refusals, waits := d.Refusals(t)
	q := d.open(t, queue.Options{})
	handle(t, q, "note", nop)
	handle(t, q, "banned", nop)
	work(t, q, queue.WorkerOptions{Poll: 10 * time.Millisecond, Backoff: fast})
	for _, event := range []string{"DELETE", "UPDATE"} {
		for name, statement := range suite.Both(refusals, waits) {
			drop := d.Trigger(t, "AFTER "+event, "dblock_queue_job", "OLD.kind = 'banned'", statement)
			made := enqueueMany(t, q, mixed(48, event+name))
			d.ended(t, append(made[:12:12], made[16:]...))
			if event == "DELETE" {
				assert.Equal(t, 4, d.standing(t, made), name)
			}
			drop()
		}
	}
	d.empty(t)
	d.rows(t, "dead", 0)
}

// A trigger refuses the claims of the first jobs. Those behind them end, and later the first ones.
func (mainTests) ARefusedClaimStopsNoOthers(t *testing.T, d *env) {
	refusals, waits := d.Refusals(t)
	for statement, n := range map[string]int{refusals["a unique index"]: 150, waits[suite.Conflict]: 1} {
		q := d.open(t, queue.Options{})
		handle(t, q, "note", nop)
		drop := d.Trigger(t, "AFTER DELETE", "dblock_queue_ready", "OLD.priority = -5", statement)
		first := enqueueMany(t, q, repeat(n, queue.Task{Kind: "note", Priority: -5}))
		made := enqueueMany(t, q, mixed(48, "")[:12])
		stop := work(t, q, queue.WorkerOptions{Poll: 10 * time.Millisecond})
		d.ended(t, made)
		assert.Equal(t, n, d.standing(t, first))
		drop()
		d.empty(t)
		assert.NoError(t, stop())
	}
}

// A trigger keeps some jobs from being promoted, and from being retried. All others are.
func (mainTests) ARefusedMoveStopsNoOthers(t *testing.T, d *env) {
	q, tasks := d.open(t, queue.Options{}), append(mixed(48, "")[:12], repeat(150, queue.Task{Kind: "note", Priority: -5})...)
	drop := d.Trigger(t, "AFTER INSERT", "dblock_queue_ready", "NEW.priority = -5", suite.Raise(d.Kind, "45000", "no"))
	for i := range tasks {
		tasks[i].Delay = time.Microsecond
	}
	enqueueMany(t, q, tasks)
	n, err := q.Promote(suite.Soon(t))
	assert.ErrorContains(t, err, "(job ")
	assert.Equal(t, 12, n, "promoted")
	drop()
	d.exec(t, "UPDATE dblock_queue_scheduled SET run_at = '2000-01-01'") // they were put off
	handle(t, q, "note", doomed)
	work(t, q, queue.WorkerOptions{Promote: 50 * time.Millisecond})
	d.Until(t, "SELECT count(*) FROM dblock_queue_dead", 162)
	d.Trigger(t, "AFTER DELETE", "dblock_queue_dead", "OLD.priority = -5", suite.Raise(d.Kind, "45000", "no"))
	n, err = q.RetryAll(suite.Soon(t), "")
	assert.ErrorContains(t, err, "(job ")
	assert.Equal(t, 12, n, "retried")
}
