package inventory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/dblock-go/dblock/internal/batch"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// An order that waits for a lock delays only orders that need the same lock. A statement of the
// queue answers orders Alone that need a locked row. These wait in the lane of an SKU, a buyer's
// quota or a key. One statement a lane then waits on the server, outside Options.MaxInFlight. If
// too many lanes wait, the lane asks again from time to time.
//
// No statement waits for a key while it has the stock locked. Such an order waits for its key in a
// statement of its own, which locks nothing else, and is decided afterwards.

// sellBehind decides orders that wait for a lock. Those of several lanes wait for none: it would
// not be known for which of them the server waited.
func (s *seller) sellBehind(ctx context.Context, orders []order, lane string) ([]result, error) {
	this := attempt{locks: lockNone, conflicts: ofBatch}
	if lane != "" && batch.Key(ctx) == lane && batch.Yield(ctx) {
		this.locks, this.lane = waitForLane, lane
	}
	isStock := isStockLane(this.lane)
	end := func() {}
	if isStock {
		end = s.slow.begin(lane)
	}
	if isKeyLane(lane) {
		this.conflicts = awaitKey
	}
	results, err := s.settle(ctx, orders, this)
	end()
	if isStock && err == nil {
		s.sellInOrder(ctx, orders, results)
	}
	if len(orders) == 1 && isHookBusy(err) && ranOut(err) { // it is tried again for Options.Timeout
		err = &blockedError{err, true}
	}
	return unblocked(orders, results, err)
}

// await waits for a key, if there is time for that. It returns nil when no other transaction writes
// it, and when the database refuses the order: the decision will find that.
func (s *seller) await(ctx context.Context, o *order) error {
	for {
		err := s.driver.AwaitKeys(ctx, o.rows(o.state())[:1])
		if err == nil {
			return nil
		}
		switch is := s.retry.class(err); {
		case is == sqlerr.BadInput, is == sqlerr.NotPermitted, is == sqlerr.Unclassified:
			return nil
		case is != sqlerr.Busy || driver.IsBrief(ctx) || ctx.Err() != nil:
			return err
		}
	}
}

// sellAroundOpenKeys decides a batch that met a key which another transaction writes. The orders
// whose keys are open go to the lanes of these. The others are decided in one statement again.
func (s *seller) sellAroundOpenKeys(ctx context.Context, orders []order, again bool, met error) ([]result, error) {
	open := s.openKeys(ctx, orders)
	if len(open) == 0 { // those transactions have ended, or waited for something else
		return nil, met
	}
	rest := slices.DeleteFunc(slices.Clone(orders), func(o order) bool { return open[o.Key] })
	var sold []result
	if len(rest) > 0 {
		var err error
		if sold, err = s.sell(ctx, rest, again); err != nil {
			return nil, err
		}
	}
	results := make([]result, 0, len(orders))
	for i := range orders {
		if key := orders[i].Key; open[key] {
			results = append(results, result{Alone: true, Behind: keyLane(key)})
		} else {
			results, sold = append(results, sold[0]), sold[1:]
		}
	}
	return results, nil
}

// openKeys finds the keys of orders that other transactions write, in halves. It has no stock
// locked meanwhile.
func (s *seller) openKeys(ctx context.Context, orders []order) map[string]bool {
	ctx, cancel := context.WithTimeout(driver.Briefly(ctx), s.o.Timeout)
	defer cancel()
	rows := make(map[string]driver.Row, len(orders))
	for i := range orders {
		rows[orders[i].Key] = orders[i].rows(orders[i].state())[0]
	}
	open := make(map[string]bool)
	var find func(keys []string)
	find = func(keys []string) {
		asked := make([]driver.Row, len(keys))
		for i, key := range keys {
			asked[i] = rows[key]
		}
		switch err := s.driver.AwaitKeys(ctx, asked); {
		case err == nil || s.retry.class(err) != sqlerr.Busy || ctx.Err() != nil:
		case len(keys) == 1:
			open[keys[0]] = true
		default:
			find(keys[:len(keys)/2])
			find(keys[len(keys)/2:])
		}
	}
	find(slices.Sorted(maps.Keys(rows)))
	return open
}

// The lanes that are not of an SKU's stock; no SKU has such a name. All carts share a lane: two
// batches of carts nearly always have SKUs in common, and one would pass over what the other locks.
const (
	quotaLanes = "\x00quota\x00"
	keyLanes   = "\x00key\x00"
	cartLane   = "\x00carts"
)

// isStockLane reports that a lane is of an SKU's stock.
func isStockLane(lane string) bool { return lane != "" && lane[0] != 0 }

func keyLane(key string) string { return keyLanes + key }

func isKeyLane(lane string) bool { return strings.HasPrefix(lane, keyLanes) }

func quotaLane(q driver.Quota) string { return quotaLanes + q.SKU + "\x00" + q.Buyer }

func isQuotaLane(lane string) bool { return strings.HasPrefix(lane, quotaLanes) }

// laneName names what an order waits for in a lane.
func laneName(lane string) string {
	if key, is := strings.CutPrefix(lane, keyLanes); is {
		return fmt.Sprintf("order %q: a row that it needs", key)
	}
	if quota, is := strings.CutPrefix(lane, quotaLanes); is {
		sku, buyer, _ := strings.Cut(quota, "\x00")
		return fmt.Sprintf("the limit of buyer %q on %q", buyer, sku)
	}
	if lane == cartLane {
		return "a row of a cart"
	}
	return strconv.Quote(lane)
}

// waitFor reports that all orders have to wait in one lane.
func waitFor(results []result, lane string) bool {
	for _, a := range results {
		if !a.Alone || a.Behind == "" || a.Behind != lane {
			return false
		}
	}
	return lane != ""
}

// blockedError is how an attempt ends that is not to hold others up: some lock was not had, or the
// attempt has met one conflict after the other. It is not known whose order is to blame.
type blockedError struct {
	error
	contested bool // by conflicts, which may as well be of all
}

func (e *blockedError) Unwrap() error { return e.error }

func isBlocked(err error) bool {
	var blocked *blockedError
	return errors.As(err, &blocked)
}

// isHookBusy reports that a statement of a hook did not get a lock in time.
func isHookBusy(err error) bool {
	var busy *driver.HookBusy
	return errors.As(err, &busy)
}

// meetsOpenKey reports that an attempt met a key which another transaction writes.
func meetsOpenKey(err error) bool { return isBlocked(err) && driver.IsKeyOpen(err) }

// unblocked has an order wait in a lane of its own that was alone when it was blocked. A batch is
// halved until it is.
func unblocked(orders []order, results []result, err error) ([]result, error) {
	if isBlocked(err) && len(orders) == 1 {
		return toKeyLanes(orders), nil
	}
	return results, err
}
