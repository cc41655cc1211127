package lease

import (
	"context"
	"time"

	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/merge"
)

// giveBack releases a lease. The row may be locked: for a moment, by whoever was about to ask for it, or
// for long, by a guarded transaction. Then, and where no clear answer comes, it goes on in the
// background until the server has said that the lease is not ours, or all that was ours has ended.
func (l *Locker) giveBack(ctx context.Context, b Back, life *member.Life) {
	for n := range promptly {
		if l.gaveBack(ctx, b) {
			return
		}
		if l.sleep(ctx, time.Millisecond<<n) != nil {
			l.doubt(life, b)
			return
		}
	}
	begun := l.background(func() {
		for pause := time.Millisecond << promptly; life.Alive(); pause = min(2*pause, time.Second) {
			if l.gaveBack(l.ending, b) {
				return
			}
			if l.sleep(l.ending, pause) != nil {
				break
			}
		}
		l.doubt(life, b)
	})
	if !begun {
		l.doubt(life, b) // the process may live on with other Lockers: its heartbeat sees to it
	}
}

// promptly is how often a lease is given back before its caller goes on.
const promptly = 3

func (l *Locker) gaveBack(ctx context.Context, b Back) bool {
	got, err := l.release.Do(ctx, b) // each statement is bounded, and so is the wait for it
	return err == nil && (got.Freed || !got.Stood)
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

// doubt undoes what an acquisition may have left behind that got no answer. It was sent under a beat no later than the
// present one, so it begins no later than one heartbeat after that, and then may wait for a lock: three heartbeats and
// that wait later it is certain.
func (l *Locker) doubt(life *member.Life, b Back) {
	sent := life.Beat()
	over := l.o.Clock.Now().Add(l.member.TTL() + l.engine.Lingers())
	life.Doubt(func(ctx context.Context, beat int64) bool {
		got, err := l.engine.Release(ctx, []Back{b})
		certain := beat >= sent+3 && l.o.Clock.Now().After(over)
		return err == nil && (got[0].Freed || !got[0].Stood && certain)
	})
}

// runRelease is one statement of the queue. A key may stand in a batch more than once, as two handles of it
// may be given back at once, and goes out once.
func (l *Locker) runRelease(ctx context.Context, batch []Back, _ bool) ([]merge.Answer[Returned], error) {
	ctx, cancel := context.WithTimeout(ctx, l.bound())
	defer cancel()
	answers := make([]merge.Answer[Returned], len(batch))
	left := make([]int, len(batch))
	for i := range batch {
		left[i] = i
	}
	for len(left) > 0 {
		var backs []Back
		var at, later []int
		keys := make(map[string]bool, len(left))
		for _, i := range left {
			if keys[batch[i].Key] {
				later = append(later, i)
				continue
			}
			keys[batch[i].Key] = true
			backs, at = append(backs, batch[i]), append(at, i)
		}
		got, err := l.engine.Release(ctx, backs)
		if err != nil {
			return nil, err
		}
		for n, i := range at {
			answers[i].Value = got[n]
		}
		left = later
	}
	return answers, nil
}
