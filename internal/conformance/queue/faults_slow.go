package queue

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/queue"
)

const (
	slowRate    = 5 << 20 // bytes a second of each connection
	slowPayload = 200 << 10
	slowTTL     = 2 * time.Second
	slowTimeout = 200 * time.Millisecond // 5 payloads take as long
	slowBacklog = 50
)

// Two processes do jobs of 200 KiB over a network of 5 MB/s, with a Timeout that is shorter than what a claim takes. Every now and then all
// connections of one are cut. Each job is done, and none stays claimed without being begun for longer than the TTL and 5 s. The server's
// own table says what is claimed, the handlers say what has begun.
func aSlowNetworkStrandsNoJob(t *testing.T, d *env) {
	lasts := soakTime(t, 5*time.Second)
	var begun once
	var dialers []*faultconn.Dialer
	for range 2 {
		dialer := &faultconn.Dialer{Rate: slowRate}
		q, closePool, err := d.e.OpenOn(t.Context(), d.dsn, dialer, queue.Options{Timeout: slowTimeout, TTL: slowTTL})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = q.Close(context.Background()) // it may have lost its connection
			closePool()
		})
		handle(t, q, "large", func(_ context.Context, job queue.Job[string]) error {
			if len(job.Args) != slowPayload {
				t.Errorf("a payload of %d bytes", len(job.Args))
			}
			begun.did(job.ID)
			return nil
		})
		work(t, q, queue.WorkerOptions{Promote: 100 * time.Millisecond, Rescue: 500 * time.Millisecond})
		dialers = append(dialers, dialer)
	}
	host := d.open(t, queue.Options{})
	w := waiting{begun: &begun, since: make(map[queue.ID]time.Time)}
	var all []queue.ID
	end := time.Now().Add(lasts)
	cut := time.Now().Add(time.Second)
	for n := 0; ; n++ {
		left := d.count(t, "SELECT count(*) FROM dblock_queue_job")
		if time.Now().After(end) && left == 0 {
			break
		}
		if time.Now().After(end.Add(2 * time.Minute)) {
			t.Fatalf("%d jobs are left", left)
		}
		if time.Now().Before(end) && left < slowBacklog {
			all = append(all, enqueue(t, host, queue.Task{Kind: "large", Args: strings.Repeat(string(rune('A'+n%26)), slowPayload)})...)
		} else {
			time.Sleep(20 * time.Millisecond)
		}
		if time.Now().After(cut) {
			dialers[n%2].CloseAll()
			cut = time.Now().Add(time.Second)
		}
		w.look(t, d)
	}
	if err := begun.check(all, false); err != nil {
		t.Error(err)
	}
	t.Logf("%d jobs; the longest stayed claimed without being begun for %v", len(all), w.longest)
	if len(all) < slowBacklog && os.Getenv(suite.EnvSoak) != "" {
		t.Error("few jobs were done: this shows too little")
	}
	d.empty(t)
}

// waiting is since when jobs are claimed that have not begun.
type waiting struct {
	begun   *once
	since   map[queue.ID]time.Time
	longest time.Duration
}

// look asks the server which jobs are claimed.
func (w *waiting) look(t *testing.T, d *env) {
	t.Helper()
	query := "SELECT job_id FROM dblock_queue_claim"
	if d.e.Kind == devdb.Postgres {
		query = "SELECT uuid_send(unnest(job_ids)) FROM dblock_queue_claim"
	}
	rows, err := d.db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	now := time.Now()
	claimed := make(map[queue.ID]time.Time)
	for rows.Next() {
		var bytes []byte
		if err := rows.Scan(&bytes); err != nil {
			t.Fatal(err)
		}
		id := queue.ID(bytes)
		if w.begun.hasDone(id) {
			continue
		}
		if claimed[id] = now; !w.since[id].IsZero() {
			claimed[id] = w.since[id]
		}
		if waits := now.Sub(claimed[id]); waits > w.longest {
			if w.longest = waits; waits > slowTTL+5*time.Second {
				t.Fatalf("job %v is claimed, and has not begun for %v", id, waits)
			}
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	w.since = claimed
}

func (o *once) hasDone(id queue.ID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.times[id] > 0
}
