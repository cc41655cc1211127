package driver

import (
	"context"
	"time"
)

// Moves is what becomes of reservations that exist, and of what they hold. All of it is sorted as
// in a Plan.
type Moves struct {
	Insert  []Row   // of keys that were not there
	Set     []Set   // by key
	Uncount []Count // quotas that are given back
	Return  []Units // stock that is given back
}

// IsEmpty reports that there is nothing to write.
func (m Moves) IsEmpty() bool { return len(m.Insert) == 0 && len(m.Set) == 0 }

// Quotas are those that are given back.
func (m Moves) Quotas() []Quota {
	return Each(m.Uncount, func(c Count) Quota { return c.Quota })
}

// SKUs are those of which stock is given back, all of it to bucket 0.
func (m Moves) SKUs() []string {
	return Each(m.Return, func(u Units) string { return u.SKU })
}

// LockWait bounds a wait of a MoveTx for one row at first.
const LockWait = 50 * time.Millisecond

type lockWait struct{}

// WithLockWait has a MoveTx wait for d.
func WithLockWait(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, lockWait{}, d)
}

// LockWaitOf is how long a MoveTx waits for one row.
func LockWaitOf(ctx context.Context) time.Duration {
	if d, ok := ctx.Value(lockWait{}).(time.Duration); ok {
		return d
	}
	return LockWait
}

// MoveTx is a transaction that changes reservations. A row that another transaction has locked is
// passed over, or waited for: then an error after LockWaitOf, sqlerr.Busy.
type MoveTx interface {
	// Reservations locks all lines of the reservations under keys, which are sorted. It comes
	// first. Without wait, locked holds the keys of those of which not all lines could be locked:
	// they are not among the recorded ones.
	Reservations(ctx context.Context, keys []string, wait bool) (recorded map[string][]Row, locked map[string]bool, err error)
	// Returns locks the rows that moves give back to, and returns those that it has locked.
	Returns(ctx context.Context, m Moves, waitQuotas, waitStock bool) (quotas map[Quota]bool, skus map[string]bool, err error)
	// Write writes moves, of which all rows are locked but those that are new. It comes last.
	Write(ctx context.Context, m Moves) error
}

// Set is what becomes of all lines of a reservation.
type Set struct {
	Key   string
	State int16
	Hold  time.Duration // from now on; 0: it has no end any more
}
