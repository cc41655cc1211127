package queue

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/queue/internal/engine"
)

// worker is one call of Work. Its goroutines: as many as run handlers, those that exchange jobs for their ends with the database, and one
// that takes care of what others left behind.
type worker struct {
	q *Queue
	o WorkerOptions

	base  context.Context // of all handlers
	abort context.CancelCauseFunc
	todo  chan *task    // claimed, and not begun
	kick  chan struct{} // something has changed that an exchange may be due for
	word  chan struct{} // somebody wants jobs of this process cancelled

	handlers sync.WaitGroup

	stopping atomic.Bool // set with mu locked: then todo is closed, too

	mu       sync.Mutex
	now      *tenure
	ends     []end // of jobs, not sent yet
	oldest   time.Time
	closed   []*claim  // nothing is outstanding of them, and that was not said yet
	held     int       // jobs that were claimed and whose end was not confirmed
	sent     int       // of them: whose ends are under way
	flying   int       // exchanges under way
	asking   int       // of them: how many claim
	coming   int       // how many jobs they claim at most
	asked    time.Time // when the last one did
	more     bool      // it was given all that it asked for
	woken    bool
	nextPoll time.Time
	hints    hints
	notUntil time.Time // after an exchange that failed
	failing  int
	rate     rate
	marks    marks
	forgot   time.Time
	claims   map[*claim]struct{} // that have jobs whose end was not confirmed
}

// task is a job that was claimed.
type task struct {
	engine.Job
	of *claim

	cancelled atomic.Bool                // somebody wants it dropped
	context   atomic.Pointer[jobContext] // of its handler; nil: it has not begun
}

// Work runs jobs until ctx ends, or the Queue is closed. Then nothing is claimed any more, jobs that were not begun are handed back, and
// handlers may go on for Grace; after that their contexts end. It returns when they have returned and what became of their jobs is
// recorded, or when the database has not taken that for Options.Timeout.
//
// It may be called several times, for other queues or for the same one. The values of ctx are those of the handlers' contexts.
//
// Errors: dblock.ErrInvalid and dblock.ErrClosed at once; otherwise nil when all has ended well, and ErrStillRunning where handlers
// ignore that their contexts have ended, for 5 s.
func (q *Queue) Work(ctx context.Context, o WorkerOptions) error {
	o, err := o.withDefaults(q.member.TTL())
	if err != nil {
		return err
	}
	w := &worker{
		q: q, o: o, todo: make(chan *task, o.Ahead+o.Batch+o.Concurrency), claims: make(map[*claim]struct{}),
		kick: make(chan struct{}, o.Exchanges), word: make(chan struct{}, 1),
	}
	w.base, w.abort = context.WithCancelCause(context.WithoutCancel(ctx))
	defer w.abort(ErrStopped)
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return fmt.Errorf("%w: no job was claimed", dblock.ErrClosed)
	}
	q.workers[w] = struct{}{}
	q.work.Add(1)
	q.mu.Unlock()
	defer q.work.Done()
	defer q.listens()()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(q.ending, cancel)()
	return w.run(ctx)
}

// run begins all goroutines, and ends them.
func (w *worker) run(ctx context.Context) error {
	for range w.o.Concurrency {
		w.handlers.Add(1)
		go w.handle()
	}
	exchanges, over := context.WithCancel(context.Background())
	defer over()
	var behind, fetchers sync.WaitGroup
	for range w.o.Exchanges {
		fetchers.Go(func() { w.exchanges(exchanges) })
	}
	behind.Go(func() { w.care(ctx) })
	behind.Go(func() { w.hear(ctx) })

	<-ctx.Done()
	w.q.mu.Lock()
	delete(w.q.workers, w)
	w.q.mu.Unlock()
	w.stop()
	behind.Wait()
	err := w.await()
	settle := w.q.o.Timeout
	if err != nil { // some never will
		settle = time.Second
	}
	defer time.AfterFunc(settle, over).Stop()
	fetchers.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now != nil {
		w.now.stop()
	}
	return err
}

// stop has nothing claimed any more. Handlers hand back what was not begun.
func (w *worker) stop() {
	w.mu.Lock()
	w.stopping.Store(true)
	close(w.todo)
	w.mu.Unlock()
	w.wake()
}

// handBack ends a job that was not begun.
func (w *worker) handBack(t *task) {
	w.ended(end{task: t, what: deferred, attempt: t.Attempt})
}

// lastGrace is for how long Work waits for handlers that ignore their contexts.
const lastGrace = 5 * time.Second

// await waits for the handlers: for Grace, and, when their contexts have ended, a while longer.
func (w *worker) await() error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.handlers.Wait()
	}()
	grace := time.NewTimer(w.o.Grace)
	defer grace.Stop()
	select {
	case <-done:
		return nil
	case <-grace.C:
	}
	w.abort(ErrStopped)
	last := time.NewTimer(lastGrace)
	defer last.Stop()
	select {
	case <-done:
		return nil
	case <-last.C:
		w.mu.Lock()
		defer w.mu.Unlock()
		return fmt.Errorf("%w: %d of them, of queue %q, ignore that their contexts have ended", ErrStillRunning, w.held-w.sent-len(w.ends), w.o.Queue)
	}
}

// wake has all exchanges look whether there is something to do.
func (w *worker) wake() {
	w.mu.Lock()
	w.woken = true
	w.mu.Unlock()
	w.signal()
}

// signal has one exchange look.
func (w *worker) signal() {
	select {
	case w.kick <- struct{}{}:
	default:
	}
}
