package queue

import (
	"context"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/queue/internal/driver"
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
	id driver.ID
	of *tenure

	broken int64 // connections, before it was made

	// The worker's mutex guards these.
	tasks   []task
	open    int  // jobs whose end has not been confirmed
	here    int  // of them: in the message that is being composed
	closing bool // the message that says that nothing is outstanding is under way, or was confirmed
}

// tenure returns the present one, and begins another if that has ended.
func (w *worker) tenure(ctx context.Context) (*tenure, error) {
	life, err := w.q.member.Life(ctx)
	if err != nil {
		return nil, err
	}
	w.q.reconciles(life)
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
	t.stop = life.OnEnd(func(why dblock.Reason) (tell func()) {
		t.end(&dblock.LostError{Key: w.o.Queue, Reason: why})
		return nil
	})
	return t, nil
}
