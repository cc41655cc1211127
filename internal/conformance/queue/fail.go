package queue

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/queue"
)

func triesAgainUntilItIsDone(t *testing.T, d *env) {
	failed := make(chan queue.Info, 10)
	q := d.open(t, queue.Options{Observer: queue.Observer{Failed: func(job queue.Info, err error, again time.Duration) {
		if !errors.Is(err, errBadDay) || again != time.Millisecond {
			t.Errorf("%v, again in %v", err, again)
		}
		failed <- job
	}}})
	done := make(chan int, 10)
	handle(t, q, "note", func(_ context.Context, job queue.Job[string]) error {
		if job.Attempt < 3 {
			return errBadDay
		}
		done <- job.Attempt
		return nil
	})
	work(t, q, queue.WorkerOptions{Backoff: fast, Promote: 10 * time.Millisecond})
	enqueue(t, q, queue.Task{Kind: "note"})
	if got := wait(t, done, "the third attempt"); got != 3 {
		t.Errorf("attempt %d", got)
	}
	for n := 1; n <= 2; n++ {
		if got := wait(t, failed, "the observer"); got.Attempt != n {
			t.Errorf("attempt %d failed, want %d", got.Attempt, n)
		}
	}
	d.empty(t)
}

func givesUpAfterTheLastAttempt(t *testing.T, d *env) {
	dead := make(chan queue.Info, 1)
	q := d.open(t, queue.Options{Observer: queue.Observer{Dead: func(job queue.Info, _ error) { dead <- job }}})
	handle(t, q, "note", func(context.Context, queue.Job[string]) error { return errors.New("worse\x00 \xff than ever") },
		queue.Backoff(func(int, error) time.Duration { return 0 }))
	work(t, q, queue.WorkerOptions{})
	id := enqueue(t, q, queue.Task{Kind: "note", Args: "x", MaxAttempts: 2})[0]
	if got := wait(t, dead, "the dead"); got.ID != id || got.Attempt != 2 {
		t.Errorf("%+v", got)
	}
	d.empty(t)
	if n := d.count(t, "SELECT attempt FROM dblock_queue_dead"); n != 2 {
		t.Errorf("%d attempts", n)
	}
	if s := d.text(t, "SELECT last_error FROM dblock_queue_dead"); s != "worse\uFFFD \uFFFD than ever" {
		t.Errorf("%q", s)
	}
	if s := d.text(t, "SELECT payload FROM dblock_queue_dead"); s != `"x"` {
		t.Errorf("%q", s)
	}
}

// Panics and exits are errors of one job; its neighbours in the batch are done.
func handlersMayDoWhatTheyLike(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	var fine atomic.Int32
	handle(t, q, "note", func(_ context.Context, job queue.Job[int]) error {
		switch job.Args {
		case 3:
			panic(errBadDay)
		case 5:
			runtime.Goexit()
		case 7:
			panic("too bad")
		}
		fine.Add(1)
		return nil
	})
	for n := range 10 {
		enqueue(t, q, queue.Task{Kind: "note", Args: n, MaxAttempts: 1})
	}
	stop := work(t, q, queue.WorkerOptions{Concurrency: 1})
	d.empty(t)
	if err := stop(); err != nil {
		t.Error(err)
	}
	if fine.Load() != 7 || d.count(t, "SELECT count(*) FROM dblock_queue_dead") != 3 {
		t.Errorf("%d were done", fine.Load())
	}
	for _, want := range []string{"a bad day", "runtime.Goexit", "too bad"} {
		if n := d.count(t, "SELECT count(*) FROM dblock_queue_dead WHERE last_error LIKE '%"+want+"%'"); n != 1 {
			t.Errorf("%d say %q", n, want)
		}
	}
	if n := d.count(t, "SELECT count(*) FROM dblock_queue_dead WHERE last_error LIKE '%queue_fail.go%'"); n != 2 {
		t.Errorf("%d have a stack", n)
	}
}

func aHandlerHasItsTime(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	causes := make(chan error, 1)
	handle(t, q, "note", func(ctx context.Context, _ queue.Job[string]) error {
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return ctx.Err()
	}, queue.Timeout(50*time.Millisecond))
	work(t, q, queue.WorkerOptions{Timeout: -1})
	enqueue(t, q, queue.Task{Kind: "note", MaxAttempts: 1})
	if cause := wait(t, causes, "the end of its time"); !errors.Is(cause, queue.ErrTimeout) {
		t.Errorf("its context ended with %v", cause)
	}
	d.empty(t)
	if s := d.text(t, "SELECT last_error FROM dblock_queue_dead"); !strings.Contains(s, "longer than its timeout of 50ms") {
		t.Errorf("%q", s)
	}
}

func putsOffWhatIsSnoozed(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	done := make(chan int, 1)
	times := 0
	handle(t, q, "note", func(_ context.Context, job queue.Job[string]) error {
		if times++; times < 4 {
			return queue.Snooze(20 * time.Millisecond)
		}
		done <- job.Attempt
		return nil
	})
	work(t, q, queue.WorkerOptions{Concurrency: 1, Promote: 10 * time.Millisecond})
	enqueue(t, q, queue.Task{Kind: "note", MaxAttempts: 1})
	if got := wait(t, done, "the job"); got != 1 {
		t.Errorf("attempt %d", got)
	}
	d.empty(t)
}

func discardsAndCancels(t *testing.T, d *env) {
	seen := make(chan string, 2)
	q := d.open(t, queue.Options{Observer: queue.Observer{
		Dead:      func(job queue.Info, err error) { seen <- job.Kind + " is dead: " + err.Error() },
		Cancelled: func(job queue.Info, err error) { seen <- job.Kind + " is cancelled: " + err.Error() },
	}})
	handle(t, q, "discard", func(context.Context, queue.Job[string]) error { return queue.Discard(errBadDay) })
	handle(t, q, "cancel", func(context.Context, queue.Job[string]) error { return queue.Cancel(errBadDay) })
	stop := work(t, q, queue.WorkerOptions{Concurrency: 1})
	enqueue(t, q, queue.Task{Kind: "discard"}, queue.Task{Kind: "cancel"})
	for _, want := range []string{"discard is dead: a bad day", "cancel is cancelled: a bad day"} {
		if got := wait(t, seen, want); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	d.empty(t)
	if err := stop(); err != nil {
		t.Error(err)
	}
	if s := d.text(t, "SELECT last_error FROM dblock_queue_dead"); s != "a bad day" {
		t.Errorf("%q is kept", s)
	}
	if s := d.text(t, "SELECT kind FROM dblock_queue_dead"); s != "discard" || d.count(t, "SELECT count(*) FROM dblock_queue_dead") != 1 {
		t.Errorf("%q is dead", s)
	}
}

// The words around a decision are kept with it, and observers hear of jobs that are ended while they wait.
func theReasonIsKeptWhole(t *testing.T, d *env) {
	seen := make(chan string, 4)
	q := d.open(t, queue.Options{Observer: queue.Observer{
		Dead:      func(job queue.Info, err error) { seen <- job.Kind + " is dead: " + err.Error() },
		Cancelled: func(job queue.Info, err error) { seen <- job.Kind + " is cancelled: " + err.Error() },
	}})
	for kind, decision := range map[string]func(error) error{"discard": queue.Discard, "cancel": queue.Cancel} {
		handle(t, q, kind, func(context.Context, queue.Job[string]) error { return fmt.Errorf("order 7: %w", decision(errBadDay)) })
	}
	waits := enqueue(t, q, queue.Task{Kind: "ready"}, queue.Task{Kind: "later", Delay: time.Hour}, queue.Task{Kind: "given up"})
	for _, id := range waits[:2] {
		if _, err := q.Cancel(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	if err := q.Discard(t.Context(), waits[2], "too late"); err != nil {
		t.Error(err)
	}
	for _, want := range []string{
		"ready is cancelled: " + queue.ErrCancelled.Error(), "later is cancelled: " + queue.ErrCancelled.Error(), "given up is dead: too late",
	} {
		if got := wait(t, seen, want); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	work(t, q, queue.WorkerOptions{})
	for _, end := range []string{"discard is dead", "cancel is cancelled"} {
		enqueue(t, q, queue.Task{Kind: strings.Fields(end)[0]})
		if got, want := wait(t, seen, end), end+": order 7: a bad day"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	d.empty(t)
	if s := d.text(t, "SELECT last_error FROM dblock_queue_dead WHERE kind = 'discard'"); s != "order 7: a bad day" {
		t.Errorf("%q is kept", s)
	}
}

func anUndecodableJobFailsAlone(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	done := make(chan int, 10)
	handle(t, q, "number", func(_ context.Context, job queue.Job[int]) error {
		done <- job.Args
		return nil
	})
	enqueue(t, q, queue.Task{Kind: "number", Args: 1}, queue.Task{Kind: "number", Args: "two", MaxAttempts: 1}, queue.Task{Kind: "number", Args: 3})
	work(t, q, queue.WorkerOptions{Concurrency: 1})
	if a, b := wait(t, done, "a job"), wait(t, done, "a job"); a != 1 || b != 3 {
		t.Errorf("%d and %d were done", a, b)
	}
	d.empty(t)
	if s := d.text(t, "SELECT last_error FROM dblock_queue_dead"); !strings.Contains(s, "can't be decoded: of kind \"number\", into int") {
		t.Errorf("%q", s)
	}
}

// A job of a kind that its process does not know waits for one that does: it fails nothing, and its neighbours are done. Observer.Trouble is
// told of the kind once in a while.
func anUnknownKindWaits(t *testing.T, d *env) {
	began, troubles, snoozed := time.Now(), make(chan error, 1000), make(chan time.Duration, 1000)
	q := d.open(t, queue.Options{Observer: queue.Observer{
		Trouble: func(_ string, err error) { troubles <- err },
		Snoozed: func(_ queue.Info, again time.Duration) { snoozed <- again },
	}})
	done := make(chan int, 10)
	handle(t, q, "number", func(_ context.Context, job queue.Job[int]) error {
		done <- job.Args
		return nil
	})
	enqueue(t, q, queue.Task{Kind: "nobody's", MaxAttempts: 1}, queue.Task{Kind: "nobody's", MaxAttempts: 1, Group: "g"}, queue.Task{Kind: "number", Args: 3})
	stop := work(t, q, queue.WorkerOptions{Concurrency: 1})
	if got := wait(t, done, "a job"); got != 3 {
		t.Errorf("%d was done", got)
	}
	d.until(t, "SELECT count(*) FROM dblock_queue_scheduled", 2)
	for range 2 {
		if again := wait(t, snoozed, "a job that is put off"); again <= 0 {
			t.Errorf("put off for %v", again)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	told := 0
	for len(troubles) > 0 {
		if err := <-troubles; errors.Is(err, queue.ErrUnknownKind) {
			told++
			if !strings.Contains(err.Error(), `no handler for this kind: "nobody's"`) {
				t.Error(err)
			}
		}
	}
	if told < 1 || told > 1+int(time.Since(began)/time.Minute) {
		t.Errorf("told %d times", told)
	}
	if n := d.count(t, "SELECT count(*) FROM dblock_queue_job WHERE attempt = 0 AND last_error IS NULL"); n != 2 {
		t.Errorf("%d jobs wait", n)
	}
	knows := d.open(t, queue.Options{})
	handle(t, knows, "nobody's", nop)
	work(t, knows, queue.WorkerOptions{})
	d.empty(t)
	if n := d.count(t, "SELECT count(*) FROM dblock_queue_dead"); n != 0 {
		t.Errorf("%d are dead", n)
	}
}

// Two processes that know one kind each: all jobs of both kinds are run, with one attempt.
func eachKindFindsItsProcess(t *testing.T, d *env) {
	const jobs = 40
	var did once
	producer := d.open(t, queue.Options{})
	var tasks []queue.Task
	for i := range jobs {
		tasks = append(tasks, queue.Task{Kind: "a", Args: i, MaxAttempts: 1}, queue.Task{Kind: "b", Args: i, MaxAttempts: 1})
	}
	made, err := producer.EnqueueMany(suite.Soon(t), tasks)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"a", "b"} {
		q := d.open(t, queue.Options{})
		handle(t, q, kind, func(_ context.Context, job queue.Job[int]) error {
			did.did(job.ID)
			return nil
		})
		work(t, q, queue.WorkerOptions{})
	}
	d.empty(t)
	if err := did.check(made, true); err != nil {
		t.Error(err)
	}
	if n := d.count(t, "SELECT count(*) FROM dblock_queue_dead"); n != 0 {
		t.Errorf("%d are dead", n)
	}
}
