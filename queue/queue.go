package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/merge"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// Queue enqueues and runs the jobs of one database. It is safe for concurrent use; one a process is
// enough, and one a process merges best. Make it with pgqueue.New or mysqlqueue.New.
type Queue struct {
	driver  driver.Driver
	o       Options
	member  *member.Member
	ids     ids
	inserts *merge.Queue[[]driver.Insert, []driver.Duplicate]
	keyed   *merge.Queue[keyedCall, []driver.Duplicate]
	begins  *merge.Queue[beginning, driver.Beginning]

	mu         sync.RWMutex
	handlers   map[string]*handler
	unknown    map[string]time.Time // kinds without a handler, and when that was told last
	workers    map[*worker]struct{}
	closed     chan struct{}   // not nil: Close was called, and Work refuses; closed itself when Close has returned
	refuses    bool            // all calls: the workers have returned, or Close waits for them no more
	calls      sync.WaitGroup  // that were not refused
	work       sync.WaitGroup  // of workers
	records    sync.WaitGroup  // of those that record ends, also after Work has returned
	recorded   context.Context // ends with Close
	unrecord   context.CancelFunc
	claims     claimSet
	reconciled *member.Life // the last one whose claims are looked after
	election   election
	managing   few                      // Cancel, Discard and Retry
	lookups    few                      // of commits that got no answer
	promotedAt time.Time                // when jobs without a group were looked at whose time had come
	locked     map[driver.Group]bool    // groups that the last promotion found locked
	patience   map[string]time.Duration // of statements that pass over many rows, by what they do: see patiently
	steps      map[string]step          // of statements of many rows, by what they do: see inSteps
	teller     *teller
	ear        ear
	ending     context.Context
	end        context.CancelFunc
}

// newQueue makes a Queue on an engine, which it closes in the end; o has its defaults.
func newQueue(e driver.Driver, o Options) (*Queue, error) {
	mo, err := o.member()
	if err != nil {
		return nil, err
	}
	q := &Queue{driver: e, o: o, member: member.New(e.Members(), mo), handlers: make(map[string]*handler), unknown: make(map[string]time.Time), workers: make(map[*worker]struct{}),
		patience: make(map[string]time.Duration), steps: make(map[string]step), managing: newFew(), lookups: newFew()}
	q.ending, q.end = context.WithCancel(context.Background())
	q.recorded, q.unrecord = context.WithCancel(context.Background())
	q.teller = newTeller(func(ctx context.Context, news []driver.Notification) error {
		return q.within(ctx, func(ctx context.Context) error { return e.Notifier().Notify(ctx, news) })
	}, q.trouble)
	q.inserts = merge.New(merge.Options[[]driver.Insert, []driver.Duplicate]{
		Run:      q.insertMerged,
		Key:      func([]driver.Insert) string { return "" },
		Classify: q.classify,
		MaxBatch: maxMerged, MaxQueue: o.MaxQueue, PerKey: 2,
	})
	q.keyed, q.begins = q.newKeyed(), q.newBegins()
	return q, nil
}

// Close ends all calls of Work, as the end of their contexts does, and waits for them while ctx
// lives. Handlers may use the Queue until they have returned; after that all calls are refused.
// Then the process leaves: others have what it still has within moments. It leaves even if ctx has
// ended. If the server does not answer, Close returns at most a second after the end of ctx, and
// leaving goes on in the background. The pool is its owner's, and stays open. A second Close waits
// for the first one while its own ctx lives.
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
	err := clock.Await(ctx, clock.After(q.work.Wait), "workers still run")
	q.mu.Lock()
	q.refuses = true
	q.mu.Unlock()
	err = errors.Join(err, q.inserts.Close(ctx), q.keyed.Close(ctx), q.begins.Close(ctx), clock.Await(ctx, clock.After(q.calls.Wait), "calls are still under way"))
	left, late := member.Leave(ctx, func() error { return q.leave(ctx) })
	if !left {
		late = fmt.Errorf("%w: %s: %w", dblock.ErrOutcomeUnknown, leaving, context.Cause(ctx))
	}
	return errors.Join(err, late)
}

// enter begins a call, which ends with calls.Done. It refuses once nothing is to begin any more.
func (q *Queue) enter() error {
	q.mu.RLock()
	defer q.mu.RUnlock()
	if q.refuses {
		return fmt.Errorf("%w: nothing was sent", dblock.ErrClosed)
	}
	q.calls.Add(1)
	return nil
}

const leaving = "leaving: what this process had is ready for others when its TTL is over"

// leave ends what goes on in the background, and deletes this process's member.
func (q *Queue) leave(ctx context.Context) error {
	q.unrecord()
	q.records.Wait()
	q.teller.close(ctx)
	err := q.election.close(ctx)
	if left := q.member.Close(ctx); left != nil {
		err = errors.Join(err, q.explain(left, leaving))
	}
	q.driver.Close()
	return err
}

// fault is the engine's, but for errors that are this package's own.
func (q *Queue) classify(err error) sqlerr.Class {
	if errors.Is(err, dblock.ErrClosed) || errors.Is(err, dblock.ErrInvalid) {
		return sqlerr.Unclassified
	}
	return q.driver.Classify(err)
}

// explain puts an error of the engine into dblock's words.
func (q *Queue) explain(err error, what string) error {
	return sqlerr.Wrap(q.classify(err), err, what, "no answer came")
}

// trouble is told of what goes wrong behind the callers' backs.
func (q *Queue) trouble(doing string, err error) {
	q.o.Log.Warn("queue: "+doing, "error", err)
	if q.o.Observer.Trouble != nil {
		q.o.Observer.Trouble(doing, err)
	}
}
