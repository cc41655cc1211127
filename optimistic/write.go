package optimistic

import (
	"context"
	"errors"
	"time"

	"github.com/dblock-go/dblock/optimistic/internal/driver"
)

// Update writes set to the row with the key, if it still has the version expected, and returns its
// new version.
func (t *Table[V, DB]) Update(ctx context.Context, db DB, key any, expected V, set Set) (V, error) {
	return t.update(ctx, db, driver.Update, key, expected, set)
}

// Touch gives the row with the key a new version, if it still has the one expected, and returns it.
// It is for a row whose version stands for rows of other tables as well. It needs a version:
// Columns is refused.
func (t *Table[V, DB]) Touch(ctx context.Context, db DB, key any, expected V) (V, error) {
	return t.touch(ctx, db, driver.Update, key, expected)
}

// Delete deletes the row with the key, if it still has the version expected.
func (t *Table[V, DB]) Delete(ctx context.Context, db DB, key any, expected V) error {
	_, err := t.write(ctx, db, driver.Delete, key, expected, nil)
	return err
}

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
		return t.update(ctx, db, driver.Insert, key, expected.version, set)
	}
	var none V
	return none, invalid("expected", "it says nothing: give At or Absent")
}

// Blind writes rows whatever their version is, and so overwrites what others have written unseen.
// Their writes with the old version fail all the same, as a new version is set. Get one from
// Table.Any; its errors are those of a Table.
type Blind[V, DB any] struct{ t *Table[V, DB] }

// Any takes every version: the only way to write without one. It is for imports and repairs.
func (t *Table[V, DB]) Any() Blind[V, DB] { return Blind[V, DB]{t} }

// Update writes set to the row with the key, and returns its new version. If columns are compared
// (Columns), set has to have a value for each of them.
func (b Blind[V, DB]) Update(ctx context.Context, db DB, key any, set Set) (V, error) {
	var any V
	return b.t.update(ctx, db, driver.UpdateAny, key, any, set)
}

// Touch gives the row with the key a new version, and returns it: a caller that has read the row
// meets a conflict.
func (b Blind[V, DB]) Touch(ctx context.Context, db DB, key any) (V, error) {
	var any V
	return b.t.touch(ctx, db, driver.UpdateAny, key, any)
}

// Delete deletes the row with the key.
func (b Blind[V, DB]) Delete(ctx context.Context, db DB, key any) error {
	var any V
	_, err := b.t.write(ctx, db, driver.DeleteAny, key, any, nil)
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
		version, err = b.t.Upsert(ctx, db, key, Absent[V](), set)
		if !errors.Is(err, ErrStale) {
			return version, err
		}
	}
	return version, err
}

func (t *Table[V, DB]) update(ctx context.Context, db DB, op driver.Op, key any, expected V, set Set) (none V, err error) {
	if len(set) == 0 {
		return none, invalid("set", "it is empty: to raise the version alone there is Touch")
	}
	return t.write(ctx, db, op, key, expected, set)
}

func (t *Table[V, DB]) touch(ctx context.Context, db DB, op driver.Op, key any, expected V) (none V, err error) {
	if t.spec.Kind == driver.Columns {
		return none, invalid("version", "there is none to raise where columns are compared: give the table a version")
	}
	return t.write(ctx, db, op, key, expected, nil)
}

// writeTries is after how many writes that hit no row, though the row is as expected, one counts as
// suppressed. Fewer would be met by rows that are deleted and made anew all the time.
const writeTries = 8

// write runs one statement on one row. Those on any version, and an insert, ignore the one
// expected.
func (t *Table[V, DB]) write(ctx context.Context, db DB, op driver.Op, key any, expected V, set Set) (next V, err error) {
	r := driver.Row{Set: set}
	compares := op == driver.Update || op == driver.Delete
	if compares {
		if r.Expected, err = t.token.unpack(expected); err != nil {
			return next, err
		}
	}
	p, err := t.begin(ctx, db, key, &r)
	if err == nil && compares {
		err = t.expect(p, op, &r.Expected)
	}
	if err != nil {
		return next, err
	}
	s, err := t.stmt(p, op, set)
	if err == nil {
		err = t.checkWrite(p, s, &r)
	}
	if err != nil {
		return next, err
	}
	var taken error
	for range writeTries { // the row may have changed since, and changed back
		rows, raw, failed := t.d.Write(ctx, db, p, s, r)
		if failed != nil {
			if taken = takenOf(failed); taken == nil {
				return next, t.wrong(ctx, key, true, failed)
			}
		}
		switch {
		case rows > 1: // the index was dropped since it was looked for
			t.dropPlan()
			return next, &TooManyError{Table: t.spec.Table, Key: key, Rows: rows}
		case rows == 1 && (op == driver.Delete || op == driver.DeleteAny):
			return next, nil
		case rows == 1:
			return t.token.pack(raw), nil
		}
		if err = t.missed(ctx, db, p, op, key, r.Key, expected); !errors.Is(err, ErrSuppressed) {
			return next, err
		}
	}
	if taken != nil { // another unique index refuses it
		return next, t.wrong(ctx, key, true, taken)
	}
	return next, err
}

// takenOf is the server's error of an insert that a unique index refuses, or nil.
func takenOf(err error) error {
	var taken *driver.TakenError
	if errors.As(err, &taken) {
		return taken.Err
	}
	return nil
}

// checkWrite refuses what the statement would write as another row than asked for, or to what is
// not known, and gives the row a new UUID.
func (t *Table[V, DB]) checkWrite(p *driver.Plan, s *driver.Stmt, r *driver.Row) error {
	if s.Op == driver.Insert && p.KeyColumn.Auto && (r.Key == int64(0) || r.Key == uint64(0)) {
		return invalid("key", "the server would make up another for 0, as %q is AUTO_INCREMENT", t.spec.Key)
	}
	switch {
	case t.spec.Kind == driver.UUID:
		r.Next.U = newUUID()
	case t.spec.Kind == driver.Columns && (s.Op == driver.Insert || s.Op == driver.UpdateAny):
		for i, c := range p.Token {
			if !s.Sets(c.Name) {
				return invalid("set", "it has no value of the column %q, which is compared: what it has become would not be known", t.spec.Columns[i])
			}
		}
	}
	return nil
}

// expect makes an expected version of what the server compares it with. It refuses one after which
// there is no other, unless the row is to be deleted.
func (t *Table[V, DB]) expect(p *driver.Plan, op driver.Op, r *driver.Raw) (err error) {
	switch t.spec.Kind {
	case driver.Int:
		if op != driver.Delete && uint64(r.N) >= p.Token[0].Max {
			t.dropPlan() // the column may be larger by now
			return invalid("expected", "the version %d is the last one that the column %q can hold: ALTER TABLE and make it BIGINT",
				r.N, p.Token[0].Name)
		}
	case driver.Timestamp:
		if op != driver.Delete && r.N >= driver.LastMoment {
			return invalid("expected", "the time %v is the last one that servers keep", time.UnixMicro(r.N).UTC())
		}
	case driver.Columns:
		r.Sent = make([]any, len(r.Values))
		for i, c := range p.Token {
			if r.Values[i] == nil {
				continue
			}
			if r.Sent[i], err = t.d.Value(c, r.Values[i]); err != nil {
				t.dropPlan()
				return err
			}
		}
	}
	return nil
}

// missed says why a statement hit no row. If the row is as it was expected, the write was
// suppressed, unless the row has become so after the statement.
func (t *Table[V, DB]) missed(ctx context.Context, db DB, p *driver.Plan, op driver.Op, key, dbKey any, expected V) error {
	raw, exists, err := t.read(ctx, db, p, dbKey, true)
	switch {
	case err != nil:
		return err
	case !exists && op != driver.Insert:
		return &NotFoundError{Table: t.spec.Table, Key: key}
	case op == driver.UpdateAny && t.spec.Kind != driver.Columns:
		if err := t.expect(p, op, &raw); err != nil { // there is no version after this one
			return err
		}
		return &SuppressedError{Table: t.spec.Table, Key: key}
	case !exists, op == driver.UpdateAny, op == driver.DeleteAny:
		return &SuppressedError{Table: t.spec.Table, Key: key}
	}
	e := t.conflict(key, expected, raw)
	if op == driver.Insert {
		e.Expected = Absent[V]()
	} else if identity(e.Expected) == identity(e.Actual) {
		return &SuppressedError{Table: t.spec.Table, Key: key}
	}
	return e
}

func (t *Table[V, DB]) conflict(key any, expected V, actual driver.Raw) *StaleError {
	return &StaleError{Table: t.spec.Table, Key: key, Expected: expected, Actual: t.token.pack(actual)}
}
