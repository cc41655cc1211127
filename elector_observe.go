package dblock

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/dblock-go/dblock/internal/pace"
)

// Leader reads the leader, with the data that it publishes.
//
// Errors: ErrNotHeld if no living process leads, with the token of the last term if that is known,
// and what else the Locker's Holder returns.
func (e *Elector) Leader(ctx context.Context) (HeldLock, error) {
	h, err := e.look.Holder(ctx, e.key)
	if err == nil && h.Mode != ModeExclusive {
		return HeldLock{Key: e.key}, fmt.Errorf("%w: no process leads: %q is held in mode %v", ErrNotHeld, e.key, h.Mode)
	}
	return h, err
}

// Observe yields the leader, and then each change, until ctx ends; ErrNotHeld is yielded if
// there is no leader. It needs no Run. It looks every ElectorOptions.Poll: terms that came and went
// in between are not seen.
//
// While the leader can't be read the error is yielded once, and then, once it can, the leader by
// then. An error that does not go away by itself, such as ErrSchema, is the last that is yielded.
func (e *Elector) Observe(ctx context.Context) iter.Seq2[HeldLock, error] {
	return func(yield func(HeldLock, error) bool) {
		var last observation
		for {
			leader, err := e.Leader(ctx)
			if ctx.Err() != nil {
				return
			}
			now := seen(leader, err)
			if now != last && !yield(leader, err) {
				return
			}
			if now.failed && !temporary(err) {
				return
			}
			last = now
			if sleep(ctx, e.clock, pace.Jitter(e.o.Poll)) != nil {
				return
			}
		}
	}
}

// observation is what Observe saw: one of its fields is set, and none before it has looked.
type observation struct {
	leader         Fence
	nobody, failed bool
}

func seen(leader HeldLock, err error) observation {
	switch {
	case err == nil:
		return observation{leader: leader.Fence}
	case errors.Is(err, ErrNotHeld):
		return observation{nobody: true}
	}
	return observation{failed: true}
}
