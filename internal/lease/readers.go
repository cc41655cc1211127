package lease

import (
	"context"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/root"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// Whoever wants a key for itself that readers have makes itself its holder first, so that no more of them come, and
// has it when the last one has gone. That is looked for in statements of their own, which began after that: a count within
// the statement that grants would be one of an older snapshot.

// awaitReaders tells who still keeps w from what was granted to it; nil: nobody, or it was taken away.
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

// anyReaders is for who does not wait: readers that are there keep it out, and it is not to keep others from joining them.
func (x *exclusive) anyReaders(ctx context.Context, w *waiter) (*dblock.HeldError, error) {
	if w.waits {
		return nil, nil
	}
	return x.readers(ctx, w.request)
}

// readers tells who holds a key shared, after those were ended who are dead.
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

// seeReaders waits no longer than for any other statement: who made itself the holder keeps all others out meanwhile.
func (x *exclusive) seeReaders(ctx context.Context, key string) ([]Holder, error) {
	ctx, cancel := context.WithTimeout(ctx, x.bound())
	defer cancel()
	return x.Driver.Readers(ctx, key)
}

// reap ends what dead members hold of a key, and what has ended by itself. Where it fails, whoever looks next tries again.
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
		mode = dblock.ModeShared // they stand in its way
	}
	_ = x.Driver.Reap(ctx, mode, r.Key, ids)
}

// readersYieldFor is how long readers let a waiting writer go first, each time that it finds the key's row locked: each
// reader locks the row for a moment, and many of them never leave it free. The writer withdraws that once it keeps
// readers out itself, or gives up.
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
