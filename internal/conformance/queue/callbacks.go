package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/queue"
)

// unwrapped is an error whose Unwrap panics.
type unwrapped struct{ *suite.HostError }

func (unwrapped) Error() string { return "it panics when it is unwrapped" }

// hostEnds is how a function of the host ends. With hostExits those that dblock calls on its
// own goroutines call runtime.Goexit, as t.FailNow does.
func hostEnds(value any) {
	if os.Getenv(hostMode) == hostExits {
		runtime.Goexit()
	}
	panic(value)
}

// panickyLog is a log's handler that panics, or exits.
type panickyLog struct{ slog.Handler }

func (panickyLog) Enabled(context.Context, slog.Level) bool { return true }

func (panickyLog) Handle(context.Context, slog.Record) error { hostEnds("a log's handler"); return nil }

// hostObserver is an observer whose functions panic, or exit.
func hostObserver() (o queue.Observer) {
	for i, v := 0, reflect.ValueOf(&o).Elem(); i < v.NumField(); i++ {
		v.Field(i).Set(reflect.MakeFunc(v.Field(i).Type(), func([]reflect.Value) []reflect.Value {
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

// A process that the host's functions may end is this test binary again, with these variables.
const (
	hostDSN    = "DBLOCK_TEST_QUEUE_HOST"
	hostKind   = "DBLOCK_TEST_QUEUE_HOST_KIND"
	hostMode   = "DBLOCK_TEST_QUEUE_HOST_MODE"
	hostPanics = "host panics" // the host's functions panic
	hostExits  = "host exits"  // or end their goroutines

	mostFine = 20
)

// Main does the work of a child process, and then never returns. Call it first in TestMain.
func (e Queue) Main() {
	if dsn := os.Getenv(hostDSN); dsn != "" {
		e.Kind = devdb.Kind(os.Getenv(hostKind))
		fmt.Fprintln(os.Stderr, "host:", e.workAmidPanics(dsn))
		os.Exit(1)
	}
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
func (mainTests) TheHostMayPanic(t *testing.T, d *env) { hostEndsBy(t, d, hostPanics) }

// The same if the observers, the backoffs and the log end their goroutines.
func (mainTests) TheHostMayExit(t *testing.T, d *env) { hostEndsBy(t, d, hostExits) }

// workAmidPanics works until the process is killed. It prints when the jobs that are fine are done.
func (e Queue) workAmidPanics(dsn string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	q, _, err := e.Open(ctx, dsn, queue.Options{TTL: 10 * time.Second, History: 1, Codec: hostCodec{},
		Log: slog.New(panickyLog{}), Observer: hostObserver()})
	if err != nil {
		return err
	}
	var fine atomic.Int32
	err = errors.Join(
		queue.Handle(q, "fine", func(context.Context, queue.Job[int]) error {
			if fine.Add(1) == mostFine {
				fmt.Println("all went on")
			}
			return nil
		}),
		queue.Handle(q, "note", nop),
		queue.Handle(q, "hostile", handleHostile),
		queue.Handle(q, "middleware", handleHostile),
		queue.Handle(q, "middleware dies", handleHostile),
		queue.Handle(q, "backoff", func(_ context.Context, job queue.Job[int]) error {
			if job.Attempt == 1 {
				return errBadDay
			}
			return nil
		}, queue.Backoff(func(int, error) time.Duration { hostEnds(suite.NoHostError); return 0 })))
	for _, args := range []string{"encode panics", "encode fails"} {
		if _, bad := q.Enqueue(ctx, queue.Task{Kind: "hostile", Args: args}); !errors.Is(bad, dblock.ErrInvalid) {
			err = errors.Join(err, fmt.Errorf("%s: %w", args, bad))
		}
	}
	tasks := []queue.Task{{Kind: "backoff"}, {Kind: "unknown"}, {Kind: "hostile", Args: "cancels"},
		{Kind: "hostile", Args: "snoozes"}}
	for what := range hostile {
		tasks = append(tasks, queue.Task{Kind: hostileKind(what), Args: what, MaxAttempts: 2})
	}
	for _, task := range append(tasks, repeat(mostFine, queue.Task{Kind: "fine", Priority: 1})...) {
		err = errors.Join(err, suite.Second(q.Enqueue(ctx, task)))
	}
	if err != nil {
		return err
	}
	return q.Work(ctx, queue.WorkerOptions{
		Stats: 100 * time.Millisecond, Middleware: []queue.Middleware{aroundHostile}, Rescue: 100 * time.Millisecond,
		Backoff: func(int, error) time.Duration { hostEnds("the worker's backoff"); return 0 },
	})
}

func hostEndsBy(t *testing.T, d *env, mode string) {
	q := d.open(t, queue.Options{})
	d.killed(t, q, queue.Task{Kind: "note", Args: 1}) // its job is to be rescued
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), hostDSN+"="+d.DSN, hostKind+"="+string(d.Kind), hostMode+"="+mode)
	host := suite.StartChild(t, cmd)
	host.Says(t, "all went on")
	d.Until(t, "SELECT count(*) FROM dblock_queue_dead", int64(len(hostile)))
	d.Until(t, "SELECT count(*) FROM dblock_queue_job WHERE kind <> 'unknown'", 0)
	for what, want := range hostile {
		says := d.Text(t, fmt.Sprintf("SELECT last_error FROM dblock_queue_dead WHERE kind = '%s' AND "+
			d.sql("convert_from(payload, 'UTF8')", "payload")+" = '%q'", hostileKind(what), what))
		assert.Contains(t, says, want, what)
	}
	enqueue(t, q, queue.Task{Kind: "fine", Args: 1})
	d.Until(t, "SELECT count(*) FROM dblock_queue_job WHERE kind <> 'unknown'", 0)
	host.Kill()
}
