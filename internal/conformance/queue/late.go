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

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/queue"
)

// A job whose transaction took its time stands, once it is there, before others that were claimed long ago. While there are always
// more of those than are asked for, it is found all the same.
func findsWhatWasCommittedLate(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	begun, late := make(chan int, 1<<20), make(chan struct{})
	var found atomic.Bool
	handle(t, q, "backlog", func(ctx context.Context, job queue.Job[int]) error {
		begun <- job.Args
		if found.Load() {
			return nil
		}
		_, err := q.Enqueue(ctx, queue.Task{Kind: "backlog", Args: job.Args + 1})
		return err
	})
	handle(t, q, "late", func(context.Context, queue.Job[int]) error {
		found.Store(true)
		close(late)
		return nil
	})
	tx, err := d.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.e.EnqueueTx(t.Context(), q, tx, queue.Task{Kind: "late", Args: 0}); err != nil {
		t.Fatal(err)
	}
	backlog := make([]queue.Task, 100)
	for i := range backlog {
		backlog[i] = queue.Task{Kind: "backlog", Args: 0}
	}
	if _, err := q.EnqueueMany(suite.Soon(t), backlog); err != nil {
		t.Fatal(err)
	}
	work(t, q, queue.WorkerOptions{Concurrency: 2, Batch: 2, Ahead: -1, Exchanges: 1})
	for wait(t, begun, "a job of the backlog") < 2 {
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	wait(t, late, "the job that was committed late")
	d.empty(t)
}

// Transactions enqueue early and commit late, while a worker works on a backlog from where it
// claimed last. Each late job begins within the second after which a claim looks from the start, or
// within 20 times what a claim took, if claims take long. The worker's own log tells how long they
// took, so that a busy machine makes no difference.
func findsLateJobsBesideABacklog(t *testing.T, d *env) {
	const backlog, late = 10_000, 20
	var mu sync.Mutex
	var longest time.Duration
	q := d.open(t, queue.Options{Observer: queue.Observer{Claimed: func(_ string, _ int, took time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		longest = max(longest, took)
	}}})
	var working atomic.Int64
	begun, commits := make([]time.Time, late), make([]time.Time, late)
	all := make(chan struct{}, late)
	handle(t, q, "backlog", func(context.Context, queue.Job[int]) error {
		working.Add(1)
		time.Sleep(2 * time.Millisecond) // so that the backlog lasts for longer than the late jobs wait
		return nil
	})
	handle(t, q, "late", func(_ context.Context, job queue.Job[int]) error {
		begun[job.Args] = time.Now()
		all <- struct{}{}
		return nil
	})
	txs := make([]*sql.Tx, late)
	for i := range txs {
		txs[i] = d.openTx(t)
		if _, err := d.e.EnqueueTx(t.Context(), q, txs[i], queue.Task{Kind: "late", Args: i}); err != nil {
			t.Fatal(err)
		}
	}
	tasks := make([]queue.Task, backlog)
	for i := range tasks {
		tasks[i] = queue.Task{Kind: "backlog", Args: i}
	}
	for some := range slices.Chunk(tasks, backlog/4) {
		if _, err := q.EnqueueMany(suite.Soon(t), some); err != nil {
			t.Fatal(err)
		}
	}
	work(t, q, queue.WorkerOptions{Concurrency: 8})
	for i, tx := range txs {
		suite.Until(t, "the worker goes on", func() bool { return working.Load() >= int64(500+100*i) })
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		commits[i] = time.Now()
	}
	for range late {
		wait(t, all, "a job that was committed late")
	}
	mu.Lock()
	defer mu.Unlock()
	var most time.Duration
	for i := range late {
		most = max(most, begun[i].Sub(commits[i]))
	}
	t.Logf("at most %v after the commit, %d jobs of the backlog had begun; the longest claim took %v", most, working.Load(), longest)
	if most > 2*time.Second+24*longest {
		t.Errorf("a late job began %v after its commit; the longest claim took %v", most, longest)
	}
}

// A claim that reaches the server, or is committed, when it has been looked for already, is looked for again: its jobs do not wait for the
// heartbeat, which comes after 20 minutes here. Each is struck at another call.
func findsAClaimThatComesLate(t *testing.T, d *env) {
	points := 8
	if d.e.Kind != devdb.Postgres {
		points = 20
	}
	host := d.open(t, queue.Options{})
	for k := 1; k <= points; k++ {
		enqueue(t, host, queue.Task{Queue: struckQueue, Kind: "note", Args: k})
		d.findsAClaim(t, k)
	}
	d.empty(t)
}

// struckQueue is of whose claims the name is a part.
const struckQueue = "struck"

// findsAClaim has a worker claim the one job that there is. Its first claim is struck at its call k, and what it held back gets there when
// it was looked for, once, and asked for again, by claims that pass the job over as others have it locked.
func (d *env) findsAClaim(t *testing.T, k int) {
	t.Helper()
	tx, err := d.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), "SELECT job_id FROM dblock_queue_ready FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	var dialer faultconn.Dialer
	struck, done := make(chan struct{}, 100), make(chan int)
	o := queue.Options{TTL: time.Hour, Timeout: time.Second, Observer: queue.Observer{Trouble: func(string, error) { struck <- struct{}{} }}}
	q, closePool, err := d.e.OpenOn(t.Context(), d.dsn, &dialer, o)
	if err != nil {
		t.Fatal(err)
	}
	handle(t, q, "note", record(done))
	dialer.ArmAt(struckQueue, k, faultconn.Late)
	stop := work(t, q, queue.WorkerOptions{Queue: struckQueue, Concurrency: 1, Poll: 300 * time.Millisecond, Rescue: -1, Promote: -1})
	select {
	case <-struck:
	case <-time.After(300 * time.Millisecond): // a claim has not so many calls
	}
	time.Sleep(60 * time.Millisecond) // it is looked for at once, and then after 100 ms
	_ = tx.Rollback()
	dialer.Release()
	if n := wait(t, done, fmt.Sprintf("the job whose claim was struck at call %d", k)); n != k {
		t.Errorf("job %d came, not %d", n, k)
	}
	dialer.Disarm()
	if err := stop(); err != nil {
		t.Error(err)
	}
	_ = q.Close(suite.Soon(t)) // it may be struck, too
	dialer.Release()
	closePool()
}
