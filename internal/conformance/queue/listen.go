package queue

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/migrations"
	"github.com/dblock-go/dblock/queue"
)

// listening is how many connections listen: this is the last that they have said.
const listening = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'listen "dblock_queue%'`

// worker opens a Queue that works, and waits until it has asked for jobs, and, where it can, listens.
func (d *env) worker(t *testing.T, o queue.Options, wo queue.WorkerOptions, done chan<- int) *queue.Queue {
	t.Helper()
	asked := make(chan int, 1000)
	o.Observer.Claimed = func(_ string, jobs int, _ time.Duration) {
		select {
		case asked <- jobs:
		default:
		}
	}
	listens := d.e.Kind == devdb.Postgres && !o.PollOnly
	before := int64(0)
	if listens {
		before = d.count(t, listening)
	}
	q := d.open(t, o)
	handle(t, q, "note", record(done))
	work(t, q, wo)
	if listens {
		d.until(t, listening, before+1)
	}
	wait(t, asked, "its first ask")
	return q
}

// ears are a connection that listens as workers do.
type ears struct {
	conn    *pgx.Conn
	channel string
}

func (d *env) hear(t *testing.T) *ears {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), d.dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	e := &ears{conn, d.text(t, "SELECT 'dblock_queue_' || 'dblock_queue_job'::regclass::oid")}
	if _, err := conn.Exec(t.Context(), "listen "+e.channel); err != nil {
		t.Fatal(err)
	}
	return e
}

func (e *ears) next(t *testing.T) string {
	t.Helper()
	n, err := e.conn.WaitForNotification(suite.Soon(t))
	if err != nil {
		t.Fatal(err)
	}
	return n.Payload
}

// end is the last that is told.
func (e *ears) end(t *testing.T, d *env) { d.exec(t, "SELECT pg_notify('"+e.channel+"', 'end')") }

func (e *ears) nothing(t *testing.T, d *env) {
	t.Helper()
	e.end(t, d)
	if got := e.next(t); got != "end" {
		t.Errorf("heard %q", got)
	}
}

// of reports whether a process notified this. Of a queue it sends the hash only.
func of(payload, kind, what string) bool {
	if kind == "jobs" {
		what = fmt.Sprintf("%x", sha256.Sum256([]byte(what)))
	}
	return strings.HasPrefix(payload, kind+" ") && strings.HasSuffix(payload, ":"+what) && len(payload) == len(kind)+1+32+1+len(what)
}

func aBurstIsToldAFewTimes(t *testing.T, d *env) {
	const jobs, each = 1000, 50
	heard := d.hear(t)
	q := d.open(t, queue.Options{})
	began := time.Now()
	var producing sync.WaitGroup
	for range jobs / each {
		producing.Go(func() {
			for range each {
				if _, err := q.Enqueue(suite.Soon(t), queue.Task{Kind: "x"}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	producing.Wait()
	if err := q.Close(t.Context()); err != nil {
		t.Error(err)
	}
	most := int(time.Since(began)/time.Millisecond) + 2 // as docs/queue.md says
	heard.end(t, d)
	n := 0
	for heard.next(t) != "end" {
		n++
	}
	t.Logf("%d jobs were told of %d times", jobs, n)
	if n == 0 || n > most || n > jobs/2 {
		t.Errorf("%d jobs were told of %d times, more than %d", jobs, n, most)
	}
}

// Whatever ends the connection, another one takes its place, and what was told meanwhile is looked for.
func listensAgain(t *testing.T, d *env) {
	done, troubles := make(chan int, 10), make(chan string, 10)
	o := queue.Options{Observer: queue.Observer{Trouble: func(doing string, _ error) { troubles <- doing }}}
	d.worker(t, o, rarely, done)
	q := d.open(t, queue.Options{})
	for n := range 3 {
		d.count(t, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'listen "dblock_queue%'`)
		enqueue(t, q, queue.Task{Kind: "note", Args: n})
		if got := unpolled(t, done, "a job, while the connection was cut"); got != n {
			t.Errorf("job %d, want %d", got, n)
		}
		if doing := wait(t, troubles, "word of it"); !strings.HasPrefix(doing, "listening") {
			t.Errorf("trouble when %s", doing)
		}
		d.until(t, listening, 1)
		enqueue(t, q, queue.Task{Kind: "note", Args: -n})
		if got := unpolled(t, done, "a job, once it listens again"); got != -n {
			t.Errorf("job %d, want %d", got, -n)
		}
	}
}

// There is one connection however many workers a process has, and none when it has none, or is to poll only.
func listensWhileItWorks(t *testing.T, d *env) {
	done := make(chan int, 10)
	d.worker(t, queue.Options{PollOnly: true}, rarely, done)
	q := d.open(t, queue.Options{})
	handle(t, q, "note", record(done))
	for range 2 {
		one := work(t, q, queue.WorkerOptions{Queue: "one"})
		two := work(t, q, queue.WorkerOptions{Queue: "two"})
		d.until(t, listening, 1)
		for _, stop := range []func() error{one, two} {
			if n := d.count(t, listening); n != 1 {
				t.Errorf("%d connections listen", n)
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
		}
		d.until(t, listening, 0)
	}
}

// The channel is the tables', however they are found, and no other schema's.
func schemasDontHearEachOther(t *testing.T, d *env) {
	if _, err := migrations.Up(t.Context(), d.db, migrations.Options{Schema: "else where"}); err != nil {
		t.Fatal(err)
	}
	heard := d.hear(t)
	there, here := d.open(t, queue.Options{Schema: "else where"}), d.open(t, queue.Options{Schema: "public"})
	enqueue(t, there, queue.Task{Kind: "x"})
	if err := there.Close(t.Context()); err != nil {
		t.Error(err)
	}
	heard.nothing(t, d)
	enqueue(t, here, queue.Task{Kind: "x"})
	if got := heard.next(t); !of(got, "jobs", "default") {
		t.Errorf("heard %q", got)
	}
}

// Many processes hear of every job: each is done once, by whichever, and they don't all ask each time.
func manyShareWhatTheyHear(t *testing.T, d *env) {
	const processes, jobs = 8, 200
	var did once
	var asks atomic.Int64
	done := make(chan int, jobs)
	for range processes {
		q := d.open(t, queue.Options{Observer: queue.Observer{Claimed: func(string, int, time.Duration) { asks.Add(1) }}})
		handle(t, q, "note", func(_ context.Context, job queue.Job[int]) error {
			did.did(job.ID)
			done <- job.Args
			return nil
		})
		work(t, q, rarely)
	}
	d.until(t, listening, processes)
	q := d.open(t, queue.Options{})
	var all []queue.ID
	for n := range jobs {
		all = append(all, enqueue(t, q, queue.Task{Kind: "note", Args: n})...)
		unpolled(t, done, "a job")
	}
	d.empty(t)
	if err := did.check(all, true); err != nil {
		t.Error(err)
	}
	n := asks.Load()
	t.Logf("%d asks of %d processes for %d jobs, one after the other", n, processes, jobs)
	if n >= processes*jobs {
		t.Errorf("%d asks of %d processes for %d jobs", n, processes, jobs)
	}
}

// lines are what was logged.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, string(line))
	return len(line), nil
}

func (l *lines) with(text string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// Behind a pooler in transaction mode nothing is heard: that is said once, and jobs are polled for.
func worksBehindAPooler(t *testing.T, d *env) {
	var log lines
	pooled := &env{d.e, testdb.Pooled(t, d.dsn), d.db}
	q := pooled.open(t, queue.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	done := make(chan int, 10)
	handle(t, q, "note", record(done))
	other := d.open(t, queue.Options{})
	for n := range 2 {
		stop := work(t, q, queue.WorkerOptions{Queue: fmt.Sprint(n)})
		enqueue(t, other, queue.Task{Kind: "note", Queue: fmt.Sprint(n), Args: n})
		if got := wait(t, done, "a job that is polled for"); got != n {
			t.Errorf("job %d, want %d", got, n)
		}
		for ctx := suite.Soon(t); log.with("when they poll") == 0; {
			if !suite.SleepFor(ctx, 10*time.Millisecond) {
				t.Fatal("nothing was logged")
			}
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
	if n := log.with("when they poll"); n != 1 {
		t.Errorf("it was logged %d times", n)
	}
	if n := d.count(t, listening); n != 0 {
		t.Errorf("%d connections listen", n)
	}
}
