package queue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/queue"
)

// saysDeadlock knows a deadlock by what the servers say of it.
func saysDeadlock(text string) bool {
	return strings.Contains(text, "40P01") || strings.Contains(text, "Error 1213")
}

// deadlocks keeps what was written that says a deadlock.
type deadlocks struct {
	sync.Mutex
	said []string
}

func (l *deadlocks) Write(text []byte) (int, error) {
	l.Lock()
	defer l.Unlock()
	if saysDeadlock(string(text)) {
		l.said = append(l.said, string(text))
	}
	return len(text), nil
}

// Eight workers and four producers, for 3 s or as long as DBLOCK_SOAK says, with jobs of all sorts.
// No deadlock reaches a producer, an observer or the log.
func nobodyMeetsADeadlock(t *testing.T, d *env) {
	ctx, stop := context.WithTimeout(t.Context(), faultsLast(t, 3*time.Second))
	defer stop()
	var did once
	var reports deadlocks
	o := queue.Options{Log: slog.New(slog.NewTextHandler(&reports, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	o.Observer.Trouble = func(doing string, err error) { _, _ = fmt.Fprintf(&reports, "%s: %v", doing, err) }
	var producing sync.WaitGroup
	for p := range 4 {
		q := d.open(t, o)
		handle(t, q, "note", func(_ context.Context, job queue.Job[int]) error {
			did.did(job.ID)
			return suite.Second(sayAtRandom())
		})
		for range 2 {
			work(t, q, queue.WorkerOptions{Batch: 20, Exchanges: 3, Concurrency: 20, Backoff: fast,
				Promote: 10 * time.Millisecond, Rescue: 50 * time.Millisecond})
		}
		producing.Go(func() { produceMixed(ctx, t, d, q, p) })
	}
	producing.Wait()
	d.drained(t)
	d.empty(t)
	reports.Lock()
	assert.Empty(t, reports.said)
	reports.Unlock()
	t.Logf("%d jobs", did.done())
	d.deadlocksAreNoticed(t, &reports)
}

// produceMixed enqueues jobs of all sorts, in an order of keys of its own.
func produceMixed(ctx context.Context, t *testing.T, d *env, q *queue.Queue, producer int) {
	for n := 0; ctx.Err() == nil; n++ {
		if !d.fewWaitIn(ctx) {
			time.Sleep(time.Millisecond)
			continue
		}
		tasks, _ := mixedTasks("", n%2 == 0, make(map[string]int)) // all producers to the same groups
		rand.Shuffle(len(tasks), func(i, j int) { tasks[i], tasks[j] = tasks[j], tasks[i] })
		_, err := q.EnqueueMany(context.WithoutCancel(ctx), tasks)
		if err != nil && !errors.Is(err, queue.ErrDuplicate) {
			t.Errorf("producer %d: %v", producer, err)
			return
		}
	}
}

// deadlocksAreNoticed is the control: two transactions lock the same rows in different orders.
func (d *env) deadlocksAreNoticed(t *testing.T, reports *deadlocks) {
	d.exec(t, "CREATE TABLE suite_lock (id INT PRIMARY KEY)", "INSERT INTO suite_lock VALUES (0), (1)")
	lock := func(tx *sql.Tx, id int) error {
		return suite.Second(tx.ExecContext(suite.Soon(t), fmt.Sprintf("UPDATE suite_lock SET id = id WHERE id = %d", id)))
	}
	txs := []*sql.Tx{d.openTx(t), d.openTx(t)}
	for i, tx := range txs {
		require.NoError(t, lock(tx, i))
	}
	ends := make(chan struct{}, 2)
	for i, tx := range txs {
		go func() {
			_, _ = fmt.Fprint(reports, lock(tx, 1-i))
			_ = tx.Rollback()
			ends <- struct{}{}
		}()
	}
	wait(t, ends, "deadlock")
	wait(t, ends, "other transaction")
	assert.Len(t, reports.said, 1, "a deadlock that is made is noticed")
}

const slowTTL = 2 * time.Second

// Two processes run jobs of 200 KiB over a network of 5 MB/s. Timeout is as short as 5 payloads
// take, and shorter than a claim. Now and then all connections of one are cut. Each job is done,
// and none stays claimed without being begun for longer than the TTL and 5 s. The server's own
// table says what is claimed, the handlers say what has begun.
func aSlowNetworkStrandsNoJob(t *testing.T, d *env) {
	const payload, backlog = 200 << 10, 50
	lasts := faultsLast(t, 3*time.Second)
	w := unbegun{since: make(map[queue.ID]time.Time)}
	var dialers []*faultconn.Dialer
	for range 2 {
		dialer := &faultconn.Dialer{Rate: 5 << 20}
		q := d.openOn(t, dialer, queue.Options{Timeout: 200 * time.Millisecond, TTL: slowTTL})
		handle(t, q, "large", func(_ context.Context, job queue.Job[string]) error {
			assert.Len(t, job.Args, payload)
			w.begun.did(job.ID)
			return nil
		})
		work(t, q, queue.WorkerOptions{Promote: 100 * time.Millisecond, Rescue: 500 * time.Millisecond})
		dialers = append(dialers, dialer)
	}
	host := d.open(t, queue.Options{})
	var all []queue.ID
	end, cut := time.Now().Add(lasts), time.Now().Add(time.Second)
	for n := 0; ; n++ {
		left := d.count(t, "SELECT count(*) FROM dblock_queue_job")
		if time.Now().After(end) && left == 0 {
			break
		}
		require.WithinRange(t, time.Now(), time.Time{}, end.Add(2*time.Minute), "%d jobs are left", left)
		if time.Now().Before(end) && left < backlog {
			large := strings.Repeat(string(rune('A'+n%26)), payload)
			all = append(all, enqueue(t, host, queue.Task{Kind: "large", Args: large})...)
		} else {
			time.Sleep(20 * time.Millisecond)
		}
		if time.Now().After(cut) {
			dialers[n%2].CloseAll()
			cut = time.Now().Add(time.Second)
		}
		w.look(t, d)
	}
	assert.NoError(t, w.begun.check(all, false))
	t.Logf("%d jobs; the longest stayed claimed without being begun for %v", len(all), w.longest)
	assert.True(t, len(all) >= backlog || os.Getenv(suite.EnvSoak) == "", "few jobs were done: this shows too little")
	d.empty(t)
}

// unbegun is since when jobs are claimed that have not begun.
type unbegun struct {
	begun   once
	since   map[queue.ID]time.Time
	longest time.Duration
}

// look asks the server which jobs are claimed.
func (w *unbegun) look(t *testing.T, d *env) {
	t.Helper()
	claimed := suite.ValuesOf[[]byte](t, d.suiteDB(),
		d.sql("SELECT uuid_send(unnest(job_ids)) FROM dblock_queue_claim", "SELECT job_id FROM dblock_queue_claim"))
	now, since := time.Now(), make(map[queue.ID]time.Time)
	for _, raw := range claimed {
		id := queue.ID(raw)
		if w.begun.all([]queue.ID{id}) {
			continue
		}
		if since[id] = now; !w.since[id].IsZero() {
			since[id] = w.since[id]
		}
		w.longest = max(w.longest, now.Sub(since[id]))
		require.Less(t, now.Sub(since[id]), slowTTL+5*time.Second, "job %v is claimed, and has not begun", id)
	}
	w.since = since
}
