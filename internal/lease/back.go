package lease

import (
	"context"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/merge"
)

// foreground is how long the end of a lock waits for the server, a hand-over included. What is not confirmed by then
// goes on in the background.
const foreground = time.Second

// promptly is how often a release is sent before it goes on in the background.
const promptly = 3

// giveBack releases what was granted. Where the server does not confirm it soon, or the row is locked, by a guarded
// transaction for example, the reconciler goes on with it.
func (l *Locker) giveBack(ctx context.Context, life *member.Life, backs ...Back) {
	ctx, cancel := context.WithTimeout(ctx, foreground)
	defer cancel()
	for n := range promptly {
		if l.gaveBack(ctx, backs) {
			return
		}
		if l.sleep(ctx, time.Millisecond<<n) != nil {
			break
		}
	}
	l.reconciler.add(life, l.o.Fair, true, backs...)
}

func (l *Locker) gaveBack(ctx context.Context, backs []Back) bool {
	r := returningOf(l.o.Fair, backs)
	if r.set != nil {
		got, err := releaseSet(ctx, l.engine, r.set)
		return err == nil && !stands(got)
	}
	got, err := l.release.Do(ctx, r)
	return err == nil && !stands(got)
}

func stands(r Returned) bool { return r.Stood && !r.Freed }

// doubt releases what an acquisition without an answer may have been granted.
func (l *Locker) doubt(life *member.Life, backs ...Back) {
	l.reconciler.add(life, l.o.Fair, false, backs...)
}

// late releases what was granted after its caller had left.
func (l *Locker) late(mode dblock.Mode, a ask, granted bool, err error) {
	switch {
	case err != nil && l.mayStand(err):
		l.doubt(a.life, a.back(mode))
	case err == nil && granted:
		l.reconciler.add(a.life, l.o.Fair, true, a.back(mode))
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
func (l *Locker) runRelease(ctx context.Context, batch []returning, _ bool) ([]merge.Answer[Returned], error) {
	ctx, cancel := context.WithTimeout(ctx, l.bound())
	defer cancel()
	return releaseBatch(ctx, l.engine, batch)
}
