package optimistic

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/optimistic/internal/driver"
)

// Change is one of several writes.
type Change[V any] struct {
	Key      any
	Expected V
	Set      Set
}

// UpdateMode is what UpdateMany does if some of the rows have changed. The zero value is refused.
type UpdateMode uint8

// The modes.
const (
	UpdateAllOrNothing UpdateMode = iota + 1 // nothing is written
	UpdateEachRow                            // the others are written
)

// Verdict is the outcome of a Change.
type Verdict uint8

// The verdicts.
const (
	VerdictUpdated    Verdict = iota + 1 // it was written
	VerdictStale                         // the row has changed since it was read
	VerdictNotFound                      // there is no such row
	VerdictSuppressed                    // the server did not write it: see ErrSuppressed
)

// String is "updated", "stale", "not found" or "suppressed".
func (v Verdict) String() string {
	switch v {
	case VerdictUpdated:
		return "updated"
	case VerdictStale:
		return "stale"
	case VerdictNotFound:
		return "not found"
	case VerdictSuppressed:
		return "suppressed"
	}
	return "unknown"
}

// Outcome says what became of a Change.
type Outcome[V any] struct {
	Key     any
	Verdict Verdict // 0 if it is not known; then Err says why
	Version V       // of an updated row the new one, of a stale one the one that it has
	Err     error   // a *StaleError, *NotFoundError or *SuppressedError; nil for an updated row
}

// MaxChanges is how many rows one UpdateMany takes. A statement takes 65,535 parameters besides,
// which on MySQL and MariaDB many columns may reach first: that is refused, too.
const MaxChanges = dblock.MaxSetKeys

// UpdateMany writes several rows, each if it still has the version expected, and returns an Outcome
// for each in their order. All have to set the same columns. The rows are locked in the order of
// their keys first, so that two calls never deadlock, unless their transactions have locked others
// of the rows before.
//
// With UpdateAllOrNothing nothing is written if one of the rows has changed or is missing: there
// are no outcomes then, and the error joins those of all such rows, so that errors.Is finds
// ErrStale and ErrNotFound. With UpdateEachRow the error is nil in that case, and the outcomes say
// which rows. If a trigger suppresses the write of a row, UpdateAllOrNothing writes nothing and
// returns a *SuppressedError of one such row. A transaction of db's is to be rolled back then.
//
// On Postgres a row that is missing is read again, and written again if it is there. If that fails,
// UpdateEachRow returns the outcomes with the error: that of the row is not known.
//
// On Postgres it is one statement, and another one for each row that is missing. On MySQL and
// MariaDB it is two, one that locks and reads, and one that writes if there is something to write.
// It writes by a statement for each row if the values of a column have several Go types, or if one
// statement exceeds the server's max_allowed_packet. db has to be a transaction (it has Commit), or
// a *sql.DB, on which one is begun at READ COMMITTED, and run again after a deadlock.
func (t *Table[V, DB]) UpdateMany(ctx context.Context, db DB, changes []Change[V], mode UpdateMode) ([]Outcome[V], error) {
	op := driver.Many
	switch {
	case mode == UpdateAllOrNothing:
		op = driver.ManyAll
	case mode != UpdateEachRow:
		return nil, invalid("mode", "it is %d: give UpdateAllOrNothing or UpdateEachRow", mode)
	}
	rows, err := t.rows(changes)
	if err != nil {
		return nil, err
	}
	p, err := t.checked(ctx, db, changes[0].Key)
	if err != nil {
		return nil, err
	}
	if err := t.compared(p, rows); err != nil {
		return nil, err
	}
	s, err := t.stmt(p, op, changes[0].Set)
	if err != nil {
		return nil, err
	}
	found, ambiguous, err := t.writeMany(ctx, db, p, s, rows)
	var suppressed *driver.SuppressedError
	switch {
	case errors.As(err, &suppressed):
		return nil, &SuppressedError{Table: t.spec.Table, Key: changes[suppressed.Place].Key}
	case err != nil && errors.Is(err, dblock.ErrInvalid):
		return nil, err
	case err != nil:
		return nil, t.wrong(ctx, fmt.Sprintf("(%d rows)", len(rows)), true, err)
	case ambiguous:
		return nil, invalid("changes", "two of the keys mean the same row of %s; nothing was written", t.spec.Table)
	}
	return t.outcomes(changes, found, mode)
}

// writeMany writes the rows. Where a statement may miss rows that are there, those are written
// again.
func (t *Table[V, DB]) writeMany(
	ctx context.Context, db DB, p *driver.Plan, s *driver.Stmt, rows []driver.Row,
) (found []driver.Found, ambiguous bool, err error) {
	found, ambiguous, err = t.d.Many(ctx, db, p, s, rows)
	for n := 1; t.d.Dialect().MissesRows && err == nil && !ambiguous; n++ {
		anew := t.foundAnew(ctx, db, p, rows, found)
		switch {
		case len(anew) == 0 || n == writeTries:
			return found, false, nil
		case s.Op == driver.ManyAll: // it has written nothing
			found, ambiguous, err = t.d.Many(ctx, db, p, s, rows)
		default:
			t.writeAnew(ctx, db, p, s, rows, found, anew)
		}
	}
	return found, ambiguous, err
}

// writeAnew writes the rows at some indexes again. Others of the rows are written by now, so an
// error is one of these rows alone.
func (t *Table[V, DB]) writeAnew(
	ctx context.Context, db DB, p *driver.Plan, s *driver.Stmt, rows []driver.Row, found []driver.Found, anew []int,
) {
	again := make([]driver.Row, len(anew))
	for i, at := range anew {
		again[i] = rows[at]
	}
	part, ambiguous, err := t.d.Many(ctx, db, p, s, again)
	for i, at := range anew {
		switch {
		case err != nil:
			found[at].Err = t.wrong(ctx, rows[at].Key, true, err)
		case ambiguous:
			found[at].Err = invalid("changes", "two of the keys mean the same row of %s; neither was written", t.spec.Table)
		default:
			found[at] = part[i]
		}
	}
}

// foundAnew returns the indexes of the missing rows that are there by now, and notes what they are.
func (t *Table[V, DB]) foundAnew(ctx context.Context, db DB, p *driver.Plan, rows []driver.Row, found []driver.Found) (anew []int) {
	for i := range found {
		f := &found[i]
		if f.Exists || f.Err != nil {
			continue
		}
		if f.Version, f.Exists, f.Err = t.read(ctx, db, p, rows[i].Key, true); f.Exists && f.Err == nil {
			anew = append(anew, i)
		}
	}
	return anew
}

// rows checks the changes, as far as that goes without knowing the table.
func (t *Table[V, DB]) rows(changes []Change[V]) ([]driver.Row, error) {
	if len(changes) == 0 || len(changes) > MaxChanges {
		return nil, invalid("changes", "there are %d, not 1 to %d: give the others to another call", len(changes), MaxChanges)
	}
	rows := make([]driver.Row, len(changes))
	for i, c := range changes {
		if err := checkKey(c.Key); err != nil {
			return nil, err
		}
		if len(c.Set) == 0 {
			return nil, invalid("set", "that of the key %v is empty", shown(c.Key))
		}
		for name := range changes[0].Set {
			if _, ok := c.Set[name]; !ok || len(c.Set) != len(changes[0].Set) {
				return nil, invalid("set", "the key %v sets other columns than the key %v: give them to calls of their own",
					shown(c.Key), shown(changes[0].Key))
			}
		}
		expected, err := t.token.unpack(c.Expected)
		if err != nil {
			return nil, err
		}
		rows[i] = driver.Row{Key: c.Key, Expected: expected, Set: c.Set}
		if t.spec.Kind == driver.UUID {
			rows[i].Next.U = newUUID()
		}
	}
	return rows, nil
}

// compared makes keys and versions of what the server compares them with, and refuses a key that is
// there twice.
func (t *Table[V, DB]) compared(p *driver.Plan, rows []driver.Row) (err error) {
	seen := make(map[any]bool, len(rows))
	for i := range rows {
		r := &rows[i]
		if r.Key, err = t.d.Key(p.KeyColumn, r.Key); err != nil {
			t.dropPlan()
			return err
		}
		if err := t.expect(p, driver.Many, &r.Expected); err != nil {
			return err
		}
		same := identity(r.Key)
		if seen[same] {
			return invalid("changes", "the key %v is there twice", shown(r.Key))
		}
		seen[same] = true
	}
	return nil
}

// identity is the same for keys that are sure to mean the same row.
func identity(key any) any { return fmt.Sprint(shown(key)) }

// outcomes says what became of the changes.
func (t *Table[V, DB]) outcomes(changes []Change[V], found []driver.Found, mode UpdateMode) ([]Outcome[V], error) {
	outcomes := make([]Outcome[V], len(changes))
	var refused, unknown []error
	var suppressed, unwritten error
	for i, f := range found {
		o := &outcomes[i]
		o.Key = changes[i].Key
		switch {
		case f.Written:
			o.Verdict, o.Version = VerdictUpdated, t.token.pack(f.Version)
			continue
		case f.Err != nil:
			o.Err = f.Err
			unknown = append(unknown, f.Err)
		case !f.Exists:
			o.Verdict, o.Err = VerdictNotFound, &NotFoundError{Table: t.spec.Table, Key: o.Key}
		case f.Held:
			o.Verdict, o.Err = VerdictSuppressed, &SuppressedError{Table: t.spec.Table, Key: o.Key}
			unwritten = o.Err // if all or nothing is written, perhaps for another row's sake
			continue
		default:
			o.Verdict, o.Err = VerdictStale, t.sound(o.Key, f.Version)
			if o.Err != nil {
				break
			}
			e := t.conflict(o.Key, changes[i].Expected, f.Version)
			if identity(e.Expected) == identity(e.Actual) { // a policy shows it and lets it not be written
				o.Verdict, o.Err = VerdictSuppressed, &SuppressedError{Table: t.spec.Table, Key: o.Key}
				suppressed = o.Err
				continue
			}
			o.Version, o.Err = t.token.pack(f.Version), e
		}
		refused = append(refused, o.Err)
	}
	switch {
	case mode == UpdateEachRow:
		return outcomes, errors.Join(unknown...)
	case len(refused) > 0: // and the others were not written for that
		return nil, errors.Join(refused...)
	case suppressed != nil || unwritten != nil:
		return nil, cmp.Or(suppressed, unwritten)
	}
	return outcomes, nil
}
