package inventory

import (
	"context"
	"errors"
	"strings"

	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/internal/merge"
	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// An order that waits for a lock delays only orders that need the same lock. A statement of the queue does not wait for a locked row
// (attempt.brief): it answers the orders that need the row Alone. These wait in the lane of an SKU, a buyer's quota or a key. One
// statement a lane then waits on the server, outside Options.MaxInFlight. If too many lanes wait, the lane asks again from time to time.

// No statement waits for a key while it has the stock locked. Such an order waits for its key in a statement of its own, which locks
// nothing else, and is decided afterwards.

// sellBehind decides the orders of one lane that wait for a lock.
func (s *Store) sellBehind(ctx context.Context, orders []order, lane string) ([]answer, error) {
	this := attempt{brief: true, free: true}
	if merge.Key(ctx) == lane && merge.StandAside(ctx) {
		this = attempt{behind: lane}
	}
	this.awaits = isBehindKey(lane)
	answers, err := s.settle(ctx, orders, this)
	return unblocked(orders, answers, err)
}

// await waits for a key, if there is time for that. It returns nil when no other transaction writes it, and when the database refuses the
// order: that is for the one who decides.
func (s *Store) await(ctx context.Context, o *order) error {
	for {
		err := s.engine.AwaitKey(ctx, o.rows(o.state())[0])
		switch is := s.fault(err); {
		case err == nil, is == fault.Poison, is == fault.Other:
			return nil
		case is != fault.Busy || engine.IsBrief(ctx) || ctx.Err() != nil:
			return err
		}
	}
}

// The lanes that are not of an SKU's stock; no SKU has such a name.
const (
	quotaLane = "\x00quota\x00"
	keyLane   = "\x00key\x00"
	cartLane  = "\x00carts"
)

func behindKey(key string) string { return keyLane + key }

func isBehindKey(lane string) bool { return strings.HasPrefix(lane, keyLane) }

func behindQuota(q engine.Quota) string { return quotaLane + q.SKU + "\x00" + q.Buyer }

func isBehindQuota(lane string) bool { return strings.HasPrefix(lane, quotaLane) }

// waitFor tells that all orders have to wait in one lane.
func waitFor(answers []answer, lane string) bool {
	for _, a := range answers {
		if !a.Alone || a.Behind == "" || a.Behind != lane {
			return false
		}
	}
	return lane != ""
}

// blockedError is how a brief attempt ends where some lock was not had, of which it is not known whose order wants it.
type blockedError struct{ error }

func (e *blockedError) Unwrap() error { return e.error }

// blocks tells that an error ends an attempt in this way. A hook waits as long as it likes.
func (s *Store) blocks(ctx context.Context, err error, this attempt) bool {
	if engine.IsKeyOpen(err) {
		return !this.awaits && !fault.Ended(ctx)
	}
	var hooks *hookBusy
	return this.brief && s.fault(err) == fault.Busy && !errors.As(err, &hooks) && !fault.Ended(ctx)
}

// mayBeOnes tells that one order of a batch may have caused an error.
func (s *Store) mayBeOnes(err error) bool {
	var blocked *blockedError
	return errors.As(err, &blocked) || s.fault(err) == fault.Poison
}

// unblocked has an order wait in a lane of its own that was alone when it was blocked. A batch is halved until it is.
func unblocked(orders []order, answers []answer, err error) ([]answer, error) {
	var blocked *blockedError
	if errors.As(err, &blocked) && len(orders) == 1 {
		return []answer{{Alone: true, Behind: behindKey(orders[0].Key)}}, nil
	}
	return answers, err
}
