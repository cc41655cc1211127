package queue

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
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/migrations"
	"github.com/dblock-go/dblock/queue"
)

// The next poll of such a worker is half a minute away at least.
var rarely = queue.WorkerOptions{Poll: time.Minute}

// unpolled waits for a job that no poll finds.
func unpolled(t *testing.T, done <-chan int) (args int) {
	t.Helper()
	select {
	case args = <-done:
	case <-time.After(25 * time.Second):
		require.Fail(t, "no job")
	}
	return args
}

// listeners are the connections that listen: this is their last statement.
const (
	listeners      = " FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'listen \"dblock_queue%'"
	countListeners = "SELECT count(*)" + listeners
)

// worker opens a Queue that works, and waits until it has asked for jobs and, if it can, listens.
func (d *env) worker(t *testing.T, o queue.Options, wo queue.WorkerOptions, done chan<- int) *queue.Queue {
	t.Helper()
	asked := make(chan int, 10_000)
	o.Observer.Claimed = func(_ string, jobs int, _ time.Duration) { asked <- jobs }
	q := d.process(t, o, wo, record(done))
	if d.Kind == devdb.Postgres && !o.PollOnly { // it is the only one that listens
		d.Until(t, countListeners, 1)
	}
	suite.Wait(t, asked, "the first claim")
	return q
}

// subscription listens as workers do.
type subscription struct {
	*pgx.Conn
	d       *env
	channel string
}

func (d *env) listen(t *testing.T) *subscription {
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
	l.d.exec(t, "SELECT pg_notify('"+l.channel+"', 'end')")
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

func (d *env) enqueueTx(t *testing.T, q *queue.Queue, end func(*sql.Tx) error, tasks ...queue.Task) {
	t.Helper()
	tx, _ := d.beginWith(t, q, tasks...)
	require.NoError(t, end(tx))
}

func (heraldTests) WakesOtherProcesses(t *testing.T, d *env) {
	done := make(chan int, 10)
	d.worker(t, queue.Options{}, rarely, done)
	q, ctx := d.open(t, queue.Options{}), t.Context()
	note := queue.Task{Kind: "note"}
	keyed := queue.Task{Kind: "note", Unique: "u", Group: "g"}
	for _, enqueues := range []func(){
		func() { enqueue(t, q, note) },
		func() { enqueueMany(t, q, []queue.Task{{Kind: "x", Queue: "other"}, note}) },
		func() { enqueue(t, q, keyed) },
		func() { d.enqueueTx(t, q, (*sql.Tx).Commit, note) },
		func() { d.enqueueTx(t, q, (*sql.Tx).Commit, keyed) },
		func() {
			require.NoError(t, q.Pause(ctx, ""))
			enqueue(t, q, note)
			require.NoError(t, q.Resume(ctx, ""))
		},
		func() {
			id := enqueue(t, q, queue.Task{Kind: "note", Delay: time.Hour})[0]
			require.NoError(t, q.Discard(ctx, id, "for now"))
			require.NoError(t, q.Retry(ctx, id))
		},
	} {
		enqueues()
		unpolled(t, done)
		d.Until(t, "SELECT count(*) FROM dblock_queue_unique", 0)
	}
}

// A process with PollOnly learns of other processes' jobs when it polls, and of its own at once.
func (mainTests) PollOnlyIsToldOfNothing(t *testing.T, d *env) {
	quiet, loud := make(chan int, 21), make(chan int, 10)
	wo := queue.WorkerOptions{Poll: time.Minute, Queue: "quiet", Promote: -1, Rescue: -1}
	q := d.worker(t, queue.Options{PollOnly: true}, wo, quiet)
	wo.Queue, wo.Poll = "", 50*time.Millisecond
	d.worker(t, queue.Options{}, wo, loud)
	other := d.open(t, queue.Options{})
	for range 10 {
		enqueue(t, other, queue.Task{Kind: "note", Queue: "quiet"})
		d.enqueueTx(t, other, (*sql.Tx).Commit, queue.Task{Kind: "note", Queue: "quiet"})
		enqueue(t, other, queue.Task{Kind: "note"})
		suite.Wait(t, loud, "a job that others were notified of, or polled for")
	}
	d.rows(t, "ready", 20)
	enqueue(t, q, queue.Task{Kind: "note", Queue: "quiet"})
	for range 21 {
		unpolled(t, quiet)
	}
}

func (heraldTests) TellsOfJobsInTransactions(t *testing.T, d *env) {
	l, q := d.listen(t), d.open(t, queue.Options{})
	for _, task := range []queue.Task{{Kind: "x"}, {Kind: "x", Unique: "u"}, {Kind: "x", Group: "g"}} {
		task.Queue = "rolled back"
		d.enqueueTx(t, q, (*sql.Tx).Rollback, task)
		task.Queue = "committed"
		d.enqueueTx(t, q, (*sql.Tx).Commit, task, queue.Task{Kind: "x", Queue: "for later", Delay: time.Hour})
		assert.Equal(t, "jobs :"+hashOf("committed"), l.next(t))
	}
	tx := d.openTx(t)
	_, err := d.e.EnqueueTx(t.Context(), q, tx, queue.Task{Kind: "x", Queue: "committed", Unique: "u"})
	assert.ErrorIs(t, err, queue.ErrDuplicate)
	require.NoError(t, tx.Commit())
	assert.Empty(t, l.rest(t))
}

func (heraldTests) TellsWhoeverIsToCancel(t *testing.T, d *env) {
	q, other, h := d.open(t, queue.Options{}), d.open(t, queue.Options{}), newHolder(t)
	ended := make(chan error, 1)
	handle(t, q, "long", func(ctx context.Context, job queue.Job[int]) error {
		err := h.obey(ctx, job)
		ended <- err
		return err
	})
	work(t, q, queue.WorkerOptions{})
	id := enqueue(t, q, queue.Task{Kind: "long"})[0]
	h.has(t, 1)
	member := d.Text(t, "SELECT replace(member_id::text, '-', '') FROM dblock_queue_claim")
	l := d.listen(t)
	cancel(t, other, id, queue.Claimed)
	isFrom(t, l.next(t), "word", member)
	assert.ErrorIs(t, suite.Wait(t, ended, "the end of the context"), queue.ErrCancelled)
}

func (heraldTests) QuietOnesTellNobody(t *testing.T, d *env) {
	l := d.listen(t)
	silent, quiet := d.open(t, queue.Options{PollOnly: true}), d.open(t, queue.Options{QuietTx: true})
	for name, q := range map[string]*queue.Queue{"silent": silent, "quiet": quiet} {
		d.enqueueTx(t, q, (*sql.Tx).Commit, queue.Task{Kind: "x"})
		d.enqueueTx(t, q, (*sql.Tx).Commit, queue.Task{Kind: "x", Unique: name})
	}
	enqueue(t, silent, queue.Task{Kind: "x"})
	require.NoError(t, closeIn(silent, time.Minute)) // it would send what is left
	assert.Empty(t, l.rest(t))
	enqueue(t, quiet, queue.Task{Kind: "x", Queue: "told"})
	isFrom(t, l.next(t), "jobs", hashOf("told"))
}

// A process notifies of a queue once a millisecond at most, as docs/queue.md says.
func (heraldTests) ABurstIsToldAFewTimes(t *testing.T, d *env) {
	const producers, each = 20, 50
	l, q := d.listen(t), d.open(t, queue.Options{})
	began := time.Now()
	suite.Crowd(producers, func(int) {
		for range each {
			assert.NoError(t, suite.Second(q.Enqueue(suite.Soon(t), queue.Task{Kind: "x"})))
		}
	})
	require.NoError(t, closeIn(q, time.Minute))
	most := int(time.Since(began)/time.Millisecond) + 2
	n := len(l.rest(t))
	t.Logf("%d notifications of %d jobs", n, producers*each)
	assert.Positive(t, n)
	assert.LessOrEqual(t, n, most)
}

// Its connection is cut. A process listens on another one, and looks for what it missed.
func (heraldTests) ListensAgain(t *testing.T, d *env) {
	done, troubles := make(chan int, 10), make(chan string, 10)
	var o queue.Options
	o.Observer.Trouble = func(doing string, _ error) { troubles <- doing }
	d.worker(t, o, rarely, done)
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
func (heraldTests) ListensWhileItWorks(t *testing.T, d *env) {
	d.worker(t, queue.Options{PollOnly: true}, rarely, nil)
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
func (heraldTests) SchemasDontHearEachOther(t *testing.T, d *env) {
	suite.Must(migrations.Up(t.Context(), d.DB.DB, migrations.Options{Schema: "else where"}))(t)
	l := d.listen(t)
	there, here := d.open(t, queue.Options{Schema: "else where"}), d.open(t, queue.Options{Schema: "public"})
	enqueue(t, there, queue.Task{Kind: "x"})
	require.NoError(t, closeIn(there, time.Minute))
	assert.Empty(t, l.rest(t))
	enqueue(t, here, queue.Task{Kind: "x"})
	isFrom(t, l.next(t), "jobs", hashOf("default"))
}

// All processes are notified of each job. It runs once, and they do not all claim each time.
func (heraldTests) ManyShareWhatTheyHear(t *testing.T, d *env) {
	const processes, jobs = 8, 150
	var did once
	var claims atomic.Int64
	var o queue.Options
	o.Observer.Claimed = func(string, int, time.Duration) { claims.Add(1) }
	done := make(chan int, jobs)
	for range processes {
		d.process(t, o, rarely, func(_ context.Context, job queue.Job[int]) error {
			did.did(job.ID)
			done <- job.Args
			return nil
		})
	}
	d.Until(t, countListeners, processes)
	q := d.open(t, queue.Options{})
	var all []queue.ID
	for n := range jobs {
		all = append(all, enqueue(t, q, queue.Task{Kind: "note", Args: n})...)
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
func (heraldTests) WorksBehindAPooler(t *testing.T, d *env) {
	log := &saidToPoll{}
	pooled := d.as(testdb.Pooled(t, d.DSN))
	q := pooled.open(t, queue.Options{Log: slog.New(slog.NewTextHandler(log, nil))})
	other, done := d.open(t, queue.Options{}), make(chan int, 10)
	handle(t, q, "note", record(done))
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
