package queue

import (
	"context"
	"encoding/json"
	"runtime"
	"strings"
	"sync"
	"testing"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/queue"
)

// weakCodec is JSON. It has weak pointers to the payloads that were decoded.
type weakCodec struct {
	mu   sync.Mutex
	seen []weak.Pointer[byte]
}

func (*weakCodec) Encode(v any) ([]byte, error) { return json.Marshal(v) }

func (c *weakCodec) Decode(data []byte, v any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = append(c.seen, weak.Make(&data[0]))
	return json.Unmarshal(data, v)
}

// kept counts the payloads that are in memory.
func (c *weakCodec) kept() (n int) {
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

// Many jobs of a claim end, and one goes on. The payloads of the others are freed.
func aLongJobKeepsNoPayloads(t *testing.T, d *env) {
	const jobs = 60
	payloads := &weakCodec{}
	q := d.open(t, queue.Options{Codec: payloads})
	begun, quick, long := make(chan struct{}, jobs), make(chan struct{}), make(chan struct{})
	end := sync.OnceFunc(func() { close(long) })
	defer end()
	handle(t, q, "note", func(_ context.Context, job queue.Job[string]) error {
		begun <- struct{}{}
		if job.Args == "long" {
			<-long
		}
		<-quick
		return nil
	})
	tasks := repeat(jobs, queue.Task{Kind: "note"})
	for i := range tasks {
		tasks[i].Args = strings.Repeat("quick ", 2000)
	}
	tasks[0].Args = "long"
	enqueueMany(t, q, tasks)
	work(t, q, queue.WorkerOptions{Concurrency: jobs})
	for range jobs {
		wait(t, begun, "a job")
	}
	require.EqualValues(t, 1, d.count(t, "SELECT count(DISTINCT claim_id) FROM dblock_queue_claim"), "claims")
	assert.Greater(t, payloads.kept(), jobs/2, "payloads in memory while the jobs run")
	close(quick)
	d.until(t, "SELECT count(*) FROM dblock_queue_job", 1)
	suite.Until(t, "the payloads are freed", func() bool { return payloads.kept() <= 1 })
	end()
	d.empty(t)
}
