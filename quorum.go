package dblock

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
)

// Quorum acquires locks on a majority of independent databases, of any mix of products: the Redlock
// of the literature. It works while a majority of them is up, and is a Locker itself. Make it with
// NewQuorum. It is safe for concurrent use.
//
// It guarantees that no two holders have a key at the same time by their own clocks, on two
// conditions. No clock of a database or a holder runs faster than another by more than Drift and
// the nodes' Margin allow. And no database forgets a lock that it has granted: NewQuorum refuses
// settings that allow this, but can't prevent a restore from a backup, or a failover to a replica
// that lags behind.
//
// It does not guarantee that a paused holder notices the loss before it writes. No token grows
// across databases, so there is no guard: Lock.Fence returns false, and GuardedTx refuses these
// locks. If the data is in one database, a lease there with guarded writes is both safer and
// faster. A Quorum is for side effects elsewhere, while any one database may be down.
type Quorum struct {
	nodes    []Locker
	majority int
	o        QuorumOptions
	clock    clock.Clock
	caps     Caps

	mu     sync.Mutex
	holds  map[*quorumHold]struct{}
	queues map[string]*quorumQueue // one a key
	closed bool
	empty  chan struct{} // closed when no hold is left; made by Close
	ending context.Context
	end    context.CancelCauseFunc
	tasks  sync.WaitGroup // calls that have not ended, and calls of nodes that go on behind their callers
}

var _ Locker = (*Quorum)(nil)

// QuorumOptions of a Quorum. The zero value is good for use.
type QuorumOptions struct {
	// NodeTimeout is for how long a call waits for the reply of a node, and Release for those of
	// all nodes. It should be much shorter than a lock lasts. Default 1 s; 1 ms to 1 min.
	NodeTimeout time.Duration

	// Drift is by how much earlier than its nodes say a lock ends: for clocks that run at different
	// speeds. Default 2 ms, or 1 % and 2 ms of the time that WithoutRenewal, WithMaxHold or
	// ExpireIn gives if that ends it sooner than the nodes' Margin does. It is shorter than a
	// majority of the nodes trust a lock without a heartbeat (Caps.TrustedFor).
	Drift time.Duration

	Observer Observer // HeartbeatLate is reported by the nodes. A panic ends nothing.
}

const defaultNodeTimeout = time.Second

// NewQuorum makes a Quorum of an odd number of nodes, 3 at least. Each node is a Locker of a
// database of its own on a server of its own, and all processes use the same ones; NewQuorum checks
// neither. The caller closes the nodes after the Quorum. Nothing is sent.
//
// Errors: ErrInvalid if the number is even or less than 3, a node is nil or given twice, or Drift
// is so long that no lock could be granted. ErrUnsupported if a node's server may forget granted
// locks in a crash (see Caps.Durable): the error names the node and the setting.
func NewQuorum(nodes []Locker, o QuorumOptions) (*Quorum, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if len(nodes) < 3 || len(nodes)%2 == 0 {
		return nil, &InvalidError{"nodes", fmt.Sprintf("there are %d, not 3 or another odd number above that", len(nodes))}
	}
	caps := Caps{MaxHold: true, SurvivesConnectionLoss: true, PoolerSafe: true, Durable: true}
	var trusted []time.Duration
	for i, node := range nodes {
		if err := checkNode(nodes, i); err != nil {
			return nil, err
		}
		of := node.Caps()
		trusted = append(trusted, cmp.Or(of.TrustedFor, math.MaxInt64))
		caps.MaxHold = caps.MaxHold && of.MaxHold
		caps.SurvivesConnectionLoss = caps.SurvivesConnectionLoss && of.SurvivesConnectionLoss
		caps.PoolerSafe = caps.PoolerSafe && of.PoolerSafe
	}
	q := &Quorum{
		nodes: append([]Locker(nil), nodes...), majority: len(nodes)/2 + 1, o: o, clock: clockOf(nodes[0]), caps: caps,
		holds: make(map[*quorumHold]struct{}), queues: make(map[string]*quorumQueue),
	}
	slices.Sort(trusted)
	if most := trusted[len(nodes)-q.majority]; o.Drift >= most {
		return nil, &InvalidError{"QuorumOptions.Drift",
			fmt.Sprintf("%v is not shorter than the %v for which a majority of the nodes trust a lock", o.Drift, most)}
	}
	q.ending, q.end = context.WithCancelCause(context.Background())
	return q, nil
}

func (o QuorumOptions) withDefaults() (QuorumOptions, error) {
	if o.NodeTimeout == 0 {
		o.NodeTimeout = defaultNodeTimeout
	}
	switch {
	case o.NodeTimeout < time.Millisecond || o.NodeTimeout > time.Minute:
		return o, &InvalidError{"QuorumOptions.NodeTimeout", fmt.Sprintf("%v is not within 1ms to 1m", o.NodeTimeout)}
	case o.Drift < 0:
		return o, &InvalidError{"QuorumOptions.Drift", fmt.Sprintf("%v is negative", o.Drift)}
	}
	o.Observer = o.Observer.guarded(nil)
	return o, nil
}

// isNil detects a nil interface and a nil pointer in one.
func isNil(l Locker) bool {
	v := reflect.ValueOf(l)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// checkNode refuses a node that is none, is there before, or forgets.
func checkNode(nodes []Locker, i int) error {
	node, field := nodes[i], fmt.Sprintf("nodes[%d]", i)
	if isNil(node) {
		return &InvalidError{field, "it is nil"}
	}
	for j, before := range nodes[:i] {
		if reflect.TypeOf(node) == reflect.TypeOf(before) && reflect.TypeOf(node).Comparable() && node == before {
			return &InvalidError{field, fmt.Sprintf("it is nodes[%d] again", j)}
		}
	}
	if caps := node.Caps(); !caps.Durable {
		why := caps.NotDurable
		if why == "" {
			why = fmt.Sprintf("a %T does not promise otherwise", node)
		}
		return fmt.Errorf("%w: nodes[%d] may forget what it has granted when its server crashes: %s", ErrUnsupported, i, why)
	}
	return nil
}

// Acquire asks all nodes at once, and again after a random pause, until a majority has granted the
// lock of key or ctx ends. Callers of one process are served in the order of their calls. Only the
// first of them asks the nodes, and a release hands the lock to the next one. After 100 ms of that
// it is released on the nodes, so that other processes get it.
//
// Errors: as for Locker.Acquire. A *HeldError names the holder of key on one of the nodes;
// ErrUnavailable, which matches the context's error too if that ended the wait, says that too few
// nodes have answered. Whatever had been granted by then is released, in the background if ctx has
// ended.
func (q *Quorum) Acquire(ctx context.Context, key string, opts ...Option) (*Lock, error) {
	r, err := newRequest(1, key, opts)
	if err != nil {
		return nil, err
	}
	return q.observed(ctx, r, q.wait)
}

// TryAcquire asks all nodes once, and waits no longer than NodeTimeout. Two that try at the same
// moment may both fail. While another caller of this process holds the key, or waits for it, no
// node is asked.
func (q *Quorum) TryAcquire(ctx context.Context, key string, opts ...Option) (*Lock, error) {
	r, err := newRequest(1, key, opts)
	if err != nil {
		return nil, err
	}
	return q.observed(ctx, r, q.try)
}

// Caps says what locks of a majority promise: what all nodes do, but for tokens.
func (q *Quorum) Caps() Caps { return q.caps }

// observed is what Acquire and TryAcquire have in common.
func (q *Quorum) observed(
	ctx context.Context, r request, how func(context.Context, request) (*Lock, error),
) (*Lock, error) {
	if r.Mode != ModeExclusive {
		return nil, fmt.Errorf("%w: a Quorum has no shared mode: take a lease in one database", ErrUnsupported)
	}
	if r.MaxHold != nil && *r.MaxHold <= q.drift(*r.MaxHold) {
		return nil, &InvalidError{"duration", fmt.Sprintf("%v is not longer than the drift of %v: no lock could be granted", *r.MaxHold, q.drift(*r.MaxHold))}
	}
	if lock, err := reenter(ctx, q, r); lock != nil || err != nil {
		return lock, err
	}
	if !q.begin() {
		return nil, fmt.Errorf("%w: nothing was sent", ErrClosed)
	}
	defer q.tasks.Done()
	began := q.clock.Now()
	lock, err := how(ctx, r)
	waited := q.clock.Now().Sub(began)
	if err == nil && q.o.Observer.Acquired != nil {
		q.o.Observer.Acquired(r.Key, waited)
	}
	if err != nil && q.o.Observer.NotAcquired != nil {
		q.o.Observer.NotAcquired(r.Key, waited, err)
	}
	return lock, err
}

// Close refuses further calls, ends the contexts of the locks of this Quorum, and waits, while ctx
// lives, until they are released and the nodes have answered. When ctx ends, Close returns, and
// releases in the background what its callers have not released. The nodes stay open.
func (q *Quorum) Close(ctx context.Context) error {
	q.mu.Lock()
	if q.empty == nil {
		q.closed = true
		q.empty = make(chan struct{})
		if len(q.holds) == 0 {
			close(q.empty)
		}
	}
	all := slices.Collect(maps.Keys(q.holds))
	empty := q.empty
	q.end(fmt.Errorf("%w", ErrClosed))
	q.mu.Unlock()
	for _, h := range all {
		h.lose(ReasonClosed)
	}
	err := clock.Await(ctx, empty, "locks are still in use")
	if err == nil {
		ctx, stop := clock.Late(ctx)
		defer stop()
		return clock.Await(ctx, clock.After(q.tasks.Wait), "operations are still under way")
	}
	for _, h := range all {
		go h.releaseAll(context.WithoutCancel(ctx))
	}
	return err
}
