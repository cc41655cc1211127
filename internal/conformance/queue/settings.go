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

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/schema"
	"github.com/dblock-go/dblock/migrations"
	"github.com/dblock-go/dblock/queue"
)

// RunWith runs every statement over connections with unusual settings. A setting makes one DSN of
// another.
func (e Queue) RunWith(t *testing.T, settings map[string]func(t *testing.T, dsn string) string) {
	for name, setting := range settings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := e.env(t)
			d.everything(t, &env{e, setting(t, d.dsn), d.db}, queue.Options{})
			d.empty(t)
			d.rows(t, "dead", 1)
		})
	}
}

// RunReadOnly enqueues and works while the server becomes read-only and back.
func (e Queue) RunReadOnly(t *testing.T) {
	s := suite.NewReadOnlyServer(t, e.Kind)
	if s == nil {
		return
	}
	d, begun, proceed := &env{e, s.DSN, s.DB}, make(chan int, 100), make(chan struct{})
	q := d.open(t, queue.Options{TTL: 3 * time.Second})
	handle(t, q, "note", func(_ context.Context, job queue.Job[int]) error {
		begun <- job.Args
		if job.Args == 1 {
			<-proceed
		}
		return nil
	})
	stop := work(t, q, queue.WorkerOptions{})
	enqueue(t, q, queue.Task{Kind: "note", Args: 1})
	require.Equal(t, 1, wait(t, begun, "a job"))
	s.Become(t, true)
	suite.SaysReadOnly(t, "enqueuing", suite.Second(q.Enqueue(t.Context(), queue.Task{Kind: "note", Args: 2})))
	close(proceed)
	s.Become(t, false)
	enqueue(t, q, queue.Task{Kind: "note", Args: 3})
	for n := 1; n != 3; { // job 1 again if its end was not recorded in time
		n = wait(t, begun, "a job")
		assert.NotEqual(t, 2, n)
	}
	d.until(t, "SELECT count(*) FROM dblock_queue_job", 0)
	require.NoError(t, stop())
}

// queuesInASchema has the tables in a schema where the connection does not look by itself.
func queuesInASchema(t *testing.T, d *env) {
	name := "elsewhere"
	if d.e.Kind != devdb.Postgres { // databases are the server's
		name = d.text(t, "SELECT DATABASE()") + "_e"
		d.exec(t, "CREATE DATABASE "+name)
		t.Cleanup(func() { _, _ = d.db.ExecContext(context.WithoutCancel(t.Context()), "DROP DATABASE "+name) })
	}
	suite.Must(migrations.Up(t.Context(), d.db, migrations.Options{Schema: name}))(t)
	d.everything(t, d, queue.Options{Schema: name})
	d.rows(t, "job", 0)
	d.rows(t, "dead", 0)
	assert.EqualValues(t, 1, d.count(t, "SELECT count(*) FROM "+name+".dblock_queue_dead"))
}

func queuesWithTheDocumentedGrants(t *testing.T, d *env) {
	d.everything(t, &env{d.e, suite.ServiceUser(t, d.e.Kind, d.dsn, d.db), d.db}, queue.Options{})
}

// everything runs every statement of a service once.
func (d *env) everything(t *testing.T, as *env, o queue.Options) {
	t.Helper()
	dead, elected := make(chan error, 1), make(chan string, 20)
	o.Observer.Dead = func(_ queue.Info, err error) { dead <- err }
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
	tx := d.openTx(t)
	suite.Must(d.e.EnqueueTx(t.Context(), q, tx, queue.Task{Kind: "note", Args: 1},
		queue.Task{Kind: "note", Args: 1, Group: "g", AtMost: 2, Unique: "tx"}))(t)
	require.NoError(t, tx.Commit())
	work(t, q, queue.WorkerOptions{Backoff: fast, Promote: 10 * time.Millisecond, Rescue: 10 * time.Millisecond})
	for duties := map[string]bool{}; !duties["promote"] || !duties["rescue"]; {
		duties[wait(t, elected, "an election")] = true
	}
	assert.ErrorIs(t, wait(t, dead, "the job that is discarded"), errBadDay)
	in := ""
	if o.Schema != "" {
		in = o.Schema + "."
	}
	d.until(t, "SELECT count(*) FROM "+in+"dblock_queue_job", 0)
	rescue(t, q, 0, 0)
	promote(t, q, 0)
}

// operatorsOfJobsNeedTheirGrants does what the commands of dblock queue do.
func operatorsOfJobsNeedTheirGrants(t *testing.T, d *env) {
	as, name := suite.GrantedUser(t, d.e.Kind, d.dsn, d.db, schema.PostgresOperatorGrants, schema.MySQLOperatorGrants)
	operator, service := (&env{d.e, as, d.db}).open(t, queue.Options{History: 1}), d.open(t, queue.Options{})
	h := newHolder()
	handle(t, service, "long", h.obey)
	work(t, service, queue.WorkerOptions{Queue: "long"})
	n, long := 0, queue.ID{} // a running job, until it is cancelled
	ofJobs := func(table string) bool { return strings.HasPrefix(table, "dblock_queue") }
	suite.EachGrantIsNeeded(t, d.e.Kind, d.db, name, ofJobs, func() error {
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
	for state := queue.Ready; state <= queue.Retrying; state++ {
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
