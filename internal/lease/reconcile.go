package lease

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/batch"
	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/member"
)

// reconciler releases in the background what no caller uses any more:
//
//   - an acquisition without an answer, should it have been granted;
//   - an acquisition that was granted after its caller had left;
//   - a release without an answer, or of a row that was locked.
//
// Each operation begins at once, and shares its statement with the others that are due. It is
// repeated after 100 ms, 200 ms and so on, and with each heartbeat, until the server has answered.
// A row that was locked is repeated sooner. An operation ends with the member that would keep its
// lease alive; a lease that no member keeps is released by whatever member the process has, until
// its own end.
//
// The Lockers of a Share have one reconciler, which outlives each of them.
type reconciler struct {
	driver Driver
	traits Traits
	member *member.Member
	clock  clock.Clock
	queue  *batch.Queue[*operation, ReleaseResult]

	handles  handles
	refusals refusals
	slow     atomic.Int64 // rechecks in a row that have failed

	mu     sync.Mutex
	open   map[*operation]struct{} // those that have not ended
	begun  int                     // all that there were
	timer  clock.Timer             // for the first that is due; nil: none is
	at     time.Time               // when it is
	closed bool
}

// operation is one lease to be released, or all of a set.
type operation struct {
	releaseCall
	granted bool // it was granted: once the server does not have it, it is released
	inc     *member.Incarnation
	sent    int64     // the heartbeat that was confirmed when it was asked for, or a later one
	certain time.Time // when it can't be granted any more, at the earliest

	n       int // they are sent in this order
	tries   int
	posted  bool      // a statement carries it, or is to
	again   bool      // and another one shall at once
	due     time.Time // when it is sent again, if it is not posted
	waiting []func()  // called when it has an answer
}

const (
	firstRepeat  = 100 * time.Millisecond // after an operation that is not resolved
	firstLocked  = 10 * time.Millisecond  // the same where its row was locked
	longestPause = time.Second            // between two tries for what is still held, or where no answer came

	maxOpen = 65_536 // operations without an answer; past it nothing is acquired
)

func newReconciler(b Backend, m *member.Member, c clock.Clock) *reconciler {
	r := &reconciler{driver: b.Driver, traits: b.Traits, member: m, clock: c, open: make(map[*operation]struct{})}
	r.queue = batch.New(batch.Options[*operation, ReleaseResult]{
		Run: r.run, Key: func(o *operation) string { return o.Key }, Ends: func(*operation) bool { return true },
		Classify: b.Traits.Classify,
		Weight:   func(o *operation) int { return o.weight() }, MaxWeight: b.Traits.maxWeight(), MaxInFlight: inFlight, Patience: patience,
	})
	m.Listen(member.Listener{Confirmed: r.confirmed, Recheck: r.recheck})
	return r
}

// add begins an operation. Several backs are one set.
func (r *reconciler) add(inc *member.Incarnation, fair, granted bool, backs ...ReleaseRequest) {
	r.handles.add(backs[0].Handle)
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	o := &operation{
		releaseCall: releaseCallOf(fair, backs), granted: granted, inc: inc, n: r.begun,
		sent: inc.Heartbeat(), certain: now.Add(r.member.TTL() + r.traits.LockWait),
	}
	if granted {
		o.certain = now
	}
	r.open[o] = struct{}{}
	r.begun++
	r.post(o)
}

// inOrder returns the operations in the order in which they began; r.mu is held.
func (r *reconciler) inOrder() []*operation {
	return slices.SortedFunc(maps.Keys(r.open), func(a, b *operation) int { return a.n - b.n })
}

// mayAcquire refuses acquisitions while too many operations are without an answer: each may add one
// more.
func (q *requester) mayAcquire() error {
	r := q.reconciler
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.open) < maxOpen {
		return nil
	}
	return fmt.Errorf("%w: %d operations have no reply from the database; nothing was sent", dblock.ErrOverloaded, len(r.open))
}

// post sends an operation with the next statement; r.mu is held.
func (r *reconciler) post(o *operation) {
	o.posted, o.again = !r.isObsolete(o) && r.queue.Post(o, func(got ReleaseResult, err error) { r.answered(o, got, err) }), false
	if !o.posted {
		r.end(o)
	}
}

// end forgets an operation; r.mu is held.
func (r *reconciler) end(o *operation) {
	delete(r.open, o)
	r.handles.remove(o.Handle)
	o.notify()
}

func (o *operation) notify() {
	for _, f := range o.waiting {
		f()
	}
	o.waiting = nil
}

// isObsolete reports whether an operation needs no answer any more: the leases that it was to
// release have ended by themselves. While the member is alive, none has: the member keeps a ticket
// of a caller that has left, whatever end the lease had.
func (r *reconciler) isObsolete(o *operation) bool {
	if !o.inc.Lost() {
		return false
	}
	if o.Lasts == 0 {
		return true
	}
	now := r.clock.Now()
	if (!o.granted || o.fair) && o.sent >= 0 { // the member's row may outlive what this process believes
		o.sent, o.certain = -1, now.Add(2*r.member.TTL()+r.traits.LockWait)
	}
	return r.isCertain(o) && now.After(o.certain.Add(o.Lasts+statementBound(r.member)))
}

// answered takes over what the server said of an operation.
func (r *reconciler) answered(o *operation, got ReleaseResult, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && (got.Freed || !got.Held && r.isCertain(o)) || r.isObsolete(o) || r.closed {
		r.end(o)
		return
	}
	o.posted = false
	if o.again {
		r.post(o)
		return
	}
	o.notify()
	pause := firstRepeat << min(o.tries, 20)
	switch {
	case err == nil && got.Held:
		pause = min(firstLocked<<min(o.tries, 20), longestPause)
	case err != nil:
		pause = min(pause, longestPause)
	}
	o.tries++
	o.due = r.clock.Now().Add(pause)
	r.wakeAt(o.due)
}

// isCertain reports whether an operation that the server does not have can't be granted any more.
// It was sent with a heartbeat no later than o.sent. So it begins no later than one heartbeat after
// that, and then may wait for a lock.
func (r *reconciler) isCertain(o *operation) bool {
	return o.granted || (o.sent < 0 || o.inc.Heartbeat() >= o.sent+3) && r.clock.Now().After(o.certain)
}

// wakeAt has wake called at a moment, at the latest; r.mu is held.
func (r *reconciler) wakeAt(at time.Time) {
	if r.timer != nil {
		if !at.Before(r.at) {
			return
		}
		r.timer.Stop()
	}
	r.at = at
	r.timer = r.clock.AfterFunc(at.Sub(r.clock.Now()), r.wake)
}

// wake sends what is due.
func (r *reconciler) wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timer = nil
	if r.closed {
		return
	}
	now := r.clock.Now()
	var next time.Time
	for _, o := range r.inOrder() {
		switch {
		case o.posted:
		case !o.due.After(now):
			r.post(o)
		case next.IsZero() || o.due.Before(next):
			next = o.due
		}
	}
	if !next.IsZero() {
		r.wakeAt(next)
	}
}

// confirmed sends all that waits, as the server answers, and returns when it has answered.
func (r *reconciler) confirmed() {
	var results sync.WaitGroup
	r.mu.Lock()
	for _, o := range r.inOrder() {
		results.Add(1)
		o.waiting = append(o.waiting, results.Done)
		if o.again = o.posted; !o.posted {
			r.post(o)
		}
	}
	r.mu.Unlock()
	results.Wait()
}

// reconciling marks the context of a reconciler's statements.
type reconciling struct{}

// Reconciles reports whether a call of a Driver comes from a reconciler.
func Reconciles(ctx context.Context) bool { return ctx.Value(reconciling{}) != nil }

// run is one statement of the queue for each kind.
func (r *reconciler) run(ctx context.Context, requests []*operation, _ bool) ([]batch.Result[ReleaseResult], error) {
	items := make([]releaseCall, len(requests))
	for i, o := range requests {
		items[i] = o.releaseCall
	}
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, reconciling{}, true), statementBound(r.member))
	defer cancel()
	results, err := releaseBatch(ctx, r.driver, items)
	_ = r.refusal(err)
	for _, a := range results {
		_ = r.refusal(a.Err)
	}
	return results, err
}

// close waits for what is under way, for as long as a caller would, after a last try of what no
// member keeps. The rest ends with the member.
func (r *reconciler) close() {
	r.mu.Lock()
	if r.timer != nil {
		r.timer.Stop()
	}
	for _, o := range r.inOrder() {
		if o.Lasts != 0 && !o.posted {
			r.post(o)
		}
	}
	r.closed = true
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), foreground)
	defer cancel()
	_ = r.queue.Close(ctx) // what is later ends at the server by itself
}

// releaseCall is one lease to be released, or all of a set.
type releaseCall struct {
	ReleaseRequest                  // the set's first
	set            []ReleaseRequest // nil: one lease
	fair           bool             // its key goes to the lowest ticket
}

func releaseCallOf(fair bool, backs []ReleaseRequest) releaseCall {
	r := releaseCall{ReleaseRequest: backs[0], fair: fair}
	if len(backs) > 1 {
		r.set = backs
	}
	return r
}

func (r releaseCall) weight() int {
	if r.set == nil {
		return releaseWeight(r.ReleaseRequest)
	}
	all := 0
	for _, b := range r.set {
		all += releaseWeight(b)
	}
	return all
}

// releaseKind is the kind of a statement that releases locks of a mode.
func releaseKind(mode dblock.Mode, fair bool) Kind {
	if fair && mode == dblock.ModeExclusive {
		return KindFair
	}
	return kinds[mode]
}

// releaseSet releases all of a set in a statement of its own. A part of a set is never released: a
// waiter could acquire that part, and wait for the rest. missing reports that the database did not
// have all of it any more.
func releaseSet(ctx context.Context, d Driver, set []ReleaseRequest) (all ReleaseResult, missing bool, err error) {
	got, err := d.Release(ctx, ReleaseBatch{KindSet, set})
	if err != nil {
		return ReleaseResult{}, false, err
	}
	return ReleaseResult{
		Freed: slices.ContainsFunc(got, func(r ReleaseResult) bool { return r.Freed }) && !slices.ContainsFunc(got, stillHeld),
		Held:  slices.ContainsFunc(got, func(r ReleaseResult) bool { return r.Held }),
	}, slices.ContainsFunc(got, isMissing), nil
}

// releaseBatch is one statement for each kind, and one for each set. A batch may have a key more
// than once. An exclusive lease of a key is released once in a statement; KindFair takes all
// handles of a key at once. A statement that fails after others is the error of what it carried: to
// send those again would find nothing of what they have released.
func releaseBatch(ctx context.Context, d Driver, requests []releaseCall) ([]batch.Result[ReleaseResult], error) {
	results := make([]batch.Result[ReleaseResult], len(requests))
	left := make([]int, len(requests))
	for i := range requests {
		left[i] = i
	}
	for sent := false; len(left) > 0; sent = true {
		first := requests[left[0]]
		if first.set != nil {
			got, _, err := releaseSet(ctx, d, first.set)
			if err != nil && !sent {
				return nil, err
			}
			results[left[0]] = batch.Result[ReleaseResult]{Value: got, Err: err}
			left = left[1:]
			continue
		}
		var now, later []int
		keys := make(map[string]bool, len(left))
		for _, i := range left {
			b := requests[i]
			if b.set != nil || b.Mode != first.Mode || b.fair != first.fair || b.Mode == dblock.ModeExclusive && !b.fair && keys[b.Key] {
				later = append(later, i)
				continue
			}
			keys[b.Key] = true
			now = append(now, i)
		}
		backs := make([]ReleaseRequest, len(now))
		for n, i := range now {
			backs[n] = requests[i].ReleaseRequest
		}
		got, err := d.Release(ctx, ReleaseBatch{releaseKind(first.Mode, first.fair), backs})
		if err != nil && !sent {
			return nil, err
		}
		for n, i := range now {
			if results[i].Err = err; err == nil {
				results[i].Value = got[n]
			}
		}
		left = later
	}
	return results, nil
}
