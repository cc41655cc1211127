package optimistic

import (
	"context"
	"errors"

	"github.com/dblock-go/dblock/optimistic/internal/driver"
)

// Upsert inserts a row with the key and set if expected is Absent, and writes set to the row
// if it is At a version; it returns the new version. A row that is there against expectation is
// a *StaleError with the version it has, one that is not there a *NotFoundError: it is not made
// anew unseen, as another caller has deleted it.
//
// Only a row with the same key is a conflict: if another unique index refuses the row, that is
// the server's error. On MySQL and MariaDB a key of 0 in an AUTO_INCREMENT column is refused, as
// the server would make up another, and so is a key that the column would not keep as it is. If
// columns are compared (Columns), set has to have a value for each of them to insert a row.
func (t *Table[V, DB]) Upsert(ctx context.Context, db DB, key any, expected Expected[V], set Set) (V, error) {
	switch expected.kind {
	case present:
		return t.Update(ctx, db, key, expected.version, set)
	case absent:
		return t.insert(ctx, db, key, set)
	}
	var none V
	return none, invalid("expected", "it says nothing: give At or Absent")
}

func (t *Table[V, DB]) insert(ctx context.Context, db DB, key any, set Set) (version V, err error) {
	if len(set) == 0 {
		return version, invalid("set", "it is empty")
	}
	p, dbKey, err := t.begin(ctx, db, key)
	if err != nil {
		return version, err
	}
	if p.KeyColumn.Auto && isZero(dbKey) {
		return version, invalid("key", "the server would make up another for 0, as %q is AUTO_INCREMENT", t.spec.Key)
	}
	s, err := t.stmt(p, driver.Insert, set)
	if err != nil {
		return version, err
	}
	if err := t.whole(p, s); err != nil {
		return version, err
	}
	r := driver.Row{Key: dbKey, Set: set}
	if t.spec.Kind == driver.UUID {
		r.Next.U = newUUID()
	}
	var taken *driver.TakenError
	for range suppressedTries { // again if the row was deleted before it was read
		rows, raw, err := t.d.Write(ctx, db, p, s, r)
		if err != nil && !errors.As(err, &taken) {
			return version, t.wrong(ctx, key, true, err)
		}
		if rows > 0 {
			return t.token.pack(raw), nil
		}
		actual, exists, err := t.read(ctx, db, p, dbKey, true)
		e := &StaleError{Table: t.spec.Table, Key: key, Expected: Absent[V]()}
		switch {
		case err != nil:
			return version, err
		case exists:
			e.Actual = t.token.pack(actual)
			return version, e
		}
	}
	if taken == nil {
		return version, &SuppressedError{Table: t.spec.Table, Key: key}
	}
	return version, t.wrong(ctx, key, true, taken.Err) // another unique index refuses it
}

// whole refuses to set some of the columns that are compared, if nothing is known of the others.
func (t *Table[V, DB]) whole(p *driver.Plan, s *driver.Stmt) error {
	if t.spec.Kind != driver.Columns {
		return nil
	}
	for i, c := range p.Token {
		if indexOf(s.Columns, c.Name) < 0 {
			return invalid("set", "it has no value of the column %q, which is compared: what it has become would not be known", t.spec.Columns[i])
		}
	}
	return nil
}

// indexOf is the place of a column, or -1.
func indexOf(columns []driver.Column, name string) int {
	for i := range columns {
		if columns[i].Name == name {
			return i
		}
	}
	return -1
}

func isZero(key any) bool {
	switch k := key.(type) {
	case int64:
		return k == 0
	case uint64:
		return k == 0
	}
	return false
}
