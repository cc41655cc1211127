package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// worker is one call of Work. Its goroutines: as many as run handlers, those that exchange jobs for their ends with the database, and one
// that takes care of what others left behind.
type worker struct {
	q *Queue
	o WorkerOptions

	topic string // of its queue

	base  context.Context // of all handlers
	abort context.CancelCauseFunc
	line  *line         // claimed, and not begun
	kick  chan struct{} // something has changed that an exchange may be due for
	word  chan struct{} // somebody wants jobs of this process cancelled

	handlers sync.WaitGroup

	stopping atomic.Bool // set with mu locked: then the line is closed, too
	paused   atomic.Bool // the queue is, as far as is known; set with mu locked

	mu          sync.Mutex
	now         *tenure
	ends        []end // of jobs, not sent yet
	oldest      time.Time
	apart       []end // such as do not go with others
	apartFlying bool
	closed      []*claim  // nothing is outstanding of them, and that was not said yet
	held        int       // jobs that were claimed and whose end was not confirmed
	sent        int       // of them: whose ends are under way
	flying      int       // exchanges under way
	asking      int       // of them: how many claim
	coming      int       // how many jobs they claim at most
	asked       time.Time // when the last one did
	more        bool      // it was given all that it asked for
	woken       bool
	nextPoll    time.Time
	hints       hints
	notUntil    time.Time // after an exchange that failed
	failing     int
	rate        rate
	pace        time.Duration // how long a handler takes, lately; 0: that is not known
	claimed     time.Duration // how long a claim takes, lately
	looked      time.Time     // for jobs that wait for handlers
	taken       int           // jobs by handlers, till then
	pauses      int           // of the queue, that this worker knew of
	limit       int           // how many jobs a claim asks for at most
	patience    time.Duration // how long a claim may take
	bytes       int           // of a payload, lately
	piece       int           // bytes of payloads that are read at once
	marks       marks
	refused     int                // claims in a row
	passed      map[driver.ID]pass // jobs that can't be claimed
	forgot      time.Time
	left        time.Time           // when a job was left to other processes
	claims      map[*claim]struct{} // that have jobs whose end was not confirmed
	requests    bool                // there may be some to cancel jobs of this process
}

// task is a job that was claimed.
type task struct {
	driver.Job
	of   *claim
	came time.Time     // to where handlers take it
	took time.Duration // its handler; 0: it was not begun

	begun bool // its attempt may be recorded as begun

	cancelled atomic.Bool                // somebody wants it dropped
	context   atomic.Pointer[jobContext] // of its handler; nil: it has not begun
}

// Work runs jobs until ctx ends, or the Queue is closed. Then nothing is claimed any more, jobs that were not begun are handed back, and
// handlers may go on for Grace; after that their contexts end. It returns when they have returned and what became of their jobs is
// recorded. If the database has not taken that for Options.Timeout it returns, too, and the Queue goes on to record it.
//
// It may be called several times, for other queues or for the same one. The values of ctx are those of the handlers' contexts.
//
// Errors: dblock.ErrInvalid and dblock.ErrClosed at once; otherwise nil when all has ended well, ErrStillRunning if handlers
// ignore that their contexts have ended, for 5 s, and ErrNotRecorded if the ends of jobs are not recorded yet.
func (q *Queue) Work(ctx context.Context, o WorkerOptions) error {
	o, err := o.withDefaults(q.member.TTL())
	if err != nil {
		return err
	}
	w := &worker{
		q: q, o: o, topic: driver.Topic(o.Queue), line: newLine(), limit: o.Batch, patience: q.o.Timeout, piece: firstPiece, claims: make(map[*claim]struct{}),
		kick: make(chan struct{}, o.Syncs), word: make(chan struct{}, 1),
	}
	w.base, w.abort = context.WithCancelCause(context.WithoutCancel(ctx))
	defer w.abort(ErrStopped)
	q.mu.Lock()
	if q.closed != nil {
		q.mu.Unlock()
		return fmt.Errorf("%w: no job was claimed", dblock.ErrClosed)
	}
	q.workers[w] = struct{}{}
	q.work.Add(1)
	q.records.Add(1)
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
	var behind, fetchers sync.WaitGroup
	for range w.o.Syncs {
		fetchers.Go(func() { w.exchanges(w.q.recorded) })
	}
	recorded := make(chan struct{})
	go func() {
		defer w.q.records.Done()
		defer close(recorded)
		fetchers.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.now != nil {
			w.now.stop()
		}
	}()
	behind.Go(func() { w.maintain(ctx) })
	behind.Go(func() { w.hear(ctx) })
	behind.Go(func() { w.reads(ctx) })

	<-ctx.Done()
	w.stop() // before Pause no longer finds it
	w.q.mu.Lock()
	delete(w.q.workers, w)
	w.q.mu.Unlock()
	behind.Wait()
	w.handBack(w.line.takeBack()...)
	err := w.await()
	settle := w.q.o.Timeout
	if err != nil { // some never will
		settle = time.Second
	}
	timer := time.NewTimer(settle)
	defer timer.Stop()
	select {
	case <-recorded:
		return err
	case <-timer.C:
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.ends) + len(w.apart) + w.sent; n > 0 {
		err = errors.Join(err, fmt.Errorf("%w: those of %d jobs of queue %q, which the database has not taken for %v", ErrNotRecorded, n, w.o.Queue, settle))
	}
	return err
}

// stop has nothing claimed any more. Handlers hand back what was not begun.
func (w *worker) stop() {
	w.mu.Lock()
	w.stopping.Store(true)
	w.line.close()
	w.mu.Unlock()
	w.wake()
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
		return fmt.Errorf("%w: %d of them, of queue %q, ignore that their contexts have ended", ErrStillRunning, w.held-w.sent-len(w.ends)-len(w.apart), w.o.Queue)
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
