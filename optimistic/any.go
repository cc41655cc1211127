package optimistic

import (
	"context"
	"errors"

	"github.com/dblock-go/dblock/optimistic/internal/driver"
)

// Blind writes rows whatever their version is, and so overwrites what others have written unseen. Their writes with the old
// version fail all the same, as a new version is set. Get one from Table.Any; its errors are those of a Table.
type Blind[V, DB any] struct{ t *Table[V, DB] }

// Any takes every version: the only way to write without one. It is for imports and repairs.
func (t *Table[V, DB]) Any() Blind[V, DB] { return Blind[V, DB]{t} }

// Update writes set to the row with the key, and returns its new version. If columns are compared
// (Columns), set has to have a value for each of them.
func (b Blind[V, DB]) Update(ctx context.Context, db DB, key any, set Set) (V, error) {
	var none V
	if len(set) == 0 {
		return none, invalid("set", "it is empty: to raise the version alone there is Touch")
	}
	return b.t.write(ctx, db, driver.UpdateAny, key, none, set)
}

// Touch gives the row with the key a new version, and returns it: a caller that has read the row
// meets a conflict.
func (b Blind[V, DB]) Touch(ctx context.Context, db DB, key any) (V, error) {
	var none V
	if err := b.t.canTouch(); err != nil {
		return none, err
	}
	return b.t.write(ctx, db, driver.UpdateAny, key, none, nil)
}

// Delete deletes the row with the key.
func (b Blind[V, DB]) Delete(ctx context.Context, db DB, key any) error {
	var none V
	_, err := b.t.write(ctx, db, driver.DeleteAny, key, none, nil)
	return err
}

// Upsert writes set to the row with the key, or inserts it if there is none, and returns its new
// version. It takes up to three statements; in the meantime the row may come and go three times,
// which is a *StaleError.
func (b Blind[V, DB]) Upsert(ctx context.Context, db DB, key any, set Set) (version V, err error) {
	for range 3 {
		version, err = b.Update(ctx, db, key, set)
		if !errors.Is(err, ErrNotFound) {
			return version, err
		}
		version, err = b.t.insert(ctx, db, key, set)
		if !errors.Is(err, ErrStale) {
			return version, err
		}
	}
	return version, err
}
