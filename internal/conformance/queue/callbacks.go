package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/queue"
)

// unwrapped is an error whose Unwrap panics.
type unwrapped struct{ *suite.HostError }

func (unwrapped) Error() string { return "it panics when it is unwrapped" }

// hostEnds is how a function of the host ends. With modeHostExits those that dblock calls on its
// own goroutines call runtime.Goexit, as t.FailNow does.
func hostEnds(value any) {
	if os.Getenv(workerMode) == modeHostExits {
		runtime.Goexit()
	}
	panic(value)
}

// panickyLog is a log's handler that panics, or exits.
type panickyLog struct{ slog.Handler }

func (panickyLog) Enabled(context.Context, slog.Level) bool { return true }

func (panickyLog) Handle(context.Context, slog.Record) error { hostEnds("a log's handler"); return nil }

// calls are how often each function of an observer was called.
type calls struct {
	mu    sync.Mutex
	times map[string]int
}

func (c *calls) of(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.times[name]
}

// observer counts the calls of each function, which panics, or exits.
func (c *calls) observer() (o queue.Observer) {
	for i, v := 0, reflect.ValueOf(&o).Elem(); i < v.NumField(); i++ {
		name := v.Type().Field(i).Name
		v.Field(i).Set(reflect.MakeFunc(v.Field(i).Type(), func([]reflect.Value) []reflect.Value {
			c.mu.Lock()
			c.times[name]++
			c.mu.Unlock()
			hostEnds(suite.NoHostError)
			return nil
		}))
	}
	return o
}

// hostCodec is JSON, and fails for some strings.
type hostCodec struct{ queue.JSON }

func (c hostCodec) Encode(args any) ([]byte, error) {
	switch args {
	case "encode panics":
		panic(suite.NoHostError)
	case "encode fails":
		return nil, suite.NoHostError
	}
	return json.Marshal(args)
}

func (c hostCodec) Decode(data []byte, into any) error {
	switch {
	case strings.Contains(string(data), "decode panics"):
		panic("the codec")
	case strings.Contains(string(data), "decode fails"):
		return suite.NoHostError
	}
	return json.Unmarshal(data, into)
}

// hostile are the arguments of jobs whose handlers, or what is around them, do wrong. Each of them
// dies, with such a text.
var hostile = map[string]string{
	"returns": "HostError", "wraps": "HostError", "unwraps": "unwrapped", "panics": "HostError",
	"panics with": "HostError", "discards": "HostError", "middleware": "HostError", "middleware dies": "the middleware",
	"decode panics": "the codec", "decode fails": "HostError",
}

func handleHostile(_ context.Context, job queue.Job[string]) error {
	switch job.Args {
	case "returns":
		return suite.NoHostError
	case "wraps":
		return fmt.Errorf("around: %w", suite.NoHostError)
	case "unwraps":
		return unwrapped{}
	case "panics":
		panic(suite.NoHostError)
	case "panics with":
		panic(fmt.Errorf("around: %w", error(unwrapped{&suite.HostError{In: suite.NoHostError}})))
	case "discards":
		return queue.Discard(suite.NoHostError)
	case "cancels":
		return queue.Cancel(suite.NoHostError)
	case "snoozes":
		if time.Since(job.EnqueuedAt) < 50*time.Millisecond {
			return queue.Snooze(50 * time.Millisecond)
		}
	}
	return nil
}

func aroundHostile(ctx context.Context, job queue.Info, next queue.Next) error {
	err := next(ctx)
	switch _ = errors.Is(err, context.Canceled); job.Kind {
	case "middleware":
		return suite.NoHostError
	case "middleware dies":
		panic("the middleware")
	}
	return err
}

const mostFine = 20

// workAmidPanics works until each function of the observer that can be called was called, and the
// jobs that are fine are done. Then it prints that.
func (e Queue) workAmidPanics(dsn string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	// HeartbeatLate takes a server that fails: see EachFunctionOfTheHostIsGuarded.
	called := &calls{times: map[string]int{"HeartbeatLate": 1}}
	q, _, err := e.Open(ctx, dsn, queue.Options{TTL: 3 * time.Second, History: 1, Codec: hostCodec{},
		Log: slog.New(panickyLog{}), Label: "hostile", Observer: called.observer()})
	if err != nil {
		return err
	}
	var fine atomic.Int32
	err = errors.Join(
		queue.Handle(q, "fine", func(context.Context, queue.Job[int]) error { fine.Add(1); return nil }),
		queue.Handle(q, "note", nop),
		queue.Handle(q, "hostile", handleHostile),
		queue.Handle(q, "middleware", handleHostile),
		queue.Handle(q, "middleware dies", handleHostile),
		queue.Handle(q, "backoff", func(_ context.Context, job queue.Job[int]) error {
			if job.Attempt == 1 {
				return errBadDay
			}
			return nil
		}, queue.Backoff(func(int, error) time.Duration { hostEnds(suite.NoHostError); return 0 })),
		queue.Handle(q, "held", func(ctx context.Context, job queue.Job[int]) error {
			if called.of("Lost") > 0 {
				return nil
			}
			fmt.Println("held")
			<-ctx.Done() // its process is evicted, or was slow
			return queue.Snooze(time.Millisecond)
		}))
	for _, args := range []string{"encode panics", "encode fails"} {
		if _, bad := q.Enqueue(ctx, queue.Task{Kind: "hostile", Args: args}); !errors.Is(bad, dblock.ErrInvalid) {
			err = errors.Join(err, fmt.Errorf("%s: %w", args, bad))
		}
	}
	if err = errors.Join(err, enqueueHostile(ctx, q)); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() {
		ended <- q.Work(ctx, queue.WorkerOptions{
			Stats: 100 * time.Millisecond, Middleware: []queue.Middleware{aroundHostile}, Rescue: 100 * time.Millisecond,
			Backoff: func(int, error) time.Duration { hostEnds("the worker's backoff"); return 0 },
		})
	}()
	held := false
	for missing := []string{""}; len(missing) > 0 || fine.Load() < mostFine; { // one whose end was refused runs again
		select {
		case err := <-ended:
			return fmt.Errorf("work ended: %w; not called: %v", err, missing)
		case <-time.After(20 * time.Millisecond):
		}
		missing = nil
		for i, of := 0, reflect.TypeFor[queue.Observer](); i < of.NumField(); i++ {
			if called.of(of.Field(i).Name) == 0 {
				missing = append(missing, of.Field(i).Name)
			}
		}
		if !held && called.of("Dead") >= len(hostile) { // now it may be evicted: no attempt of those is lost by it
			if _, err := q.Enqueue(ctx, queue.Task{Kind: "held"}); err != nil {
				return err
			}
			held = true
		}
	}
	if err := queue.Handle(q, "unknown", nop); err != nil {
		return err
	}
	fmt.Println("all went on")
	return <-ended
}

func enqueueHostile(ctx context.Context, q *queue.Queue) (err error) {
	tasks := append(repeat(mostFine, queue.Task{Kind: "fine"}), queue.Task{Kind: "backoff"}, queue.Task{Kind: "unknown"},
		queue.Task{Kind: "hostile", Args: "cancels"}, queue.Task{Kind: "hostile", Args: "snoozes"})
	for what := range hostile {
		tasks = append(tasks, queue.Task{Kind: hostileKind(what), Args: what, MaxAttempts: 2})
	}
	for _, task := range tasks {
		_, failed := q.Enqueue(ctx, task)
		err = errors.Join(err, failed)
	}
	return err
}

func hostileKind(what string) string {
	if strings.HasPrefix(what, "middleware") {
		return what
	}
	return "hostile"
}

// Functions of the host panic, and return a nil pointer as an error. The process lives, each job
// that does so dies with a reason, and all other work goes on. It runs in a child process, which a
// panic would end.
func theHostMayPanic(t *testing.T, d *env) { hostEndsBy(t, d, modeHostPanics) }

// The same if the observers, the backoffs and the log end their goroutines.
func theHostMayExit(t *testing.T, d *env) { hostEndsBy(t, d, modeHostExits) }

func hostEndsBy(t *testing.T, d *env, mode string) {
	q := d.open(t, queue.Options{})
	d.killed(t, q, queue.Task{Kind: "note", Args: 1}) // its job is to be rescued
	host := d.startWorker(t, mode)
	for host.Lines.Scan() && host.Lines.Text() == "held" {
		d.exec(t, "DELETE FROM dblock_member WHERE label = 'hostile'") // so that the end of a job is refused
	}
	require.Equal(t, "all went on", host.Lines.Text())
	d.until(t, "SELECT count(*) FROM dblock_queue_dead", int64(len(hostile)))
	d.empty(t)
	for what, want := range hostile {
		says := d.text(t, fmt.Sprintf("SELECT last_error FROM dblock_queue_dead WHERE kind = '%s' AND "+
			d.sql("convert_from(payload, 'UTF8')", "payload")+" = '%q'", hostileKind(what), what))
		assert.Contains(t, says, want, what)
	}
	enqueue(t, q, queue.Task{Kind: "fine", Args: 1})
	d.empty(t)
	host.Kill()
}
