package batch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/ctxerr"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// Options says what a Queue merges. Run and Key are required.
type Options[Q, A any] struct {
	// Run sends one statement for a batch and answers each request at its index. An error applies
	// to the whole batch, and then no answer counts. For a single call ctx is that of its caller.
	// For several it never ends: Run sets its own bound. again reports that some of the batch were
	// answered Alone before.
	Run func(ctx context.Context, batch []Q, again bool) ([]Result[A], error)

	// Key names what a request contends for, for example a SKU.
	Key func(Q) string

	// Others names what a request contends for beside its Key. Its statement begins when no other
	// one in flight carries such a key, but for slow ones: see several.go. Default: nothing.
	Others func(Q) []string

	// Common is a Key of requests that may have nothing in common but that. One whose other key is
	// locked waits in the lane of that key. Default: none.
	Common string

	// Name is how an error names a key. Default: quoted.
	Name func(key string) string

	// Ends reports requests that release something. They are never refused. Default: none does.
	Ends func(Q) bool

	// Classify returns the class of an error of Run. A batch is divided to find the requests that
	// caused it: see sqlerr.Trial. Default: all have.
	Classify func(error) sqlerr.Class

	// Blocked reports errors of the class BadInput, or of one that MayBeOfOne, after which some
	// request of the batch waited for a lock. Then a batch is divided for MaxWait at most, and the
	// error is that of all that are left. Default: none.
	Blocked func(error) bool

	// Weight is how much a request adds to a statement, and MaxWeight is how much one statement
	// takes, for example in bytes. A request that is heavier has a statement of its own. Default:
	// the number of requests is the only bound.
	Weight    func(Q) int
	MaxWeight int

	// Late receives the answer to a request whose caller left after it was sent. It must not block.
	// With it the statement of a single caller outlives that caller, too: it runs on a goroutine of
	// its own. Default: such results are dropped, and the context of a single caller ends its
	// statement.
	Late func(Q, Result[A])

	// Waiters is how many statements may stand aside at once, beside MaxInFlight: see Yield.
	// Default: none.
	Waiters int

	// MaxWait is how long a request is asked again that is answered Alone, from when it was first
	// sent. Default 0: it is asked again once.
	MaxWait time.Duration

	MaxBatch    int // requests in one statement; default 1,024
	MaxQueue    int // calls that may wait; default 65,536
	MaxInFlight int // statements in flight, over all keys; default 4
	PerKey      int // statements in flight that carry one key; default 1

	// Apart has no two keys share a statement: for requests that wait for what their key names.
	Apart bool

	// Patience is how long the statement that began last must have been under way before another
	// one begins beside it: what arrives meanwhile shares the next. Default 0: another one begins
	// at once.
	Patience time.Duration
}

// Result is what Run says of one request; Late receives Value and Err only.
type Result[A any] struct {
	Value A
	Err   error // with Alone: that of a request that is not asked again; default: it stayed locked
	Alone bool  // nothing was decided: ask again, in a statement that carries no other key

	// Behind, with Alone, is the key in whose lane the request waits: what was locked. Default: its
	// own.
	Behind string
}

// Queue merges concurrent calls of Do into few calls of Run. It is safe for concurrent use.
type Queue[Q, A any] struct {
	o Options[Q, A]

	mu      sync.Mutex
	lanes   map[string]*lane[Q, A] // keys with calls waiting or in flight
	ready   []*lane[Q, A]          // lanes that a statement could take from, longest waiting first
	waiting int
	limit   int           // requests in one statement, below Options.MaxBatch; 0: as many as that.
	running int           // statements in flight, but for those aside.
	aside   int           // statements in flight that stand aside.
	stands  []*lane[Q, A] // whose first call waits for statements that carry one of its other keys.
	wanted  []*lane[Q, A] // of these keys: no statement that carries one begins.
	began   time.Time     // when the last of them was sent.
	late    *time.Timer   // for when that is long enough ago; nil: no statement waits for it.
	spare   sync.Pool     // calls that were answered; their channels are most of what a call would cost.
	closed  chan struct{} // not nil once Close was called; closed itself when nothing is left.
}

// New makes a Queue. It starts no goroutine: those that it needs live as long as there is work.
func New[Q, A any](o Options[Q, A]) *Queue[Q, A] {
	if o.Run == nil || o.Key == nil {
		panic("batch: Run and Key are required")
	}
	if o.Name == nil {
		o.Name = strconv.Quote
	}
	if o.Ends == nil {
		o.Ends = func(Q) bool { return false }
	}
	if o.Blocked == nil {
		o.Blocked = func(error) bool { return false }
	}
	if o.Weight == nil || o.MaxWeight == 0 {
		o.Weight, o.MaxWeight = func(Q) int { return 0 }, 1
	}
	if o.Others == nil {
		o.Others = func(Q) []string { return nil }
	}
	if o.Classify == nil {
		o.Classify = func(error) sqlerr.Class { return sqlerr.Unresolved }
	}
	o.MaxBatch = cmp.Or(o.MaxBatch, 1024)
	o.MaxQueue = cmp.Or(o.MaxQueue, 65536)
	o.MaxInFlight = cmp.Or(o.MaxInFlight, 4)
	o.PerKey = cmp.Or(o.PerKey, 1)
	return &Queue[Q, A]{o: o, lanes: make(map[string]*lane[Q, A])}
}

// Do executes req and returns its answer. It waits while ctx lives.
func (q *Queue[Q, A]) Do(ctx context.Context, req Q) (A, error) { return q.do(ctx, req, nil) }

// DoWithin is Do, but a request that was not sent within d is not sent at all: ErrNotInTime.
func (q *Queue[Q, A]) DoWithin(ctx context.Context, req Q, d time.Duration) (A, error) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	return q.do(ctx, req, timer.C)
}

func (q *Queue[Q, A]) do(ctx context.Context, req Q, due <-chan time.Time) (A, error) {
	var none A
	if ctx.Err() != nil {
		return none, notSent(ctx)
	}
	q.mu.Lock()
	if q.closed != nil {
		q.mu.Unlock()
		return none, fmt.Errorf("%w: nothing was sent", dblock.ErrClosed)
	}
	l := q.lane(req)
	if t := q.beginSingle(l, req); t != nil {
		if q.o.Late != nil && ctx.Done() != nil {
			c := q.call(req, l)
			c.sent = true
			q.mu.Unlock()
			go func() { q.runSingle(context.WithoutCancel(ctx), t, req, func(a Result[A]) { q.deliver(c, a) }) }()
			return q.wait(ctx, c, due)
		}
		q.mu.Unlock()
		var got Result[A]
		if c := q.runSingle(ctx, t, req, func(a Result[A]) { got = a }); c != nil {
			return q.wait(ctx, c, due)
		}
		return got.Value, got.Err
	}
	if q.waiting >= q.o.MaxQueue && !q.o.Ends(req) {
		q.dropIdle(l)
		q.mu.Unlock()
		return none, fmt.Errorf("%w: %d calls wait already; nothing was sent", dblock.ErrOverloaded, q.o.MaxQueue)
	}
	c := q.call(req, l)
	l.push(c)
	q.waiting++
	q.offer(l)
	q.dispatch()
	q.mu.Unlock()
	return q.wait(ctx, c, due)
}

// beginSingle begins a statement of a single request; nil: it can't be sent at once.
func (q *Queue[Q, A]) beginSingle(l *lane[Q, A], req Q) *inFlight[Q, A] {
	if !l.idle() || len(q.ready) > 0 || !q.mayBegin() {
		return nil
	}
	b := batch[Q, A]{lanes: []*lane[Q, A]{l}}
	others, wait := q.free(req, l, &b, time.Time{})
	if wait > 0 {
		return nil
	}
	q.begin()
	l.carried()
	l.shared = false
	q.carry(&b, others)
	return &inFlight[Q, A]{q: q, lanes: b.lanes, others: b.others}
}

// Post executes req without a caller that waits. then receives its answer, and must not block. A
// posted request is never refused. Post returns false after Close.
func (q *Queue[Q, A]) Post(req Q, then func(A, error)) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed != nil {
		return false
	}
	l := q.lane(req)
	l.push(&call[Q, A]{req: req, lane: l, then: then})
	q.waiting++
	q.offer(l)
	q.dispatch()
	return true
}

func (q *Queue[Q, A]) call(req Q, l *lane[Q, A]) *call[Q, A] {
	c, _ := q.spare.Get().(*call[Q, A])
	if c == nil {
		c = &call[Q, A]{result: make(chan Result[A], 1)}
	}
	*c = call[Q, A]{req: req, lane: l, result: c.result}
	return c
}

// wait returns the answer of a queued call, or the reason why there is none.
func (q *Queue[Q, A]) wait(ctx context.Context, c *call[Q, A], due <-chan time.Time) (A, error) {
	var none A
	for waits := true; waits; {
		select {
		case a := <-c.result:
			q.spare.Put(c)
			return a.Value, a.Err
		case <-due:
			if q.withdraw(c) {
				return none, ErrNotInTime
			}
		case <-ctx.Done():
			waits = false
		}
	}
	if q.withdraw(c) {
		return none, notSent(ctx)
	}
	if c.settled.Swap(true) { // its answer came at the same moment: the truth is better than a guess
		a := <-c.result
		return a.Value, a.Err
	}
	return none, fmt.Errorf("%w: %w", ErrAbandoned, ctxerr.Of(ctx))
}

// deliver gives a call its answer.
func (q *Queue[Q, A]) deliver(c *call[Q, A], a Result[A]) {
	switch {
	case c.then != nil:
		c.then(a.Value, a.Err)
	case !c.settled.Swap(true):
		c.result <- a
	case q.o.Late != nil:
		q.o.Late(c.req, a)
	}
}

// runSingle runs a single request, and passes on its answer. A request that is to be asked again is
// queued and returned. It does not wait on the goroutine of its caller: with that caller the
// statement would end, but perhaps not the wait on the server.
func (q *Queue[Q, A]) runSingle(ctx context.Context, t *inFlight[Q, A], req Q, reply func(Result[A])) (again *call[Q, A]) {
	l := t.lanes[0]
	defer func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if again != nil {
			q.requeue([]*call[Q, A]{again})
		}
		q.settle(t)
	}()
	began := time.Now()
	results, err := q.send(alone(ctx), []Q{req}, false)
	switch {
	case err != nil:
		reply(Result[A]{Err: err})
	case results[0].Alone && q.o.MaxWait > 0 && q.o.Late == nil:
		again = q.call(req, l)
		again.behind, again.why, again.since = results[0].Behind, results[0].Err, began
	case results[0].Alone:
		reply(Result[A]{Err: cmp.Or(results[0].Err, q.stayedLocked(l.key))})
	default:
		reply(results[0])
	}
	return again
}

// withdraw takes c out of the queue; false when it was sent already.
func (q *Queue[Q, A]) withdraw(c *call[Q, A]) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if c.sent {
		return false
	}
	c.lane.withdraw(c)
	q.waiting--
	if slices.Contains(q.stands, c.lane) {
		q.unwant()
		q.dispatch()
	}
	q.dropIdle(c.lane)
	q.drained()
	return true
}

// Limit bounds the requests of each statement from now on, if that is less than Options.MaxBatch.
func (q *Queue[Q, A]) Limit(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.limit = n
}

func (q *Queue[Q, A]) maxBatch() int {
	if q.limit > 0 {
		return min(q.limit, q.o.MaxBatch)
	}
	return q.o.MaxBatch
}

// Close refuses further calls and waits, while ctx lives, for those under way.
func (q *Queue[Q, A]) Close(ctx context.Context) error {
	q.mu.Lock()
	if q.closed == nil {
		q.closed = make(chan struct{})
		q.drained()
	}
	closed := q.closed
	q.mu.Unlock()
	return clock.Await(ctx, closed, "to close: calls are still under way")
}

// drained informs Close when nothing is left.
func (q *Queue[Q, A]) drained() {
	if q.closed == nil || q.running > 0 || q.aside > 0 || q.waiting > 0 {
		return
	}
	select {
	case <-q.closed:
	default:
		close(q.closed)
	}
}

// ErrNotSent: the caller's context ended while its call was queued. The error wraps the reason.
var ErrNotSent = errors.New("dblock: the wait ended before the request was sent, nothing was written")

// ErrNotInTime: the time of DoWithin ended while its call was queued. Its context may have ended
// since.
var ErrNotInTime = errors.New("dblock: the request was not sent in time, nothing was written")

// ErrAbandoned: the caller's context ended after its request was sent. It is a
// dblock.ErrOutcomeUnknown; the answer goes to Options.Late. The error says why, too.
var ErrAbandoned = fmt.Errorf("%w: the wait ended after the request was sent", dblock.ErrOutcomeUnknown)

func notSent(ctx context.Context) error { return fmt.Errorf("%w: %w", ErrNotSent, ctxerr.Of(ctx)) }
