package lease

import (
	"context"
	"sync"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/member"
)

// A server that has lost its last commits, after a crash or a failover, may still have leases that
// this process has released, handed over or withdrawn. The member is alive, so they would never
// end. So after such a heartbeat (member.Listener.Recheck) the process reads what the server has
// for its member, and releases the unknown handles.
//
// That never releases a lease that a caller has, or may yet be granted:
//
//   - A handle is noted before the first statement that may grant it is sent, and is never used
//     again.
//   - It is known until the server has confirmed that it has no lease of that handle: it was not
//     granted, was released, or the row belongs to the next holder. A handle without an answer is
//     known while the reconciler asks.
//   - Unknown handles are determined after the rows were read, in one step. A handle that had a
//     lease when they were read, and is unknown by then, was either released meanwhile, which a
//     second release does not change, or is lost.

// handles are the acquisitions that a process knows. Its zero value has none.
type handles struct {
	mu    sync.Mutex
	known map[Handle]bool // true: a lock that has not ended has it
}

func (h *handles) add(handle Handle) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.known == nil {
		h.known = make(map[Handle]bool)
	}
	if _, known := h.known[handle]; !known {
		h.known[handle] = false
	}
}

// hold notes whether a lock that has not ended has a handle.
func (h *handles) hold(handle Handle, holds bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, known := h.known[handle]; known {
		h.known[handle] = holds
	}
}

func (h *handles) held(handle Handle) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.known[handle]
}

// knows reports whether a handle may still have a lease.
func (h *handles) knows(handle Handle) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, known := h.known[handle]
	return known
}

func (h *handles) remove(handle Handle) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.known, handle)
}

// unknown returns those that are not known, by their handles. A set has one handle, and each key of
// it once.
func (h *handles) unknown(backs []ReleaseRequest) map[Handle][]ReleaseRequest {
	h.mu.Lock()
	defer h.mu.Unlock()
	found := make(map[Handle][]ReleaseRequest)
	seen := make(map[ReleaseRequest]bool)
	for _, b := range backs {
		if _, known := h.known[b.Handle]; !known && !seen[b] {
			seen[b] = true
			found[b.Handle] = append(found[b.Handle], b)
		}
	}
	return found
}

// recheck releases leases of an incarnation that the server has and no caller of this process
// knows. It waits as long as for any statement, as a connection may be silent. After a read of
// large tables that took longer, it waits longer.
func (r *reconciler) recheck(inc *member.Incarnation) (err error) {
	bound := statementBound(r.member) << min(r.slow.Load(), 10)
	ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), reconciling{}, true), min(bound, longBound))
	defer cancel()
	defer func() {
		if err == nil {
			r.slow.Store(0)
		} else {
			r.slow.Add(1)
		}
	}()
	defer inc.OnEnd(func(dblock.Reason) { cancel() })()
	held, err := r.driver.HeldBy(ctx, inc.ID)
	if err != nil {
		return err
	}
	unknown := r.handles.unknown(held)
	for _, backs := range unknown {
		inTurn := len(backs) == 1 && backs[0].Mode == dblock.ModeExclusive // others may have tickets, whatever Locker held it
		r.add(inc, inTurn, true, backs...)
	}
	if len(unknown) > 0 {
		r.member.Warn("dblock: the server has forgotten releases, as after a failover; they are repeated", "locks", len(unknown))
	}
	return nil
}
