package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/batch"
	"github.com/dblock-go/dblock/internal/callback"
	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/ctxerr"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// Queue enqueues and runs the jobs of one database. It is safe for concurrent use. One Queue for
// each process is enough, and batches best. Make it with pgqueue.New or mysqlqueue.New.
type Queue struct {
	driver driver.Driver
	o      Options
	member *member.Member
	ids    ids

	// The parts, each with a state and a mutex of its own.
	db         *statements // runs statements
	enqueuer   *enqueuer   // enqueues tasks
	handlers   *registry   // has the handlers
	notices    *notices    // wakes workers, and notifies other processes, of jobs
	promoter   *promoter   // makes the jobs ready whose time has come
	reconciler *reconciler // releases claims without a reply
	election   *election   // of the one worker that does the maintenance
	begins     *batch.Queue[beginning, driver.Beginning]
	managing   semaphore // Cancel, Discard and Retry
	rowWait    semaphore // the one of these that waits in the server's queue for a row
	lookups    semaphore // of commits that got no answer.
	pauses     semaphore // Pause and Resume, of whatever queues
	pausing    sync.Map  // by queue, a semaphore: Pause and Resume wait for the queue's row one at a time

	mu       sync.RWMutex
	closed   chan struct{}        // not nil: Close was called, and Work refuses; closed itself when Close has returned.
	refuses  bool                 // all calls: the workers have returned, or Close waits for them no more.
	calls    sync.WaitGroup       // that were not refused.
	work     sync.WaitGroup       // of workers.
	workers  map[*worker]struct{} // whose handlers may run.
	records  sync.WaitGroup       // of those that record ends, also after Work has returned.
	recorded context.Context      // ends with Close.
	unrecord context.CancelFunc
	ending   context.Context
	end      context.CancelFunc
}

// newQueue makes a Queue on a driver, which it closes in the end; o has its defaults.
func newQueue(d driver.Driver, o Options) (*Queue, error) {
	mo, err := o.member()
	if err != nil {
		return nil, err
	}
	q := &Queue{
		driver: d, o: o, member: member.New(d.Members(), mo), db: newStatements(d, o.Timeout), workers: make(map[*worker]struct{}),
		managing: newSemaphore(), rowWait: make(semaphore, 1), lookups: newSemaphore(), pauses: make(semaphore, 2*atOnce),
	}
	q.ending, q.end = context.WithCancel(context.Background())
	q.recorded, q.unrecord = context.WithCancel(context.Background())
	q.handlers = &registry{codec: o.Codec, all: make(map[string]*handler), unknown: make(map[string]time.Time)}
	q.notices = &notices{q: q, workers: make(map[*worker]struct{})}
	q.notices.sender = newSender(func(ctx context.Context, all []driver.Notification) error {
		return q.db.within(ctx, func(ctx context.Context) error { return d.Notifier().Notify(ctx, all) })
	}, q.trouble)
	q.enqueuer, q.begins = newEnqueuer(q), q.newBegins()
	q.promoter = &promoter{
		db: q.db, ttl: q.member.TTL(), calls: &q.calls, ending: q.ending, announce: func() { q.notices.announce(driver.AnyQueue) },
	}
	q.reconciler, q.election = &reconciler{q: q}, &election{q: q}
	return q, nil
}

// Close ends all calls of Work, as the end of their contexts does, and waits for them while ctx
// lives. Then the contexts of handlers that still run end (ErrStopped). Close waits for half a
// second until they have returned and what becomes of their jobs is recorded. Until then handlers
// may use the Queue; after that all calls are refused.
//
// Then the process leaves: others have what it still has within moments. It leaves even if ctx has
// ended. Ends of jobs that are not recorded are lost, and these jobs are rescued. If the server
// does not answer, Close returns at most two seconds after the end of ctx, and leaving goes on in
// the background. The pool is its owner's, and stays open. A second Close waits for the first one
// while its own ctx lives.
//
// Errors: ctx's, if workers or calls still run, or the first Close does; dblock.ErrUnavailable,
// ErrBusy, ErrConflict and ErrOutcomeUnknown, if this process could not leave: then others have
// what is left when the TTL is over.
func (q *Queue) Close(ctx context.Context) error {
	q.mu.Lock()
	first := q.closed == nil
	if first {
		q.closed = make(chan struct{})
	}
	q.mu.Unlock()
	if !first {
		return clock.Await(ctx, q.closed, "another Close is under way")
	}
	defer close(q.closed)
	q.end()
	worked := clock.After(q.work.Wait)
	err := clock.Await(ctx, worked, "workers still run")
	if err != nil {
		q.stopHandlers(worked)
	}
	q.mu.Lock()
	q.refuses = true
	q.mu.Unlock()
	err = errors.Join(err, q.enqueuer.close(ctx), q.begins.Close(ctx),
		clock.Await(ctx, clock.After(q.calls.Wait), "calls are still under way"))
	left, late := member.AwaitDeregister(ctx, func() error { return q.stop(ctx) })
	if !left {
		late = fmt.Errorf("%w: %s: %w", dblock.ErrOutcomeUnknown, leaving, ctxerr.Of(ctx))
	}
	return errors.Join(err, late)
}

// begin begins a call, which ends with calls.Done. It refuses once nothing is to begin any more.
func (q *Queue) begin() error {
	q.mu.RLock()
	defer q.mu.RUnlock()
	if q.refuses {
		return fmt.Errorf("%w: nothing was sent", dblock.ErrClosed)
	}
	q.calls.Add(1)
	return nil
}

// handBack is for how long Close waits for handlers whose contexts it has ended.
const handBack = 500 * time.Millisecond

// stopHandlers ends the contexts of handlers that still run, and waits a while for what becomes of
// their jobs: others have the jobs next.
func (q *Queue) stopHandlers(worked <-chan struct{}) {
	q.mu.RLock()
	for w := range q.workers {
		w.abort(ErrStopped)
	}
	q.mu.RUnlock()
	timer := time.NewTimer(handBack)
	defer timer.Stop()
	select {
	case <-worked:
	case <-timer.C:
	}
}

const leaving = "leaving: what this process had is ready for others when its TTL is over"

// stop ends what goes on in the background, and deletes this process's member.
func (q *Queue) stop(ctx context.Context) error {
	q.unrecord()
	q.records.Wait()
	q.notices.sender.close(ctx)
	err := q.election.close(ctx)
	if left := q.member.Close(ctx); left != nil {
		err = errors.Join(err, q.db.explain(left, leaving))
	}
	q.driver.Close()
	return err
}

// trouble reports errors of work in the background.
func (q *Queue) trouble(doing string, err error) {
	q.o.Log.Warn("queue: "+doing, "error", err)
	if q.o.Observer.Trouble != nil {
		q.o.Observer.Trouble(doing, err)
	}
}

// pauseAfter is how long a job waits after an attempt that failed: as its kind's handler says, or
// else as backoff does.
func (q *Queue) pauseAfter(kind string, backoff func(int, error) time.Duration, attempt int, err error) time.Duration {
	backoff = q.handlers.backoffOf(kind, backoff)
	var again time.Duration
	if p := callback.Try(func() { again = backoff(attempt, err) }); p != nil {
		q.trouble(fmt.Sprintf("calling the backoff of jobs of kind %q", kind), p)
		again = defaultBackoff(attempt, err)
	}
	return min(max(again, 0), MaxDelay)
}
