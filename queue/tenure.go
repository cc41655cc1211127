package queue

import (
	"context"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/queue/internal/engine"
)

// tenure is one life of the member, as a worker has it: the contexts of its jobs end with it.
type tenure struct {
	life *member.Life
	ctx  context.Context
	end  context.CancelCauseFunc
	stop func() // of being told of its end
}

// claim is a batch of jobs that was claimed at once.
type claim struct {
	id engine.ID
	of *tenure

	// The worker's mutex guards these.
	tasks   []task
	open    int  // jobs whose end has not been confirmed
	here    int  // of them: in the message that is being composed
	closing bool // the message that says that nothing is outstanding is under way, or was confirmed
}

// tenure returns the present one, and begins another where that has ended.
func (w *worker) tenure(ctx context.Context) (*tenure, error) {
	life, err := w.q.member.Life(ctx)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now != nil && w.now.life == life {
		return w.now, nil
	}
	if w.now != nil {
		w.now.stop()
	}
	t := &tenure{life: life}
	t.ctx, t.end = context.WithCancelCause(w.base)
	w.now = t
	t.stop = life.OnEnd(func(why dblock.Reason) { t.end(&dblock.LostError{Key: w.o.Queue, Reason: why}) })
	return t, nil
}

const (
	// settledAfter is how many heartbeats after a claim that got no answer no statement of it can begin any more: one that arrives after
	// two does nothing.
	settledAfter = 3

	// firstLook is after how long a claim that was not found is looked for again, and then after twice as long each time. It may be on
	// its way when it is looked for first, and its jobs would wait for the next heartbeat, which comes late where the TTL is long.
	firstLook = 100 * time.Millisecond
)

// doubt has a claim looked for that got no answer, at once, soon, and with each heartbeat, until it is found or certain that there is none:
// what began before the heartbeats that settle it has ended within Options.Timeout.
func (w *worker) doubt(t *tenure, ask engine.Ask) {
	var settled time.Time
	pause := firstLook
	t.life.Doubt(func(ctx context.Context, beat int64) bool {
		if beat >= ask.Beat+settledAfter && settled.IsZero() {
			settled = time.Now()
		}
		found, err := w.q.engine.Unclaim(ctx, t.life.ID, ask.Claim)
		switch {
		case err != nil:
			w.q.trouble("looking for a claim that got no answer", err)
		case found:
			w.wake()
			return true
		case !settled.IsZero() && time.Since(settled) > w.q.o.Timeout:
			return true
		}
		time.AfterFunc(pause, t.life.Suspect)
		pause *= 2
		return false
	})
	t.life.Suspect()
}
