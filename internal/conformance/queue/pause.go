package queue

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/queue"
)

// pauseAt is a place between the claim of a job and its handler.
type pauseAt struct {
	task  queue.Task
	text  string // of the statement before which the queue is paused; empty: a callback of the host pauses it
	inTx  bool   // the handler has a transaction
	codec bool   // decoding pauses the queue
	late  bool   // the middleware arms the dialer
}

// aPausedJobDoesNotBegin pauses a queue at each place between the claim of a job and its handler. Once Pause has returned, no job begins.
// The jobs keep their places, and have had no attempt.
func aPausedJobDoesNotBegin(t *testing.T, d *env) {
	begin := "SAVEPOINT dblock_queue_job"
	if d.e.Kind == devdb.Postgres {
		begin = "begin"
	}
	for name, at := range map[string]pauseAt{
		"payloads are read":         {task: queue.Task{Args: strings.Repeat("x", 64<<10)}, text: "name: ReadPayloads"},
		"a beginning is recorded":   {task: queue.Task{Args: "", MaxAttempts: 1}, text: "name: BeginJobs"},
		"arguments are decoded":     {task: queue.Task{Args: ""}, codec: true},
		"a middleware takes long":   {task: queue.Task{Args: "", MaxAttempts: 1}},
		"a transaction begins":      {task: queue.Task{Args: 0, MaxAttempts: 1}, text: begin, inTx: true, late: true},
		"a middleware, before a tx": {task: queue.Task{Args: 0}, inTx: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at.check(t, d.e.env(t))
		})
	}
}

// pauser pauses a queue once.
type pauser struct {
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

// pausingCodec pauses the queue when the first job is decoded.
type pausingCodec struct {
	queue.Codec
	p *pauser
}

func (c pausingCodec) Decode(data []byte, into any) error {
	c.p.pause()
	return c.Codec.Decode(data, into)
}

func (at pauseAt) check(t *testing.T, d *env) {
	const jobs = 8
	dialer, p := &faultconn.Dialer{}, &pauser{}
	q, closePool, err := d.e.OpenOn(t.Context(), d.dsn, dialer, queue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = q.Close(ctx)
		closePool()
	})
	p.q = q
	var refused atomic.Int32
	around := func(ctx context.Context, _ queue.Info, next queue.Next) error {
		switch {
		case at.late:
			dialer.HookAt(at.text, p.pause)
		case at.text == "" && !at.codec:
			p.pause()
		}
		if next(ctx) != nil {
			refused.Add(1)
		}
		return nil // which would end the job
	}
	begun := make(chan int, jobs) // attempts
	note := func(job queue.Info) error {
		if p.paused.Load() {
			t.Errorf("job %v has begun: the queue was paused before", job.ID)
		}
		begun <- job.Attempt
		return nil
	}
	var opts []queue.HandlerOption
	if at.codec {
		opts = append(opts, queue.DecodeWith(pausingCodec{queue.JSON{}, p}))
	}
	if at.inTx {
		handleTx(t, d, q, "note", func(_ context.Context, _ HandlerTx, job queue.Job[int]) error { return note(job.Info) }, opts...)
	} else {
		handle(t, q, "note", func(_ context.Context, job queue.Job[string]) error { return note(job.Info) }, opts...)
	}
	tasks := make([]queue.Task, jobs)
	for i := range tasks {
		tasks[i] = at.task
		tasks[i].Kind = "note"
	}
	made, err := q.EnqueueMany(suite.Soon(t), tasks)
	if err != nil {
		t.Fatal(err)
	}
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
	t.Logf("a middleware was around %d jobs that did not begin", refused.Load())
	p.paused.Store(false)
	if err := errors.Join(p.err, q.Resume(suite.Soon(t), "")); err != nil {
		t.Fatal(err)
	}
	for range jobs {
		if attempt := wait(t, begun, "a job begins after the pause"); attempt != 1 {
			t.Errorf("attempt %d", attempt)
		}
	}
	d.empty(t)
	if err := stop(); err != nil {
		t.Error(err)
	}
}
