package merge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
)

// Options says what a Queue merges. Run and Key are required.
type Options[Q, A any] struct {
	// Run sends one statement for a batch and answers each request at its index. An error is the
	// whole batch's, and then no answer counts. The context is the caller's own where the batch is
	// one lone call, and never ends where it is shared: Run sets its own bound. Again says that
	// some of the batch were answered Alone before.
	Run func(ctx context.Context, batch []Q, again bool) ([]Answer[A], error)

	// Key names what a request contends for, for example a SKU.
	Key func(Q) string

	// Ends tells requests that give something back. They are never refused. Default: none does.
	Ends func(Q) bool

	// Poison tells errors that one request of a batch may have caused. Default: none.
	Poison func(error) bool

	MaxBatch    int // requests in one statement; default 1,024
	MaxQueue    int // calls that may wait; default 65,536
	MaxInFlight int // statements in flight, over all keys; default 4
	PerKey      int // statements in flight that carry one key; default 1

	// Patience is how long the statement that began last must have been under way before another one begins
	// beside it: what arrives meanwhile shares the next. Default 0: another one begins at once.
	Patience time.Duration
}

// Answer is what Run says of one request.
type Answer[A any] struct {
	Value A
	Err   error
	Alone bool // nothing was decided: ask again, once, in a statement that carries no other key
}

// Queue merges concurrent calls of Do into few calls of Run. It is safe for concurrent use.
type Queue[Q, A any] struct {
	o Options[Q, A]

	mu      sync.Mutex
	lanes   map[string]*lane[Q, A] // keys with calls waiting or in flight
	ready   []*lane[Q, A]          // lanes that a statement could take from, longest waiting first
	waiting int
	running int           // statements in flight
	began   time.Time     // when the last of them was sent
	late    *time.Timer   // for when that is long enough ago; nil: nobody waits for it
	spare   sync.Pool     // calls that were answered; their channels are most of what a call would cost
	closed  chan struct{} // not nil once Close was called; closed itself when nothing is left
}

// New makes a Queue. It starts no goroutine: those that it needs live as long as there is work.
func New[Q, A any](o Options[Q, A]) *Queue[Q, A] {
	if o.Run == nil || o.Key == nil {
		panic("merge: Run and Key are required")
	}
	if o.Ends == nil {
		o.Ends = func(Q) bool { return false }
	}
	if o.Poison == nil {
		o.Poison = func(error) bool { return false }
	}
	o.MaxBatch = cmp.Or(o.MaxBatch, 1024)
	o.MaxQueue = cmp.Or(o.MaxQueue, 65536)
	o.MaxInFlight = cmp.Or(o.MaxInFlight, 4)
	o.PerKey = cmp.Or(o.PerKey, 1)
	return &Queue[Q, A]{o: o, lanes: make(map[string]*lane[Q, A])}
}

// Do has req executed and returns its answer. It waits while ctx lives.
func (q *Queue[Q, A]) Do(ctx context.Context, req Q) (A, error) {
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
	if l.idle() && len(q.ready) == 0 && q.mayBegin() {
		q.begin()
		l.flying, l.beside = 1, false
		q.mu.Unlock()
		return q.lone(ctx, l, req)
	}
	if q.waiting >= q.o.MaxQueue && !q.o.Ends(req) {
		q.forget(l)
		q.mu.Unlock()
		return none, fmt.Errorf("%w: %d calls wait already; nothing was sent", dblock.ErrOverloaded, q.o.MaxQueue)
	}
	c := q.call(req, l)
	l.push(c)
	q.waiting++
	q.offer(l)
	q.dispatch()
	q.mu.Unlock()
	return q.wait(ctx, c)
}

func (q *Queue[Q, A]) call(req Q, l *lane[Q, A]) *call[Q, A] {
	c, _ := q.spare.Get().(*call[Q, A])
	if c == nil {
		c = &call[Q, A]{answer: make(chan Answer[A], 1)}
	}
	*c = call[Q, A]{req: req, lane: l, answer: c.answer}
	return c
}

// wait returns the answer of a call that stands in the queue, or why there is none.
func (q *Queue[Q, A]) wait(ctx context.Context, c *call[Q, A]) (A, error) {
	select {
	case a := <-c.answer:
		q.spare.Put(c)
		return a.Value, a.Err
	case <-ctx.Done():
	}
	var none A
	if q.withdraw(c) {
		return none, notSent(ctx)
	}
	select {
	case a := <-c.answer: // it came at the same moment: the truth is better than a guess
		return a.Value, a.Err
	default:
		return none, errors.Join(fmt.Errorf("%w: the wait ended after the request was sent", dblock.ErrOutcomeUnknown), context.Cause(ctx))
	}
}

// lone runs a single request on the caller's goroutine, under the caller's context.
func (q *Queue[Q, A]) lone(ctx context.Context, l *lane[Q, A], req Q) (A, error) {
	defer func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.settle(l)
	}()
	var none A
	answers, err := q.o.Run(ctx, []Q{req}, false)
	if err != nil {
		return none, err
	}
	if answers[0].Alone {
		return none, stayedLocked(l.key)
	}
	return answers[0].Value, answers[0].Err
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
	q.forget(c.lane)
	q.drained()
	return true
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
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("merge: calls are still under way: %w", context.Cause(ctx))
	}
}

// drained tells Close when nothing is left.
func (q *Queue[Q, A]) drained() {
	if q.closed == nil || q.running > 0 || q.waiting > 0 {
		return
	}
	select {
	case <-q.closed:
	default:
		close(q.closed)
	}
}

// ErrNotSent: the caller's context ended while its call stood in the queue. The error says why, too.
var ErrNotSent = errors.New("dblock: the wait ended before the request was sent, nothing was written")

func notSent(ctx context.Context) error { return fmt.Errorf("%w: %w", ErrNotSent, context.Cause(ctx)) }
