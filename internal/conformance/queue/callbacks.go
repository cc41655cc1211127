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

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/queue"
)

// workerPanics has a worker process be one whose host panics wherever it is called. If it is "exit", the functions that dblock calls
// on its own goroutines call runtime.Goexit instead, as t.FailNow does.
const workerPanics = "DBLOCK_TEST_WORKER_PANICS"

// hostEnds is how a function of that host ends.
func hostEnds(value any) {
	if os.Getenv(workerPanics) == "exit" {
		runtime.Goexit()
	}
	panic(value)
}

// unwrapped is one whose text is fine, and whose Unwrap panics.
type unwrapped struct{ *suite.HostError }

func (unwrapped) Error() string { return "it panics when it is unwrapped" }

// panicky is a log's handler that panics, or exits.
type panicky struct{ slog.Handler }

func (panicky) Enabled(context.Context, slog.Level) bool { return true }

func (panicky) Handle(context.Context, slog.Record) error { hostEnds("a log's handler"); return nil }

// panicsEverywhere has each function of a struct count its calls and panic, or exit.
func panicsEverywhere[T any](calls func(field string)) (funcs T) {
	v := reflect.ValueOf(&funcs).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Func {
			name := v.Type().Field(i).Name
			f.Set(reflect.MakeFunc(f.Type(), func([]reflect.Value) []reflect.Value {
				calls(name)
				hostEnds(suite.NoHostError)
				return nil
			}))
		}
	}
	return funcs
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

// hostile are the jobs whose handlers, or what is around them, do wrong. Each of them dies, with such a text.
var hostile = map[string]string{
	"returns":         "HostError",
	"wraps":           "HostError",
	"unwraps":         "unwrapped",
	"panics":          "HostError",
	"panics with":     "HostError",
	"discards":        "HostError",
	"middleware":      "HostError",
	"middleware dies": "the middleware",
	"decode panics":   "the codec",
	"decode fails":    "HostError",
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

// workAmidPanics works until each of the observer's functions was called that can be, and the jobs that are fine are done. Then it says so.
func (e Queue) workAmidPanics(dsn string) error {
	var mu sync.Mutex
	calls := map[string]int{"HeartbeatLate": 1} // that takes a server that fails: see EachFunctionOfTheHostIsGuarded
	o := queue.Options{TTL: 3 * time.Second, History: 1, Codec: hostCodec{}, Log: slog.New(panicky{}), Label: "hostile"}
	o.Observer = panicsEverywhere[queue.Observer](func(field string) {
		mu.Lock()
		defer mu.Unlock()
		calls[field]++
	})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	q, _, err := e.Open(ctx, dsn, o)
	if err != nil {
		return err
	}
	var fine atomic.Int32
	handlers := []error{
		queue.Handle(q, "fine", func(context.Context, queue.Job[int]) error { fine.Add(1); return nil }),
		queue.Handle(q, "note", func(context.Context, queue.Job[int]) error { return nil }),
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
			mu.Lock()
			lost := calls["Lost"] > 0
			mu.Unlock()
			if lost {
				return nil
			}
			fmt.Println("held")
			<-ctx.Done() // its process is evicted, or was slow
			return queue.Snooze(time.Millisecond)
		}),
	}
	if err := errors.Join(handlers...); err != nil {
		return err
	}
	for _, args := range []string{"encode panics", "encode fails"} {
		if _, err := q.Enqueue(ctx, queue.Task{Kind: "hostile", Args: args}); !errors.Is(err, dblock.ErrInvalid) {
			return fmt.Errorf("%s: %v", args, err)
		}
	}
	ended := make(chan error, 1)
	go func() {
		ended <- q.Work(ctx, queue.WorkerOptions{
			Stats: 100 * time.Millisecond, Middleware: []queue.Middleware{aroundHostile}, Rescue: 100 * time.Millisecond,
			Backoff: func(int, error) time.Duration { hostEnds("the worker's backoff"); return 0 },
		})
	}()
	if err := enqueueHostile(ctx, q); err != nil {
		return err
	}
	held := false
	for missing := ""; ; {
		select {
		case err := <-ended:
			return fmt.Errorf("work ended: %w; not called: %s", err, missing)
		case <-time.After(20 * time.Millisecond):
		}
		mu.Lock()
		missing = ""
		for i := range reflect.TypeFor[queue.Observer]().NumField() {
			if name := reflect.TypeFor[queue.Observer]().Field(i).Name; calls[name] == 0 {
				missing += " " + name
			}
		}
		dead := calls["Dead"]
		mu.Unlock()
		if !held && dead >= len(hostile) { // now the process may be evicted: no attempt of those is lost by it
			if _, err := q.Enqueue(ctx, queue.Task{Kind: "held"}); err != nil {
				return err
			}
			held = true
		}
		if missing == "" && fine.Load() >= mostFine { // one whose end was refused runs again
			if err := queue.Handle(q, "unknown", func(context.Context, queue.Job[int]) error { return nil }); err != nil {
				return err
			}
			fmt.Println("all went on")
			<-ended
			return nil
		}
	}
}

const mostFine = 20

func enqueueHostile(ctx context.Context, q *queue.Queue) error {
	tasks := []queue.Task{{Kind: "backoff"}, {Kind: "unknown"}, {Kind: "hostile", Args: "cancels"}, {Kind: "hostile", Args: "snoozes"}}
	for kind := range hostile {
		task := queue.Task{Kind: "hostile", Args: kind, MaxAttempts: 2}
		if strings.HasPrefix(kind, "middleware") {
			task.Kind = kind
		}
		tasks = append(tasks, task)
	}
	for n := range mostFine {
		tasks = append(tasks, queue.Task{Kind: "fine", Args: n})
	}
	for _, task := range tasks {
		if _, err := q.Enqueue(ctx, task); err != nil {
			return err
		}
	}
	return nil
}

// Whatever of the host's panics or returns a nil pointer as an error: the process lives, each job that does so dies with a reason, and all other work
// goes on. It runs in a child process, which a panic would end.
func theHostMayPanic(t *testing.T, d *env) { hostEndsBy(t, d, "panic") }

// The same if the observers, the backoffs and the log end their goroutines.
func theHostMayExit(t *testing.T, d *env) { hostEndsBy(t, d, "exit") }

func hostEndsBy(t *testing.T, d *env, how string) {
	q := d.open(t, queue.Options{})
	enqueue(t, q, queue.Task{Kind: "note", Args: 1})
	victim := d.startWorker(t)
	victim.Says(t, "began")
	victim.Kill()
	d.exec(t, "DELETE FROM dblock_member") // its job is to be rescued
	host := d.startWorker(t, workerPanics+"="+how)
	for host.Lines.Scan() && host.Lines.Text() == "held" {
		d.exec(t, "DELETE FROM dblock_member WHERE label = 'hostile'") // so that the end of a job is refused
	}
	if host.Lines.Text() != "all went on" {
		t.Fatalf("the process said %q", host.Lines.Text())
	}
	d.until(t, "SELECT count(*) FROM dblock_queue_dead", int64(len(hostile)))
	d.empty(t)
	for what, want := range hostile {
		kind := "hostile"
		if strings.HasPrefix(what, "middleware") {
			kind = what
		}
		query := fmt.Sprintf("SELECT last_error FROM dblock_queue_dead WHERE kind = '%s' AND payload = '%q'", kind, what)
		if d.e.Kind == "postgres" {
			query = fmt.Sprintf("SELECT last_error FROM dblock_queue_dead WHERE kind = '%s' AND convert_from(payload, 'UTF8') = '%q'", kind, what)
		}
		if s := d.text(t, query); !strings.Contains(s, want) {
			t.Errorf("of %q it is kept: %s", what, s)
		}
	}
	enqueue(t, q, queue.Task{Kind: "fine", Args: 1})
	d.empty(t)
	host.Kill()
}
