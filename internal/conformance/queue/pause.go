package queue

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/queue"
)

// pausePoint is a place between the claim of a job and its handler.
type pausePoint struct {
	task  queue.Task
	text  string // of the statement before which the queue is paused; empty: a callback pauses it
	inTx  bool   // the handler has a transaction
	codec bool   // decoding pauses the queue
	late  bool   // the middleware arms the dialer
}

// A queue is paused at each place between the claim of a job and its handler. Once Pause has
// returned, no job begins. The jobs keep their places, and have had no attempt.
func aPausedJobDoesNotBegin(t *testing.T, d *env) {
	begin := "SAVEPOINT dblock_queue_job"
	if d.e.Kind == devdb.Postgres {
		begin = "begin"
	}
	once := queue.Task{Args: "", MaxAttempts: 1}
	for name, at := range map[string]pausePoint{
		"payloads are read":         {task: queue.Task{Args: strings.Repeat("x", 64<<10)}, text: "name: ReadPayloads"},
		"a beginning is recorded":   {task: once, text: "name: BeginJobs"},
		"arguments are decoded":     {task: queue.Task{Args: ""}, codec: true},
		"a middleware takes long":   {task: once},
		"a transaction begins":      {task: queue.Task{Args: 0, MaxAttempts: 1}, text: begin, inTx: true, late: true},
		"a middleware, before a tx": {task: queue.Task{Args: 0}, inTx: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at.check(t, d.e.env(t))
		})
	}
}

// pauser pauses a queue once. It is also a codec that does so when it decodes.
type pauser struct {
	queue.JSON
	once   sync.Once
	q      *queue.Queue
	err    error
	paused atomic.Bool // and not resumed
}

func (p *pauser) pause() {
	p.once.Do(func() {
		p.err = p.q.Pause(context.Background(), "")
		p.paused.Store(true)
	})
}

func (p *pauser) Decode(data []byte, into any) error {
	p.pause()
	return p.JSON.Decode(data, into)
}

func (at pausePoint) check(t *testing.T, d *env) {
	const jobs = 8
	dialer := &faultconn.Dialer{}
	q := d.openOn(t, dialer, queue.Options{})
	p := &pauser{q: q}
	around := func(ctx context.Context, _ queue.Info, next queue.Next) error {
		switch {
		case at.late:
			dialer.HookAt(at.text, p.pause)
		case at.text == "" && !at.codec:
			p.pause()
		}
		_ = next(ctx)
		return nil // which would end the job
	}
	begun := make(chan int, jobs) // attempts
	note := func(job queue.Info) error {
		assert.False(t, p.paused.Load(), "a job begins after the pause")
		begun <- job.Attempt
		return nil
	}
	var opts []queue.HandlerOption
	if at.codec {
		opts = append(opts, queue.DecodeWith(p))
	}
	if at.inTx {
		handleTx(t, d, q, "note", func(_ context.Context, _ HandlerTx, job queue.Job[int]) error {
			return note(job.Info)
		}, opts...)
	} else {
		handle(t, q, "note", func(_ context.Context, job queue.Job[string]) error { return note(job.Info) }, opts...)
	}
	tasks := repeat(jobs, queue.Task{Kind: "note", MaxAttempts: at.task.MaxAttempts})
	for i := range tasks {
		tasks[i].Args = at.task.Args
	}
	made := enqueueMany(t, q, tasks)
	if at.text != "" && !at.late {
		dialer.HookAt(at.text, p.pause)
	}
	o := queue.WorkerOptions{Middleware: []queue.Middleware{around}, Rescue: -1, Promote: -1}
	if at.late { // another job may begin meanwhile
		o.Concurrency = 1
	}
	stop := work(t, q, o)
	suite.Until(t, "the queue is paused", func() bool { return p.paused.Load() || len(begun) > 0 })
	(&stranded{q: q, rest: made}).ready(t)
	d.until(t, "SELECT count(*) FROM dblock_queue_claim", 0)
	d.until(t, "SELECT count(*) FROM dblock_queue_job WHERE begun > attempt", 0)
	p.paused.Store(false)
	require.NoError(t, p.err)
	require.NoError(t, q.Resume(suite.Soon(t), ""))
	for range jobs {
		assert.Equal(t, 1, wait(t, begun, "a job that begins after the pause"))
	}
	d.empty(t)
	assert.NoError(t, stop())
}
