package queue

import (
	"context"
	"encoding/json"
	"runtime"
	"strings"
	"sync"
	"testing"
	"weak"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/queue"
)

// seenPayloads is JSON. It has weak pointers to what was decoded.
type seenPayloads struct {
	mu   sync.Mutex
	seen []weak.Pointer[byte]
}

func (*seenPayloads) Encode(v any) ([]byte, error) { return json.Marshal(v) }

func (c *seenPayloads) Decode(data []byte, v any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = append(c.seen, weak.Make(&data[0]))
	return json.Unmarshal(data, v)
}

// kept counts the payloads that are in memory still.
func (c *seenPayloads) kept() (n int) {
	runtime.GC()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.seen {
		if p.Value() != nil {
			n++
		}
	}
	return n
}

// aLongJobKeepsNoPayloads has many jobs end that were claimed together with one that goes on: their payloads are freed.
func aLongJobKeepsNoPayloads(t *testing.T, d *env) {
	const jobs = 60
	payloads := &seenPayloads{}
	q := d.open(t, queue.Options{Codec: payloads})
	begun, quick, long := make(chan struct{}, jobs), make(chan struct{}), make(chan struct{})
	end := sync.OnceFunc(func() { close(long) })
	defer end()
	handle(t, q, "note", func(_ context.Context, job queue.Job[string]) error {
		begun <- struct{}{}
		if strings.HasPrefix(job.Args, "long") {
			<-long
		}
		<-quick
		return nil
	})
	tasks := make([]queue.Task, jobs)
	for i := range tasks {
		tasks[i] = queue.Task{Kind: "note", Args: strings.Repeat("quick ", 2000)}
	}
	tasks[0].Args = "long"
	if _, err := q.EnqueueMany(suite.Soon(t), tasks); err != nil {
		t.Fatal(err)
	}
	work(t, q, queue.WorkerOptions{Concurrency: jobs})
	for range jobs {
		wait(t, begun, "a job")
	}
	if n := d.count(t, "SELECT count(DISTINCT claim_id) FROM dblock_queue_claim"); n != 1 {
		t.Fatalf("the jobs are of %d claims, want 1", n)
	}
	if n := payloads.kept(); n < jobs/2 {
		t.Errorf("%d of %d payloads are in memory while the jobs run: the test shows nothing", n, jobs)
	}
	close(quick)
	suite.Until(t, "all jobs but one have ended", func() bool { return d.count(t, "SELECT count(*) FROM dblock_queue_job") == 1 })
	suite.Until(t, "their payloads are freed", func() bool { return payloads.kept() <= 1 })
	end()
	d.empty(t)
}
