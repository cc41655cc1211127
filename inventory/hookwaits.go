package inventory

import (
	"context"
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/batch"
)

// hookWaits are the lanes whose hooks have lately timed out while they waited for a lock. Their
// orders leave the statements of others, and wait outside Options.MaxInFlight.
type hookWaits struct {
	mu    sync.Mutex
	until map[string]time.Time // by lane
}

const (
	hookWaitsFor = time.Second // after the last hook that timed out
	maxHookWaits = 1000
)

// note notes how a transaction with a hook has ended. One for several lanes says nothing of any of
// them. An order that waits apart may be the only one of its lane that does: it prolongs the wait
// of a lane, and does not begin it.
func (h *hookWaits) note(orders []order, apart bool, err error) {
	lane := orders[0].lane()
	for i := range orders[1:] {
		if orders[i+1].lane() != lane {
			return
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	_, waits := h.until[lane]
	switch {
	case err == nil && !apart:
		delete(h.until, lane)
	case isHookBusy(err) && (waits || !apart):
		if h.until == nil || len(h.until) >= maxHookWaits {
			h.until = make(map[string]time.Time)
		}
		h.until[lane] = time.Now().Add(hookWaitsFor)
	}
}

// waiting counts the orders of such lanes.
func (h *hookWaits) waiting(orders []order) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.until) == 0 {
		return 0
	}
	now := time.Now()
	for i := range orders {
		if h.waits(orders[i].lane(), now) {
			n++
		}
	}
	return n
}

// waits reports whether a lane is one of them; h.mu is held.
func (h *hookWaits) waits(lane string, now time.Time) bool {
	until, waits := h.until[lane]
	if waits && now.After(until) {
		delete(h.until, lane)
		return false
	}
	return waits
}

// waitsAside reports whether a statement of one lane may wait outside Options.MaxInFlight.
func (s *seller) waitsAside(ctx context.Context) bool {
	return batch.Key(ctx) != "" && batch.Yield(ctx)
}

// sellAroundHooks decides the orders of a batch whose hooks do not wait. The others wait in the
// lanes of their SKUs.
func (s *seller) sellAroundHooks(ctx context.Context, orders []order, again bool, waiting int) ([]result, error) {
	if isKeyLane(batch.Key(ctx)) {
		return toKeyLanes(orders), nil
	}
	results := toOwnLanes(orders)
	if waiting == len(orders) {
		return results, nil
	}
	var rest []order
	var at []int
	for i := range orders {
		if s.hooks.waiting(orders[i:i+1]) == 0 {
			rest, at = append(rest, orders[i]), append(at, i)
		}
	}
	if len(rest) == 0 {
		return results, nil
	}
	sold, err := s.sell(ctx, rest, again)
	for n, i := range at {
		if err == nil {
			results[i] = sold[n]
		}
	}
	return results, err
}

// toKeyLanes has each order be tried apart from all others.
func toKeyLanes(orders []order) []result {
	return toLanes(orders, func(o *order) string { return keyLane(o.Key) })
}

// toOwnLanes has each order wait in the lane of its SKU.
func toOwnLanes(orders []order) []result { return toLanes(orders, (*order).lane) }

// toLanes answers that nothing was decided.
func toLanes(orders []order, lane func(*order) string) []result {
	results := make([]result, len(orders))
	for i := range orders {
		results[i] = result{Alone: true, Behind: lane(&orders[i])}
	}
	return results
}
