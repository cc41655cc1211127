package optimistic

import (
	"context"
	"errors"
	"time"

	"github.com/dblock-go/dblock/optimistic/internal/driver"
)

// Update writes set to the row with the key, if it still has the version expected, and returns its new version.
func (t *Table[V, DB]) Update(ctx context.Context, db DB, key any, expected V, set Set) (V, error) {
	if len(set) == 0 {
		var none V
		return none, invalid("set", "it is empty: to raise the version alone there is Touch")
	}
	return t.write(ctx, db, driver.Update, key, expected, set)
}

// Touch gives the row with the key a new version, if it still has the one expected, and returns it. It is for a row whose version
// stands for rows of other tables as well. It needs a version: Columns is refused.
func (t *Table[V, DB]) Touch(ctx context.Context, db DB, key any, expected V) (V, error) {
	if err := t.canTouch(); err != nil {
		var none V
		return none, err
	}
	return t.write(ctx, db, driver.Update, key, expected, nil)
}

func (t *Table[V, DB]) canTouch() error {
	if t.spec.Kind == driver.Columns {
		return invalid("version", "there is none to raise where columns are compared: give the table a version")
	}
	return nil
}

// Delete deletes the row with the key, if it still has the version expected.
func (t *Table[V, DB]) Delete(ctx context.Context, db DB, key any, expected V) error {
	_, err := t.write(ctx, db, driver.Delete, key, expected, nil)
	return err
}

// write runs one statement on one row. The statements that take any version ignore the one expected.
func (t *Table[V, DB]) write(ctx context.Context, db DB, op driver.Op, key any, expected V, set Set) (next V, err error) {
	r := driver.Row{Set: set}
	blind := op == driver.UpdateAny || op == driver.DeleteAny
	if !blind {
		if r.Expected, err = t.token.unpack(expected); err != nil {
			return next, err
		}
	}
	p, dbKey, err := t.begin(ctx, db, key)
	if err != nil {
		return next, err
	}
	if !blind {
		if err := t.expect(p, &r.Expected); err != nil {
			return next, err
		}
	}
	r.Key = dbKey
	s, err := t.stmt(p, op, set)
	if err != nil {
		return next, err
	}
	if op == driver.UpdateAny {
		if err := t.whole(p, s); err != nil {
			return next, err
		}
	}
	if t.spec.Kind == driver.UUID && op != driver.Delete && op != driver.DeleteAny {
		r.Next.U = newUUID()
	}
	rows, raw, err := t.d.Write(ctx, db, p, s, r)
	for n := 1; err == nil && rows == 0; n++ { // it may have changed since, and changed back
		err = t.missed(ctx, db, p, key, dbKey, expected, blind)
		if !errors.Is(err, ErrSuppressed) || n == suppressedTries {
			return next, err
		}
		rows, raw, err = t.d.Write(ctx, db, p, s, r)
	}
	switch {
	case err != nil:
		return next, t.wrong(ctx, key, true, err)
	case rows > 1: // the index was dropped since it was looked for
		t.forget()
		return next, &TooManyError{Table: t.spec.Table, Key: key, Rows: rows}
	case op == driver.Delete || op == driver.DeleteAny:
		return next, nil
	}
	return t.token.pack(raw), nil
}

// suppressedTries is after how many writes that hit no row, though the row is as expected, one is
// suppressed. Fewer would be met by rows that are deleted and made anew all the time.
const suppressedTries = 8

// expect makes an expected version of what the server compares it with.
func (t *Table[V, DB]) expect(p *driver.Plan, r *driver.Raw) (err error) {
	switch t.spec.Kind {
	case driver.Int:
		if uint64(r.N) >= p.Token[0].Max {
			t.forget() // the column may be larger by now
			return invalid("expected", "the version %d is the last one that the column %q can hold: ALTER TABLE and make it BIGINT",
				r.N, p.Token[0].Name)
		}
	case driver.Timestamp:
		if r.N >= driver.LastMoment {
			return invalid("expected", "the time %v is the last one that servers keep", time.UnixMicro(r.N).UTC())
		}
	case driver.Columns:
		r.Sent = make([]any, len(r.Values))
		for i, c := range p.Token {
			if r.Values[i] == nil {
				continue
			}
			if r.Sent[i], err = t.d.Value(c, r.Values[i]); err != nil {
				t.forget()
				return err
			}
		}
	}
	return nil
}

// missed says why a statement hit no row. If the row is as it was expected, the write was
// suppressed, unless the row has become so after the statement.
func (t *Table[V, DB]) missed(ctx context.Context, db DB, p *driver.Plan, key, dbKey any, expected V, blind bool) error {
	raw, exists, err := t.read(ctx, db, p, dbKey, true)
	switch {
	case err != nil:
		return err
	case !exists:
		return &NotFoundError{Table: t.spec.Table, Key: key}
	}
	e := t.conflict(key, expected, raw)
	if blind || identity(e.Expected) == identity(e.Actual) {
		return &SuppressedError{Table: t.spec.Table, Key: key}
	}
	return e
}

func (t *Table[V, DB]) conflict(key any, expected V, actual driver.Raw) *StaleError {
	return &StaleError{Table: t.spec.Table, Key: key, Expected: expected, Actual: t.token.pack(actual)}
}
