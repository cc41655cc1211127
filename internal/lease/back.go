package lease

import (
	"context"
	"fmt"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/merge"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// foreground is how long the end of a lock waits for the server, a hand-over included. What is not confirmed by then
// goes on in the background.
const foreground = time.Second

// promptly is how often a release is sent before it goes on in the background.
const promptly = 3

// giveBack releases what was granted. Where the server does not confirm it soon, or the row is locked, by a guarded
// transaction for example, the reconciler goes on with it. missing tells that the database did not have all of it any more
// when it was first asked. After an attempt without an answer that is not known: it may have released it. The error is
// that of a server that refuses the release.
func (l *Locker) giveBack(ctx context.Context, life *member.Life, backs ...ReleaseRequest) (missing bool, refused error) {
	ctx, cancel := context.WithTimeout(ctx, foreground)
	defer cancel()
	certain := true
	for n := range promptly {
		got, lacks, err := l.gaveBack(ctx, backs)
		certain, refused = certain && err == nil, l.reconciler.refusal(err)
		missing = certain && (missing || lacks)
		if err == nil && !stands(got) {
			l.reconciler.handles.remove(backs[0].Handle)
			return missing, nil
		}
		if l.sleep(ctx, time.Millisecond<<n) != nil {
			break
		}
	}
	l.reconciler.add(life, l.o.Fair, true, backs...)
	if refused != nil {
		what := fmt.Sprintf("the server refuses to release %q, and is asked again in the background", backs[0].Key)
		refused = sqlerr.Wrap(l.Traits.Classify(refused), refused, what, "")
	}
	return missing, refused
}

func (l *Locker) gaveBack(ctx context.Context, backs []ReleaseRequest) (got ReleaseResult, missing bool, err error) {
	r := returningOf(l.o.Fair, backs)
	if r.set != nil {
		return releaseSet(ctx, l.Driver, r.set)
	}
	got, err = l.release.Do(ctx, r)
	return got, err == nil && isMissing(got), err
}

func stands(r ReleaseResult) bool { return r.Stood && !r.Freed }

// isMissing tells that the database did not have a lease when it was asked to release it.
func isMissing(r ReleaseResult) bool { return !r.Stood && !r.Freed }

// doubt releases what an acquisition without an answer may have been granted.
func (l *Locker) doubt(life *member.Life, backs ...ReleaseRequest) {
	l.reconciler.add(life, l.o.Fair, false, backs...)
}

// late releases what was granted after its caller had left.
func (l *Locker) late(mode dblock.Mode, a ask, granted bool, err error) {
	switch {
	case err != nil && l.mayStand(err):
		l.doubt(a.life, a.back(mode))
	case err == nil && granted:
		l.reconciler.add(a.life, l.o.Fair, true, a.back(mode))
	default:
		l.reconciler.handles.remove(a.Handle)
	}
}

// background runs f beside the callers; false where the Locker is closed.
func (l *Locker) background(f func()) (begun bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.tasks.Go(f)
	}
	return !l.closed
}

// runRelease is one statement of the queue for each kind.
func (l *Locker) runRelease(ctx context.Context, batch []returning, _ bool) ([]merge.Answer[ReleaseResult], error) {
	ctx, cancel := context.WithTimeout(ctx, l.bound())
	defer cancel()
	return releaseBatch(ctx, l.Driver, batch)
}
