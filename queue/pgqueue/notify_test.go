package pgqueue_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/migrations"
	"github.com/dblock-go/dblock/queue"
)

// notifyTests are the tests that the package doc of internal/conformance/queue lists.
type notifyTests struct{}

// The next poll of such a worker is half a minute away at least.
var rarely = queue.WorkerOptions{Poll: time.Minute}

// listeners are the connections that listen: this is their last statement.
const (
	listeners      = " FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'listen \"dblock_queue%'"
	countListeners = "SELECT count(*)" + listeners
)

// subscription listens as workers do.
type subscription struct {
	*pgx.Conn
	d       *notifyEnv
	channel string
}

func (d *notifyEnv) listen(t *testing.T) *subscription {
	t.Helper()
	conn := suite.Must(pgx.Connect(t.Context(), d.DSN))(t)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	l := &subscription{conn, d, d.Text(t, "SELECT 'dblock_queue_' || 'dblock_queue_job'::regclass::oid")}
	suite.Must(conn.Exec(t.Context(), "listen "+l.channel))(t)
	return l
}

func (l *subscription) next(t *testing.T) string {
	t.Helper()
	return suite.Must(l.WaitForNotification(suite.Soon(t)))(t).Payload
}

// rest returns what is notified before now.
func (l *subscription) rest(t *testing.T) (payloads []string) {
	t.Helper()
	l.d.Exec(t, "SELECT pg_notify('"+l.channel+"', 'end')")
	for p := l.next(t); p != "end"; p = l.next(t) {
		payloads = append(payloads, p)
	}
	return payloads
}

func hashOf(queue string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(queue))) }

// isFrom checks that a payload is of a kind, of a process, and about a queue's hash or a member.
func isFrom(t *testing.T, payload, kind, about string) {
	t.Helper()
	from, found := strings.CutSuffix(payload, ":"+about)
	assert.True(t, found && strings.HasPrefix(from, kind+" ") && len(from) == len(kind)+1+32, payload)
}

func (notifyTests) WakesOtherProcesses(t *testing.T, d *notifyEnv) {
	done := make(chan int, 10)
	d.worker(t, queue.Options{}, done)
	q, ctx := d.open(t, queue.Options{}), t.Context()
	note := queue.Task{Kind: "note"}
	keyed := queue.Task{Kind: "note", Unique: "u", Group: "g"}
	for _, enqueues := range []func(){
		func() { enqueue(t, q, note) },
		func() { suite.Must(q.EnqueueMany(suite.Soon(t), []queue.Task{{Kind: "x", Queue: "other"}, note}))(t) },
		func() { enqueue(t, q, keyed) },
		func() { d.enqueueTx(t, q, (*sql.Tx).Commit, note) },
		func() { d.enqueueTx(t, q, (*sql.Tx).Commit, keyed) },
		func() {
			require.NoError(t, q.Pause(ctx, ""))
			enqueue(t, q, note)
			require.NoError(t, q.Resume(ctx, ""))
		},
		func() {
			id := enqueue(t, q, queue.Task{Kind: "note", Delay: time.Hour})
			require.NoError(t, q.Discard(ctx, id, "for now"))
			require.NoError(t, q.Retry(ctx, id))
		},
	} {
		enqueues()
		unpolled(t, done)
		d.Until(t, "SELECT count(*) FROM dblock_queue_unique", 0)
	}
}

func (notifyTests) TellsOfJobsInTransactions(t *testing.T, d *notifyEnv) {
	l, q := d.listen(t), d.open(t, queue.Options{})
	for _, task := range []queue.Task{{Kind: "x"}, {Kind: "x", Unique: "u"}, {Kind: "x", Group: "g"}} {
		task.Queue = "rolled back"
		d.enqueueTx(t, q, (*sql.Tx).Rollback, task)
		task.Queue = "committed"
		d.enqueueTx(t, q, (*sql.Tx).Commit, task, queue.Task{Kind: "x", Queue: "for later", Delay: time.Hour})
		assert.Equal(t, "jobs :"+hashOf("committed"), l.next(t))
	}
	tx := d.Tx(t, sql.LevelDefault)
	_, err := enqueueTx(t.Context(), q, tx, queue.Task{Kind: "x", Queue: "committed", Unique: "u"})
	assert.ErrorIs(t, err, queue.ErrDuplicate)
	require.NoError(t, tx.Commit())
	assert.Empty(t, l.rest(t))
}

func (notifyTests) TellsWhoeverIsToCancel(t *testing.T, d *notifyEnv) {
	q, other := d.open(t, queue.Options{}), d.open(t, queue.Options{})
	began, ended := make(chan queue.ID, 1), make(chan error, 1)
	require.NoError(t, queue.Handle(q, "long", func(ctx context.Context, job queue.Job[int]) error {
		began <- job.ID
		select {
		case <-ctx.Done():
		case <-t.Context().Done():
		}
		ended <- context.Cause(ctx)
		return context.Cause(ctx)
	}))
	work(t, q, queue.WorkerOptions{})
	id := enqueue(t, q, queue.Task{Kind: "long"})
	assert.Equal(t, id, suite.Wait(t, began, "job that begins"))
	member := d.Text(t, "SELECT replace(member_id::text, '-', '') FROM dblock_queue_claim")
	l := d.listen(t)
	was, err := other.Cancel(suite.Soon(t), id)
	assert.NoError(t, err)
	assert.Equal(t, queue.JobClaimed, was)
	isFrom(t, l.next(t), "word", member)
	assert.ErrorIs(t, suite.Wait(t, ended, "the end of the context"), queue.ErrCancelled)
}

func (notifyTests) QuietOnesTellNobody(t *testing.T, d *notifyEnv) {
	l := d.listen(t)
	silent, quiet := d.open(t, queue.Options{PollOnly: true}), d.open(t, queue.Options{QuietTx: true})
	for name, q := range map[string]*queue.Queue{"silent": silent, "quiet": quiet} {
		d.enqueueTx(t, q, (*sql.Tx).Commit, queue.Task{Kind: "x"})
		d.enqueueTx(t, q, (*sql.Tx).Commit, queue.Task{Kind: "x", Unique: name})
	}
	enqueue(t, silent, queue.Task{Kind: "x"})
	closeQueue(t, silent) // it would send what is left
	assert.Empty(t, l.rest(t))
	enqueue(t, quiet, queue.Task{Kind: "x", Queue: "told"})
	isFrom(t, l.next(t), "jobs", hashOf("told"))
}

// A process notifies of a queue once a millisecond at most, as docs/queue.md says.
func (notifyTests) ABurstIsToldAFewTimes(t *testing.T, d *notifyEnv) {
	const producers, each = 20, 50
	l, q := d.listen(t), d.open(t, queue.Options{})
	began := time.Now()
	suite.Crowd(producers, func(int) {
		for range each {
			assert.NoError(t, suite.Second(q.Enqueue(suite.Soon(t), queue.Task{Kind: "x"})))
		}
	})
	closeQueue(t, q)
	most := int(time.Since(began)/time.Millisecond) + 2
	n := len(l.rest(t))
	t.Logf("%d notifications of %d jobs", n, producers*each)
	assert.Positive(t, n)
	assert.LessOrEqual(t, n, most)
}

// Its connection is cut. A process listens on another one, and looks for what it missed.
func (notifyTests) ListensAgain(t *testing.T, d *notifyEnv) {
	done, troubles := make(chan int, 10), make(chan string, 10)
	var o queue.Options
	o.Observer.Trouble = func(doing string, _ error) { troubles <- doing }
	d.worker(t, o, done)
	q := d.open(t, queue.Options{})
	for n := range 3 {
		d.Count(t, "SELECT count(pg_terminate_backend(pid))"+listeners)
		enqueue(t, q, queue.Task{Kind: "note", Args: n})
		assert.Equal(t, n, unpolled(t, done), "while the connection was cut")
		assert.Contains(t, suite.Wait(t, troubles, "the report"), "listening")
		d.Until(t, countListeners, 1)
		enqueue(t, q, queue.Task{Kind: "note", Args: -n})
		assert.Equal(t, -n, unpolled(t, done), "once it listens again")
	}
}

// Workers of one process share one connection. A process without workers, or with PollOnly, has
// none.
func (notifyTests) ListensWhileItWorks(t *testing.T, d *notifyEnv) {
	d.worker(t, queue.Options{PollOnly: true}, nil)
	q := d.open(t, queue.Options{})
	for range 2 {
		one := work(t, q, queue.WorkerOptions{Queue: "one"})
		two := work(t, q, queue.WorkerOptions{Queue: "two"})
		d.Until(t, countListeners, 1)
		for _, stop := range []func() error{one, two} {
			assert.EqualValues(t, 1, d.Count(t, countListeners))
			assert.NoError(t, stop())
		}
		d.Until(t, countListeners, 0)
	}
}

// The tables have the channel, whether their schema is named or found by the connection's path.
func (notifyTests) SchemasDontHearEachOther(t *testing.T, d *notifyEnv) {
	suite.Must(migrations.Up(t.Context(), d.DB.DB, migrations.Options{Schema: "else where"}))(t)
	l := d.listen(t)
	there, here := d.open(t, queue.Options{Schema: "else where"}), d.open(t, queue.Options{Schema: "public"})
	enqueue(t, there, queue.Task{Kind: "x"})
	closeQueue(t, there)
	assert.Empty(t, l.rest(t))
	enqueue(t, here, queue.Task{Kind: "x"})
	isFrom(t, l.next(t), "jobs", hashOf("default"))
}

// All processes are notified of each job. It runs once, and they do not all claim each time.
func (notifyTests) ManyShareWhatTheyHear(t *testing.T, d *notifyEnv) {
	const processes, jobs = 8, 150
	did := once{times: map[queue.ID]int{}}
	var claims atomic.Int64
	var o queue.Options
	o.Observer.Claimed = func(string, int, time.Duration) { claims.Add(1) }
	done := make(chan int, jobs)
	for range processes {
		d.process(t, o, func(_ context.Context, job queue.Job[int]) error {
			did.did(job.ID)
			done <- job.Args
			return nil
		})
	}
	d.Until(t, countListeners, processes)
	q := d.open(t, queue.Options{})
	var all []queue.ID
	for n := range jobs {
		all = append(all, enqueue(t, q, queue.Task{Kind: "note", Args: n}))
		unpolled(t, done)
	}
	d.empty(t)
	did.exactly(t, all)
	t.Logf("%d claims of %d processes for %d jobs, one after the other", claims.Load(), processes, jobs)
	assert.Less(t, claims.Load(), int64(processes*jobs))
}

// saidToPoll counts the lines of a log that say that workers poll.
type saidToPoll struct{ atomic.Int64 }

func (l *saidToPoll) Write(line []byte) (int, error) {
	l.Add(int64(strings.Count(string(line), "when they poll")))
	return len(line), nil
}

// Behind a pooler in transaction mode no notification arrives. The log says so once, and the worker
// polls.
func (notifyTests) WorksBehindAPooler(t *testing.T, d *notifyEnv) {
	log := &saidToPoll{}
	pooled := &notifyEnv{d.As(testdb.Pooled(t, d.DSN))}
	q := pooled.open(t, queue.Options{Log: slog.New(slog.NewTextHandler(log, nil))})
	other, done := d.open(t, queue.Options{}), make(chan int, 10)
	require.NoError(t, queue.Handle(q, "note", record(done)))
	for n := range 2 {
		stop := work(t, q, queue.WorkerOptions{Queue: fmt.Sprint(n)})
		enqueue(t, other, queue.Task{Kind: "note", Queue: fmt.Sprint(n), Args: n})
		assert.Equal(t, n, suite.Wait(t, done, "a job that is polled for"))
		suite.Until(t, "it is logged", func() bool { return log.Load() > 0 })
		assert.NoError(t, stop())
	}
	assert.EqualValues(t, 1, log.Load())
	assert.Zero(t, d.Count(t, countListeners))
}
