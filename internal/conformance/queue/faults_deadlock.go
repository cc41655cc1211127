package queue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/queue"
)

// isDeadlock knows a deadlock by what both servers say, however it is wrapped.
func isDeadlock(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "40P01") || strings.Contains(err.Error(), "Error 1213"))
}

// Eight claimers and four producers, for 5 s or as long as DBLOCK_SOAK says, with jobs of all sorts, on a server that is theirs alone: no
// deadlock reaches those who enqueue, nor an observer or the log.
func nobodyMeetsADeadlock(t *testing.T, d *env) {
	lasts := soakTime(t, 5*time.Second)
	d, server := d.onAServerOfItsOwn(t)
	before, counted := d.deadlocks(t, server)
	var did once
	heard := newListener()
	var queues []*queue.Queue
	for range 4 {
		q, closePool, err := d.e.Open(t.Context(), d.dsn, queue.Options{Log: slog.New(heard), Observer: queue.Observer{Trouble: heard.trouble}})
		if err != nil {
			t.Fatal(err)
		}
		defer closePool()
		defer func() { _ = q.Close(context.Background()) }()
		handle(t, q, "note", func(_ context.Context, job queue.Job[int]) error {
			did.did(job.ID)
			_, err := sayAtRandom()
			return err
		})
		for range 2 {
			work(t, q, queue.WorkerOptions{Batch: 20, Exchanges: 3, Concurrency: 20, Backoff: fast, Promote: 10 * time.Millisecond, Rescue: 50 * time.Millisecond})
		}
		queues = append(queues, q)
	}
	ctx, stop := context.WithTimeout(t.Context(), lasts)
	defer stop()
	var producing sync.WaitGroup
	for p := range 4 {
		producing.Go(func() { produceMixed(ctx, t, d, queues[p], p) })
	}
	producing.Wait()
	d.drained(t)
	for _, q := range queues {
		if err := q.Close(suite.Soon(t)); err != nil {
			t.Error(err)
		}
	}
	d.empty(t)
	if err := heard.any(isDeadlock); err != nil {
		t.Errorf("a deadlock was told of: %v", err)
	}
	after, _ := d.deadlocks(t, server)
	t.Logf("%d jobs, %d deadlocks that were repeated inside, and counted: %v; heard of: %v", did.done(), after-before, counted, heard.any(nil))
	d.deadlocksAreNoticed(t, server)
}

// produceMixed enqueues jobs of all sorts, in an order of keys of its own.
func produceMixed(ctx context.Context, t *testing.T, d *env, q *queue.Queue, producer int) {
	for n := 0; ctx.Err() == nil; n++ {
		if !d.wants(ctx) {
			time.Sleep(time.Millisecond)
			continue
		}
		tasks, _ := someTasks("", n%2 == 0, make(map[string]int)) // all producers to the same groups
		rand.Shuffle(len(tasks), func(i, j int) { tasks[i], tasks[j] = tasks[j], tasks[i] })
		if _, err := q.EnqueueMany(context.WithoutCancel(ctx), tasks); err != nil && !errors.Is(err, queue.ErrDuplicate) {
			t.Errorf("producer %d: %v", producer, err)
			return
		}
	}
}

// deadlocks is how many the server has met; counted: it counts them, and is nobody else's.
func (d *env) deadlocks(t *testing.T, server *devdb.Server) (n int64, counted bool) {
	t.Helper()
	if server == nil {
		return 0, false
	}
	query := map[devdb.Kind]string{
		devdb.Postgres: "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()",
		devdb.MySQL:    "SELECT COUNT FROM information_schema.INNODB_METRICS WHERE NAME = 'lock_deadlocks'",
		devdb.MariaDB:  "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'Innodb_deadlocks'",
	}[d.e.Kind]
	db, err := sql.Open(suite.DriverOf(d.e.Kind), d.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n, true
}

// deadlocksAreNoticed is the control: one that is made is known by its error, and counted.
func (d *env) deadlocksAreNoticed(t *testing.T, server *devdb.Server) {
	before, counted := d.deadlocks(t, server)
	d.exec(t, "CREATE TABLE suite_lock (id INT PRIMARY KEY)")
	d.exec(t, "INSERT INTO suite_lock VALUES (0), (1)")
	lock := func(tx *sql.Tx, id int) error {
		_, err := tx.ExecContext(suite.Soon(t), fmt.Sprintf("UPDATE suite_lock SET id = id WHERE id = %d", id))
		return err
	}
	var txs [2]*sql.Tx
	for i := range txs {
		tx, err := d.db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if txs[i] = tx; lock(tx, i) != nil {
			t.Fatalf("row %d is not locked", i)
		}
	}
	ends := make(chan error, 2)
	for i, tx := range txs {
		go func() {
			err := lock(tx, 1-i)
			_ = tx.Rollback()
			ends <- err
		}()
	}
	if one, other := wait(t, ends, "a deadlock"), wait(t, ends, "who won"); !isDeadlock(one) && !isDeadlock(other) {
		t.Errorf("%v, and %v: no deadlock would be noticed", one, other)
	}
	if counted {
		for ctx := suite.Soon(t); ctx.Err() == nil; {
			if n, _ := d.deadlocks(t, server); n > before {
				return
			}
		}
		t.Error("the server has not counted the deadlock")
	}
}

// listener keeps the errors that were told of.
type listener struct {
	slog.Handler
	mu   *sync.Mutex
	errs *[]error
}

func newListener() listener {
	return listener{slog.DiscardHandler, new(sync.Mutex), new([]error)}
}

func (l listener) trouble(doing string, err error) { l.hear(fmt.Errorf("%s: %w", doing, err)) }

func (l listener) hear(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	*l.errs = append(*l.errs, err)
}

func (l listener) Enabled(context.Context, slog.Level) bool { return true }

func (l listener) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += " " + a.String()
		return true
	})
	l.hear(errors.New(text))
	return nil
}

func (l listener) WithAttrs([]slog.Attr) slog.Handler { return l }

func (l listener) WithGroup(string) slog.Handler { return l }

// any is the first error that is such a one.
func (l listener) any(is func(error) bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, err := range *l.errs {
		if is == nil || is(err) {
			return err
		}
	}
	return nil
}
