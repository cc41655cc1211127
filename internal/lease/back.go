package lease

import (
	"context"
	"slices"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/merge"
)

// giveBack releases a lease. The row may be locked: for a moment, by whoever was about to ask for it, or
// for long, by a guarded transaction. Then, and where no clear answer comes, it goes on in the
// background until the server has said that the lease is not ours, or all that was ours has ended.
func (l *Locker) giveBack(ctx context.Context, life *member.Life, backs ...Back) {
	for n := range promptly {
		if l.gaveBack(ctx, backs) {
			return
		}
		if l.sleep(ctx, time.Millisecond<<n) != nil {
			l.doubt(life, backs...)
			return
		}
	}
	begun := l.background(func() {
		for pause := time.Millisecond << promptly; life.Alive(); pause = min(2*pause, time.Second) {
			if l.gaveBack(l.ending, backs) {
				return
			}
			if l.sleep(l.ending, pause) != nil {
				break
			}
		}
		l.doubt(life, backs...)
	})
	if !begun {
		l.doubt(life, backs...) // the process may live on with other Lockers: its heartbeat sees to it
	}
}

// promptly is how often a lease is given back before its caller goes on.
const promptly = 3

func (l *Locker) gaveBack(ctx context.Context, backs []Back) bool {
	if len(backs) > 1 {
		ctx, cancel := context.WithTimeout(ctx, l.bound())
		defer cancel()
		got, err := l.engine.ReleaseAll(ctx, backs)
		return err == nil && !slices.ContainsFunc(got, stands)
	}
	got, err := l.release.Do(ctx, backs[0]) // each statement is bounded, and so is the wait for it
	return err == nil && !stands(got)
}

func stands(r Returned) bool { return r.Stood && !r.Freed }

// background runs f beside the callers; false where the Locker is closed.
func (l *Locker) background(f func()) (begun bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.tasks.Go(f)
	}
	return !l.closed
}

// doubt undoes what an acquisition may have left behind that got no answer. It was sent under a beat no later than the
// present one, so it begins no later than one heartbeat after that, and then may wait for a lock: three heartbeats and
// that wait later it is certain.
func (l *Locker) doubt(life *member.Life, backs ...Back) {
	sent := life.Beat()
	over := l.o.Clock.Now().Add(l.member.TTL() + l.engine.Lingers())
	undo := l.free
	if len(backs) > 1 {
		undo = l.engine.ReleaseAll
	}
	life.Doubt(func(ctx context.Context, beat int64) bool {
		got, err := undo(ctx, backs)
		certain := beat >= sent+3 && l.o.Clock.Now().After(over)
		return err == nil && !slices.ContainsFunc(got, func(r Returned) bool { return !r.Freed && (r.Stood || !certain) })
	})
}

// free gives a batch back; a fair Locker to those who wait for it.
func (l *Locker) free(ctx context.Context, backs []Back) ([]Returned, error) {
	if l.o.Fair && backs[0].Mode == dblock.Exclusive {
		return l.engine.PassOn(ctx, backs)
	}
	return l.engine.Release(ctx, backs)
}

// runRelease is one statement of the queue for each mode. A key may stand in a batch more than once, as two handles of it
// may be given back at once; what is exclusive goes out once.
func (l *Locker) runRelease(ctx context.Context, batch []Back, _ bool) ([]merge.Answer[Returned], error) {
	ctx, cancel := context.WithTimeout(ctx, l.bound())
	defer cancel()
	answers := make([]merge.Answer[Returned], len(batch))
	left := make([]int, len(batch))
	for i := range batch {
		left[i] = i
	}
	for len(left) > 0 {
		var now, later []int
		keys := make(map[string]bool, len(left))
		mode := batch[left[0]].Mode
		for _, i := range left {
			if batch[i].Mode != mode || mode == dblock.Exclusive && keys[batch[i].Key] {
				later = append(later, i)
				continue
			}
			keys[batch[i].Key] = true
			now = append(now, i)
		}
		backs := make([]Back, len(now))
		for n, i := range now {
			backs[n] = batch[i]
		}
		got, err := l.free(ctx, backs)
		if err != nil {
			return nil, err
		}
		for n, i := range now {
			answers[i].Value = got[n]
		}
		left = later
	}
	return answers, nil
}
