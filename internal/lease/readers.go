package lease

import (
	"context"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/root"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// A call that wants an exclusive lease of a key with readers first makes itself the holder, so that
// no more readers come. It has the lock when the last reader has released. Statements of their own
// look for readers, and begin after that: a count within the statement that grants would read an
// older snapshot.

// awaitReaders returns the reader that still keeps w from the lease that was granted to it. It
// returns nil if there is none, or if the lease was taken away.
func (x *exclusive) awaitReaders(ctx context.Context, w *waiter) (*dblock.HeldError, error) {
	if !w.pending.inc.Alive() {
		x.dropPending(w) // others may have it; readers that were there may be there still
		return nil, nil
	}
	refused, err := x.readers(ctx, w.request)
	if refused != nil {
		x.queues.see(w.request, refused)
	}
	return refused, err
}

// anyReaders is awaitReaders for a call that does not wait: it must not keep other readers from
// joining.
func (x *exclusive) anyReaders(ctx context.Context, w *waiter) (*dblock.HeldError, error) {
	if w.waits {
		return nil, nil
	}
	return x.readers(ctx, w.request)
}

// readers returns a shared holder of a key, after the holds of dead members were ended.
func (x *exclusive) readers(ctx context.Context, r root.Request) (*dblock.HeldError, error) {
	for n := 1; ; n++ {
		seen, err := x.seeReaders(ctx, r.Key)
		if err != nil && x.again(ctx, sqlerr.Unwritten(err), n) {
			continue
		}
		if err != nil {
			return nil, x.unanswered(ctx, sqlerr.Unwritten(err), r)
		}
		if len(seen) == 0 {
			return nil, nil
		}
		refused, ended := seen[0], false
		var dead []member.ID
		for _, h := range seen {
			if !h.Dead {
				refused = h
				continue
			}
			ended = true
			if h.Member != (member.ID{}) {
				dead = append(dead, h.Member)
			}
		}
		if !ended || n >= tries {
			return heldBy(r.Key, AcquireResult{Held: true, Holder: refused}), nil
		}
		x.reap(ctx, r, dead)
	}
}

// seeReaders waits no longer than for any other statement: meanwhile the new holder excludes all
// others.
func (x *exclusive) seeReaders(ctx context.Context, key string) ([]Holder, error) {
	ctx, cancel := context.WithTimeout(ctx, x.bound())
	defer cancel()
	return x.Driver.Readers(ctx, key)
}

// reap ends the holds of dead members of a key, and holds whose time is up. If it fails, the next
// call tries again.
func (x *exclusive) reap(ctx context.Context, r root.Request, dead []member.ID) {
	gone := make(map[member.ID]bool)
	for _, id := range dead {
		if _, seen := gone[id]; !seen {
			gone[id] = x.evictions.evict(ctx, x.requester, id)
		}
	}
	var ids []member.ID
	for id, is := range gone {
		if is {
			ids = append(ids, id)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, x.bound())
	defer cancel()
	mode := r.Mode
	if mode == dblock.ModeExclusive {
		mode = dblock.ModeShared // they exclude it
	}
	_ = x.Driver.Reap(ctx, mode, r.Key, ids)
}

// readersYieldFor is how long readers let a waiting writer go first, each time that it finds the
// key's row locked: each reader locks the row for a moment, and many of them never leave it free.
// The writer withdraws that once it keeps readers out itself, or gives up.
const readersYieldFor = time.Second

// yieldReaders asks readers of a key to let the writer w go first.
func (x *exclusive) yieldReaders(ctx context.Context, w *waiter) {
	w.readersYield = true
	ctx, cancel := context.WithTimeout(ctx, x.bound())
	defer cancel()
	_ = x.Driver.Wait(ctx, []string{w.request.Key}, member.ID{}, readersYieldFor) // a courtesy
}

// admitReaders ends standBackReaders, in the background.
func (x *exclusive) admitReaders(w *waiter) {
	if !w.readersYield {
		return
	}
	w.readersYield = false
	x.background(func() {
		ctx, cancel := context.WithTimeout(x.ending, x.bound())
		defer cancel()
		_ = x.Driver.Wait(ctx, []string{w.request.Key}, member.ID{}, 0) // else it ends by itself
	})
}
