package queue

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/queue"
)

// elections notes which processes are elected to promote jobs.
type elections struct {
	mu      sync.Mutex
	now     map[int]bool
	most    int
	elected chan int
}

func newElections() *elections {
	return &elections{now: make(map[int]bool), elected: make(chan int, 100)}
}

// of is the observer of one process.
func (s *elections) of(process int) queue.Observer {
	return queue.Observer{Elected: func(task string, is bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case task != "promote":
		case is:
			s.now[process] = true
			s.most = max(s.most, len(s.now))
			s.elected <- process
		default:
			delete(s.now, process)
		}
	}}
}

var promotesOften = queue.WorkerOptions{Promote: 10 * time.Millisecond}

// soonDue is a job that has to be promoted.
var soonDue = queue.Task{Kind: "note", Args: 1, Delay: time.Millisecond}

// One process at a time is elected. When its worker ends another one is, at once.
func oneAtATimeLooksAfterQueues(t *testing.T, d *env) {
	const processes = 3
	s := newElections()
	stops := make([]func() error, processes)
	for i := range processes {
		q := d.open(t, queue.Options{Observer: s.of(i)})
		handle(t, q, "note", nop)
		stops[i] = work(t, q, promotesOften)
	}
	for range processes {
		first := wait(t, s.elected, "election")
		enqueue(t, d.open(t, queue.Options{}), soonDue)
		d.empty(t)
		assert.NoError(t, stops[first]())
	}
	assert.Equal(t, 1, s.most, "elected at once")
}

// asServiceUser is the env whose connections are another user's than the others.
func (d *env) asServiceUser(t *testing.T) *env {
	t.Helper()
	return &env{d.e, d.suiteDB().ServiceUser(t), d.db}
}

// onPromotion runs a PL/pgSQL statement when the service user promotes a job.
func (d *env) onPromotion(t *testing.T, statement string) {
	t.Helper()
	d.exec(t, "CREATE FUNCTION on_promotion() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "+
		"IF session_user LIKE 'service%' THEN "+statement+"; END IF; RETURN OLD; END $$",
		"CREATE TRIGGER on_promotion AFTER DELETE ON dblock_queue_scheduled FOR EACH ROW EXECUTE FUNCTION on_promotion()")
}

// The server refuses what one process promotes. Another process is elected, and the scheduled jobs
// run.
func aProcessThatFailsIsReplaced(t *testing.T, d *env) {
	if d.suiteDB().Postgres() {
		d.onPromotion(t, "RAISE 'not by you'")
	} else {
		d.exec(t, "CREATE TRIGGER refuse BEFORE DELETE ON dblock_queue_scheduled FOR EACH ROW "+
			"IF USER() LIKE 'svc%' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not by you'; END IF")
	}
	s := newElections()
	for i, of := range []*env{d.asServiceUser(t), d} {
		q := of.open(t, queue.Options{Observer: s.of(i)})
		handle(t, q, "note", nop)
		work(t, q, promotesOften)
		if i == 0 {
			wait(t, s.elected, "election of the process that fails")
		}
	}
	enqueue(t, d.open(t, queue.Options{}), soonDue)
	assert.Equal(t, 1, wait(t, s.elected, "election of another process"))
	d.empty(t)
}

// Each statement of the elected process fails, but only after Options.Timeout: on Postgres a
// trigger sleeps, elsewhere handlers have all connections of the pool. Another process is elected,
// after fewer failures than if they were quick, and the scheduled jobs run.
func aProcessThatFailsSlowlyGoes(t *testing.T, d *env) {
	const most = 4 // two elections, if the other process is not yet a candidate
	s, slow := newElections(), d
	var failures atomic.Int32
	observer := s.of(0)
	observer.Trouble = func(doing string, err error) {
		t.Logf("%s: %v", doing, err)
		if doing == "promoting jobs whose time has come" {
			failures.Add(1)
		}
	}
	if d.suiteDB().Postgres() {
		d.onPromotion(t, "PERFORM pg_sleep(60)")
		slow = d.asServiceUser(t)
	}
	q := slow.open(t, queue.Options{TTL: time.Second, Timeout: 2 * time.Second, Observer: observer})
	held := newHolder()
	handleTx(t, d, q, "hold", func(ctx context.Context, _ HandlerTx, job queue.Job[int]) error {
		return held.handle(ctx, job)
	}, queue.Timeout(-1))
	often := promotesOften
	often.Concurrency = 100
	stop := work(t, q, often)
	wait(t, s.elected, "election of the process that fails")
	other := d.open(t, queue.Options{TTL: time.Second, Observer: s.of(1)})
	if !d.suiteDB().Postgres() { // more than the pool has connections
		enqueueMany(t, other, slices.Repeat([]queue.Task{{Kind: "hold", Args: 1}}, 40))
	}
	handle(t, other, "note", nop)
	often.Queue = "other"
	work(t, other, often)
	enqueue(t, other, queue.Task{Kind: "note", Queue: "other", Args: 1, Delay: time.Millisecond})
	assert.Equal(t, 1, wait(t, s.elected, "election of another process"))
	assert.LessOrEqual(t, failures.Load(), int32(most))
	d.until(t, "SELECT count(*) FROM dblock_queue_job WHERE kind = 'note'", 0)
	close(held.end)
	assert.NoError(t, stop())
}

// The lease of the elected process is deleted: two are elected, and that is noticed.
func controlTwoLookAfterQueues(t *testing.T, d *env) {
	s := newElections()
	for i := range 2 {
		work(t, d.open(t, queue.Options{Observer: s.of(i)}), promotesOften)
		wait(t, s.elected, "election")
		d.exec(t, "DELETE FROM dblock_lease")
	}
	assert.Equal(t, 2, s.most, "elected at once")
}

// The elected process is killed: scheduled jobs still run.
func theNextLooksAfterThem(t *testing.T, d *env) {
	victim := d.startWorker(t, modeElected)
	victim.Says(t, "promote true")
	s, done := newElections(), make(chan int, 10)
	q := d.open(t, queue.Options{TTL: time.Second, Observer: s.of(0)})
	handle(t, q, "later", record(done))
	work(t, q, queue.WorkerOptions{Queue: "later"})
	later := queue.Task{Kind: "later", Queue: "later", Args: 1, Delay: time.Millisecond}
	enqueue(t, q, later)
	wait(t, done, "job that another process promotes")
	assert.Empty(t, s.elected, "two are elected at once")
	victim.Kill()
	enqueue(t, q, later)
	wait(t, done, "job that the next process promotes")
	wait(t, s.elected, "election")
}

// What has ended is kept, in the transaction that ends it, for as long as configured.
func historyIsKept(t *testing.T, d *env) {
	q := d.open(t, queue.Options{History: 2})
	handle(t, q, "note", func(_ context.Context, job queue.Job[string]) error {
		switch job.Args {
		case "cancel":
			return queue.Cancel(errBadDay)
		case "discard":
			return queue.Discard(errBadDay)
		case "again":
			if job.Attempt == 1 {
				return errBadDay
			}
		}
		return nil
	})
	all := []queue.Record{
		{State: queue.Finished, Attempts: 1, Payload: []byte(`"finish"`)},
		{State: queue.Cancelled, Attempts: 1, Payload: []byte(`"cancel"`)},
		{State: queue.Dead, Attempts: 1, Payload: []byte(`"discard"`)},
		{State: queue.Finished, Attempts: 2, Payload: []byte(`"again"`)},
	}
	var made []queue.ID
	for _, of := range all {
		made = append(made, enqueue(t, q, queue.Task{Kind: "note", Args: string(of.Payload[1 : len(of.Payload)-1])})...)
	}
	work(t, q, queue.WorkerOptions{Backoff: fast})
	d.empty(t)
	for i, want := range all {
		r := suite.Must(q.Show(t.Context(), made[i]))(t)
		got := queue.Record{State: r.State, Attempts: r.Attempts, Payload: r.Payload}
		assert.Equal(t, want, got)
		assert.Equal(t, "note", r.Kind)
		assert.NotZero(t, r.EnqueuedAt)
		assert.False(t, r.At.Before(r.EnqueuedAt), "%+v", r)
	}
	for state, want := range map[queue.State]int{queue.Finished: 2, queue.Cancelled: 1, queue.GivenUp: 1} {
		list := suite.Must(q.List(t.Context(), queue.Filter{State: state}))(t)
		require.Len(t, list, want)
		assert.Equal(t, state, list[0].State)
	}
	d.exec(t, "UPDATE dblock_queue_history SET day = day - INTERVAL '3' DAY WHERE outcome = 1")
	assert.EqualValues(t, 2, suite.Must(q.PruneHistory(t.Context()))(t), "pruned")
	d.until(t, "SELECT count(*) FROM dblock_queue_history", 2)
	d.exec(t, "UPDATE dblock_queue_history SET day = day - INTERVAL '3' DAY")
	next := d.open(t, queue.Options{History: 1})
	work(t, next, queue.WorkerOptions{Queue: "other"})
	keepsNone := d.open(t, queue.Options{})
	assert.Zero(t, suite.Must(keepsNone.PruneHistory(t.Context()))(t), "pruned")
}

func noHistoryByDefault(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	handle(t, q, "note", nop)
	made := enqueue(t, q, queue.Task{Kind: "note", Args: 1})
	work(t, q, queue.WorkerOptions{})
	d.empty(t)
	d.rows(t, "history", 0)
	_, err := q.Show(t.Context(), made[0])
	assert.ErrorIs(t, err, queue.ErrNoJob)
}
