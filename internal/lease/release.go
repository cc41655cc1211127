package lease

import (
	"context"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/batch"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// foreground is how long the end of a lock waits for the server, a hand-over included. What is not
// confirmed by then goes on in the background.
const foreground = time.Second

// promptly is how often a release is sent before it goes on in the background.
const promptly = 3

// releaseNow releases what was granted. If the server does not confirm it soon, or the row is
// locked, for example by a guarded transaction, the reconciler continues. missing reports that the
// database did not have all of it any more when it was first asked. After an attempt without an
// answer that is unknown: that attempt may have released it. The error is that of a server that
// refuses the release.
func (q *requester) releaseNow(ctx context.Context, inc *member.Incarnation, backs ...ReleaseRequest) (missing bool, refused error) {
	ctx, cancel := context.WithTimeout(ctx, foreground)
	defer cancel()
	certain := true
	for n := range promptly {
		got, lacks, err := q.tryRelease(ctx, backs)
		certain, refused = certain && err == nil, q.reconciler.refusal(err)
		missing = certain && (missing || lacks)
		if err == nil && !stillHeld(got) {
			q.reconciler.handles.remove(backs[0].Handle)
			return missing, nil
		}
		if q.sleep(ctx, time.Millisecond<<n) != nil {
			break
		}
	}
	q.reconciler.add(inc, q.o.Fair, true, backs...)
	if refused != nil {
		what := fmt.Sprintf("the server refuses to release %q, and is asked again in the background", backs[0].Key)
		refused = sqlerr.Wrap(q.Traits.Classify(refused), refused, what, "")
	}
	return missing, refused
}

func (q *requester) tryRelease(ctx context.Context, backs []ReleaseRequest) (got ReleaseResult, missing bool, err error) {
	r := releaseCallOf(q.o.Fair, backs)
	if r.set != nil {
		return releaseSet(ctx, q.Driver, r.set)
	}
	got, err = q.release.Do(ctx, r)
	return got, err == nil && isMissing(got), err
}

func stillHeld(r ReleaseResult) bool { return r.Held && !r.Freed }

// isMissing reports that the database did not have a lease when it was asked to release it.
func isMissing(r ReleaseResult) bool { return !r.Held && !r.Freed }

// releaseUnresolved releases what an acquisition without an answer may have been granted.
func (q *requester) releaseUnresolved(inc *member.Incarnation, backs ...ReleaseRequest) {
	q.reconciler.add(inc, q.o.Fair, false, backs...)
}

// late releases what was granted after its caller had left.
func (q *requester) late(inc *member.Incarnation, granted bool, err error, backs ...ReleaseRequest) {
	switch {
	case err != nil && q.mayBeHeld(err):
		q.releaseUnresolved(inc, backs...)
	case err == nil && granted:
		q.reconciler.add(inc, q.o.Fair, true, backs...)
	default:
		q.reconciler.handles.remove(backs[0].Handle)
	}
}

// background runs f beside the callers; false if the Locker is closed.
func (t *tasks) background(f func()) (begun bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.all.Go(f)
	}
	return !t.closed
}

// runRelease is one statement of the queue for each kind.
func (q *requester) runRelease(ctx context.Context, batch []releaseCall, _ bool) ([]batch.Result[ReleaseResult], error) {
	ctx, cancel := context.WithTimeout(ctx, q.bound())
	defer cancel()
	return releaseBatch(ctx, q.Driver, batch)
}
