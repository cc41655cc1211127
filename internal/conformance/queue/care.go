package queue

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/queue"
)

// elections notes which processes are elected for a duty.
type elections struct {
	mu      sync.Mutex
	now     map[int]bool
	most    int
	elected chan int
}

func newElections() *elections {
	return &elections{now: make(map[int]bool), elected: make(chan int, 100)}
}

// of is told of one process.
func (s *elections) of(process int, duty string) queue.Observer {
	return queue.Observer{Elected: func(of string, is bool) {
		if of != duty {
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if !is {
			delete(s.now, process)
			return
		}
		s.now[process] = true
		s.most = max(s.most, len(s.now))
		s.elected <- process
	}}
}

// One process at a time is elected, and when its worker ends another one is, at once.
func oneAtATimeLooksAfterQueues(t *testing.T, d *env) {
	const processes = 3
	s := newElections()
	stops := make([]func() error, processes)
	for i := range processes {
		q := d.open(t, queue.Options{Observer: s.of(i, "promote")})
		handle(t, q, "note", nop)
		stops[i] = work(t, q, queue.WorkerOptions{Promote: 10 * time.Millisecond})
	}
	for range processes {
		first := wait(t, s.elected, "an election")
		enqueue(t, d.open(t, queue.Options{}), queue.Task{Kind: "note", Args: 1, Delay: time.Millisecond})
		d.empty(t)
		if err := stops[first](); err != nil {
			t.Error(err)
		}
	}
	if s.most != 1 {
		t.Errorf("%d were elected at once", s.most)
	}
}

// aProcessThatFailsIsReplaced has the server refuse what one process does that looks after the queues. Another process is elected, and the
// scheduled jobs come.
func aProcessThatFailsIsReplaced(t *testing.T, d *env) {
	refuse := []string{
		"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN " +
			"IF session_user LIKE 'service%' THEN RAISE 'not by you'; END IF; RETURN OLD; END $$",
		"CREATE TRIGGER refuse AFTER DELETE ON dblock_queue_scheduled FOR EACH ROW EXECUTE FUNCTION refuse()",
	}
	if d.e.Kind != devdb.Postgres {
		refuse = []string{"CREATE TRIGGER refuse BEFORE DELETE ON dblock_queue_scheduled FOR EACH ROW " +
			"IF USER() LIKE 'svc%' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not by you'; END IF"}
	}
	for _, statement := range refuse {
		d.exec(t, statement)
	}
	s := newElections()
	limited := *d
	limited.dsn = suite.ServiceUser(t, d.e.Kind, d.dsn, d.db)
	often := queue.WorkerOptions{Promote: 10 * time.Millisecond}
	for i, of := range []*env{&limited, d} {
		q := of.open(t, queue.Options{Observer: s.of(i, "promote")})
		handle(t, q, "note", nop)
		work(t, q, often)
		if i == 0 {
			wait(t, s.elected, "the election of the process that fails")
		}
	}
	enqueue(t, d.open(t, queue.Options{}), queue.Task{Kind: "note", Args: 1, Delay: time.Millisecond})
	if process := wait(t, s.elected, "the election of another one"); process != 1 {
		t.Errorf("process %d is elected", process)
	}
	d.empty(t)
}

// aProcessThatFailsSlowlyGoes has each statement of one process that looks after the queues fail after Options.Timeout only: on
// Postgres a trigger sleeps, elsewhere handlers have all connections of the pool. Another process is elected, after fewer failures than if
// they were quick, and the scheduled jobs come.
func aProcessThatFailsSlowlyGoes(t *testing.T, d *env) {
	const most = 4 // two elections, if the other process is not yet a candidate
	s, limited := newElections(), *d
	var failures atomic.Int32
	observer := s.of(0, "promote")
	observer.Trouble = func(doing string, err error) {
		t.Logf("%s: %v", doing, err)
		if doing == "promoting jobs whose time has come" {
			failures.Add(1)
		}
	}
	if d.e.Kind == devdb.Postgres {
		d.exec(t, "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "+
			"IF session_user LIKE 'service%' THEN PERFORM pg_sleep(60); END IF; RETURN OLD; END $$")
		d.exec(t, "CREATE TRIGGER slow AFTER DELETE ON dblock_queue_scheduled FOR EACH ROW EXECUTE FUNCTION slow()")
		limited.dsn = suite.ServiceUser(t, d.e.Kind, d.dsn, d.db)
	}
	often := queue.WorkerOptions{Promote: 10 * time.Millisecond, Concurrency: 100}
	q := limited.open(t, queue.Options{TTL: time.Second, Timeout: 2 * time.Second, Observer: observer})
	open := make(chan struct{})
	handleTx(t, d, q, "hold", func(context.Context, HandlerTx, queue.Job[int]) error {
		<-open
		return nil
	}, queue.Timeout(-1))
	stop := work(t, q, often)
	wait(t, s.elected, "the election of the process that fails")
	other := d.open(t, queue.Options{TTL: time.Second, Observer: s.of(1, "promote")})
	if d.e.Kind != devdb.Postgres {
		tasks := slices.Repeat([]queue.Task{{Kind: "hold", Args: 1}}, 40) // more than the pool has connections
		if _, err := other.EnqueueMany(suite.Soon(t), tasks); err != nil {
			t.Fatal(err)
		}
	}
	handle(t, other, "note", nop)
	often.Queue = "other"
	work(t, other, often)
	enqueue(t, other, queue.Task{Kind: "note", Queue: "other", Args: 1, Delay: time.Millisecond})
	if process := wait(t, s.elected, "the election of another one"); process != 1 {
		t.Errorf("process %d is elected", process)
	}
	if n := failures.Load(); n > most {
		t.Errorf("it was elected for %d failures, want %d at most", n, most)
	}
	suite.Until(t, "the job is promoted and done", func() bool {
		return d.count(t, "SELECT count(*) FROM dblock_queue_job WHERE kind = 'note'") == 0
	})
	close(open)
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// controlTwoLookAfterQueues is where the lease of the one that is elected is taken away: two are, and that is noticed.
func controlTwoLookAfterQueues(t *testing.T, d *env) {
	s := newElections()
	for i := range 2 {
		q := d.open(t, queue.Options{Observer: s.of(i, "promote")})
		work(t, q, queue.WorkerOptions{Promote: 10 * time.Millisecond})
		wait(t, s.elected, "an election")
		d.exec(t, "DELETE FROM dblock_lease")
	}
	if s.most != 2 {
		t.Errorf("%d were elected at once: the test shows nothing", s.most)
	}
}

// The process that looks after the queues is killed: scheduled jobs still come.
func theNextLooksAfterThem(t *testing.T, d *env) {
	victim := d.startWorker(t, workerCare+"=1")
	victim.Says(t, "promote true")
	s := newElections()
	q := d.open(t, queue.Options{TTL: time.Second, Observer: s.of(0, "promote")})
	done := make(chan int, 10)
	handle(t, q, "later", record(done))
	work(t, q, queue.WorkerOptions{Queue: "later"})
	enqueue(t, q, queue.Task{Kind: "later", Queue: "later", Args: 1, Delay: time.Millisecond})
	if n := wait(t, done, "a job that another process promotes"); n != 1 {
		t.Errorf("job %d", n)
	}
	select {
	case <-s.elected:
		t.Error("two are elected at once")
	default:
	}
	victim.Kill()
	enqueue(t, q, queue.Task{Kind: "later", Queue: "later", Args: 2, Delay: time.Millisecond})
	if n := wait(t, done, "a job that the next one promotes"); n != 2 {
		t.Errorf("job %d", n)
	}
	wait(t, s.elected, "the election")
}

// What has ended is kept, in the transaction that ends it, for as long as is asked for.
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
	var made []queue.ID
	for _, what := range []string{"finish", "cancel", "discard", "again"} {
		made = append(made, enqueue(t, q, queue.Task{Kind: "note", Args: what})...)
	}
	work(t, q, queue.WorkerOptions{Backoff: fast})
	d.empty(t)
	for i, want := range []queue.Record{
		{State: queue.Finished, Attempts: 1, Payload: []byte(`"finish"`)}, {State: queue.Cancelled, Attempts: 1, Payload: []byte(`"cancel"`)},
		{State: queue.Dead, Attempts: 1, Payload: []byte(`"discard"`)}, {State: queue.Finished, Attempts: 2, Payload: []byte(`"again"`)},
	} {
		r, err := q.Show(t.Context(), made[i])
		if err != nil || r.State != want.State || r.Attempts != want.Attempts || string(r.Payload) != string(want.Payload) || r.Kind != "note" ||
			r.At.Before(r.EnqueuedAt) || r.EnqueuedAt.IsZero() {
			t.Errorf("%+v, %v; want %+v", r, err, want)
		}
	}
	for state, want := range map[queue.State]int{queue.Finished: 2, queue.Cancelled: 1, queue.GivenUp: 1} {
		if all, err := q.List(t.Context(), queue.Filter{State: state}); err != nil || len(all) != want || all[0].State != state {
			t.Errorf("%v: %+v, %v", state, all, err)
		}
	}
	d.exec(t, "UPDATE dblock_queue_history SET day = day - INTERVAL '3' DAY WHERE outcome = 1")
	if n, err := q.PruneHistory(t.Context()); err != nil || n != 2 {
		t.Errorf("%d pruned, %v", n, err)
	}
	d.until(t, "SELECT count(*) FROM dblock_queue_history", 2)
	d.exec(t, "UPDATE dblock_queue_history SET day = day - INTERVAL '3' DAY")
	next := d.open(t, queue.Options{History: 1})
	work(t, next, queue.WorkerOptions{Queue: "other"})
	if n, err := d.open(t, queue.Options{}).PruneHistory(t.Context()); err != nil || n != 0 {
		t.Errorf("one that keeps none has pruned %d, %v", n, err)
	}
}

func noHistoryByDefault(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	handle(t, q, "note", nop)
	made := enqueue(t, q, queue.Task{Kind: "note", Args: 1})
	work(t, q, queue.WorkerOptions{})
	d.empty(t)
	if n := d.count(t, "SELECT count(*) FROM dblock_queue_history"); n != 0 {
		t.Errorf("%d rows", n)
	}
	if r, err := q.Show(t.Context(), made[0]); !errors.Is(err, queue.ErrNoJob) {
		t.Errorf("%+v, %v", r, err)
	}
}
