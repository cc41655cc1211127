package optimistic

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/rowlock"
	"github.com/dblock-go/dblock/optimistic/internal/attempt"
	"github.com/dblock-go/dblock/optimistic/internal/driver"
)

// Table writes rows of a table of yours, each only if it still has the version it was read with. V
// is the Go type of the version; DB is the driver's: a pool, a connection or a transaction. Make
// one with NewTable of pgoptimistic or mysqloptimistic, once, and share it: it is safe for
// concurrent use.
//
// The version expected is a required argument, and its zero value is refused, but by IntFromZero: a
// row is overwritten unseen through Any alone. A write is one statement, and so is atomic without a
// transaction. If it hits no row, nothing was written, and one more statement distinguishes a
// conflict from a row that does not exist.
//
// At its first use a Table asks the server for the columns and indexes of the table, once: see
// Check. It has the verdict of the first database that it was used on. It asks again after an error
// that an ALTER TABLE may have caused. On Postgres a statement fails with dblock.ErrConflict, and
// writes nothing, if the key, the version or a column to set has another type than before: repeat
// it. MySQL and MariaDB assign values without regard to what was asked. There a service has to be
// restarted if the type of its key or its version changes to another kind, such as from a number to
// a text.
//
// Errors of all methods: a *StaleError (ErrStale) with the version that the row has now. A
// *NotFoundError (ErrNotFound). A *SuppressedError (ErrSuppressed). A *TooManyError (ErrTooMany) if
// several rows have the key. A *dblock.InvalidError for bad arguments, before anything is sent, and
// for an unsuitable table. In all of these nothing was written. dblock.ErrConflict if the server
// rolled back in favour of another transaction, such as at REPEATABLE READ. dblock.ErrBusy if a
// lock or a connection did not come in time. dblock.ErrUnavailable if no server was reached that
// accepts writes. dblock.ErrOverloaded if the server's table of locks is full.
// dblock.ErrOutcomeUnknown if the connection was lost under way: read the row to learn whether it
// was written. Others are the server's.
type Table[V, DB any] struct {
	d       driver.Driver[DB]
	dialect driver.Dialect
	spec    driver.Spec
	token   Version[V]
	plan    atomic.Pointer[driver.Plan] // nil until the table was found good

	mu    sync.RWMutex
	stmts map[string]*driver.Stmt // by what they do and set
}

// maxStmts bounds the texts that are kept. A program that sets ever other columns has them made
// anew.
const maxStmts = 512

func init() {
	driver.Describe = func(table, e any, name, key string, version any) error {
		return table.(describer).describe(e, name, key, version)
	}
}

// describer is a *Table of any types.
type describer interface {
	describe(e any, table, key string, version any) error
}

// describe makes a new Table what NewTable of a driver returns.
func (t *Table[V, DB]) describe(of any, table, key string, version any) error {
	d, token := of.(driver.Driver[DB]), version.(Version[V])
	dialect := d.Dialect()
	if token.kind == 0 {
		return invalid("version", "make one with Int, IntFromZero, Timestamp, UUID or Columns")
	}
	from, err := rowlock.Table(table, dialect.Quote)
	if err != nil {
		return err
	}
	if _, err := rowlock.Name("key", key, dialect.Quote); err != nil {
		return err
	}
	if len(token.columns) == 0 {
		return invalid("version", "no column is named")
	}
	seen := map[string]bool{dialect.Fold(key): true}
	for _, column := range token.columns {
		if _, err := rowlock.Name("version", column, dialect.Quote); err != nil {
			return err
		}
		if seen[dialect.Fold(column)] {
			return invalid("version", "the column %q is named twice, or is the key", column)
		}
		seen[dialect.Fold(column)] = true
	}
	t.d, t.dialect, t.token, t.stmts = d, dialect, token, map[string]*driver.Stmt{}
	t.spec = driver.Spec{Table: table, From: from, Key: key, Kind: token.kind, First: token.first, Columns: token.columns}
	return nil
}

// Check asks the server whether the table is suitable, unless it has been asked. The table has to
// exist, its key needs a unique index of its own, and its version a fitting type and NOT NULL. The
// *dblock.InvalidError says what to alter. Every other method checks at its first use; call Check
// to learn it when the service starts.
func (t *Table[V, DB]) Check(ctx context.Context, db DB) error {
	_, err := t.checked(ctx, db, nil)
	return err
}

// Version reads the version that a row has now. It is for callers that did not read it along with
// the row: what was read before may be older than it.
func (t *Table[V, DB]) Version(ctx context.Context, db DB, key any) (version V, err error) {
	var r driver.Row
	p, err := t.begin(ctx, db, key, &r)
	if err != nil {
		return version, err
	}
	raw, exists, err := t.read(ctx, db, p, r.Key, false)
	switch {
	case err != nil:
		return version, err
	case !exists:
		return version, &NotFoundError{Table: t.spec.Table, Key: key}
	}
	return t.token.pack(raw), nil
}

// read reads the version of a row, and refuses one that no row may have.
func (t *Table[V, DB]) read(ctx context.Context, db DB, p *driver.Plan, key any, latest bool) (raw driver.Raw, exists bool, err error) {
	raw, exists, err = t.d.Read(ctx, db, p, key, latest)
	switch {
	case err != nil:
		return raw, false, t.wrong(ctx, key, false, err)
	case exists:
		return raw, true, t.sound(key, raw)
	}
	return raw, false, nil
}

// sound refuses a version, found in a row, that protects nothing.
func (t *Table[V, DB]) sound(key any, raw driver.Raw) error {
	if t.spec.Kind == driver.Columns {
		return nil
	}
	_, err := t.token.unpack(t.token.pack(raw))
	if err == nil && !raw.Void {
		return nil
	}
	found := "NULL"
	if !raw.Void {
		found = fmt.Sprint(shown(any(t.token.pack(raw))))
	}
	hint := ""
	if t.spec.Kind == driver.Int && raw.N == 0 && !raw.Void {
		hint = "; " + fromZero
	}
	return invalid("version", "%s has %s in its column %q, which is no version; nothing was written: give it one, "+
		"and have the column made as %s%s", Row{Table: t.spec.Table, Key: key}.name(), found, t.spec.Columns[0], t.definition(), hint)
}

// begin checks the key, and the table if that was not done yet. It gives r the key as the server
// compares it.
func (t *Table[V, DB]) begin(ctx context.Context, db DB, key any, r *driver.Row) (*driver.Plan, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	p, err := t.checked(ctx, db, key)
	if err != nil {
		return nil, err
	}
	if r.Key, err = t.d.Key(p.KeyColumn, key); err != nil {
		t.dropPlan()
	}
	return p, err
}

// wrong says what an error of a statement's means. A table that was altered meanwhile is looked at
// anew.
func (t *Table[V, DB]) wrong(ctx context.Context, key any, wrote bool, err error) error {
	if errors.As(err, new(*TooManyError)) || errors.Is(err, ErrStale) {
		return err
	}
	if errors.As(err, new(*driver.SuppressedError)) {
		return &SuppressedError{Table: t.spec.Table, Key: key}
	}
	what := Row{Table: t.spec.Table, Key: key}.name()
	if errors.As(err, new(*driver.AlteredError)) {
		t.dropPlan()
		return fmt.Errorf("%w: %s: nothing was written: roll back and repeat: %w", dblock.ErrConflict, what, err)
	}
	err = t.worded(ctx, what, wrote, err)
	for _, usual := range []error{
		dblock.ErrConflict, dblock.ErrBusy, dblock.ErrUnavailable, dblock.ErrOverloaded, dblock.ErrOutcomeUnknown,
	} {
		if errors.Is(err, usual) {
			return err
		}
	}
	t.dropPlan()
	return err
}

// worded puts the error of a statement into the words of package dblock.
func (t *Table[V, DB]) worded(ctx context.Context, what string, wrote bool, err error) error {
	is, known := t.d.Class(ctx, wrote, err)
	return attempt.Worded(is, known, what, err)
}

func (t *Table[V, DB]) dropPlan() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.plan.Store(nil)
	clear(t.stmts)
}

// stmt is the statement that sets these columns, made if there is none yet. It allocates nothing if
// there is.
func (t *Table[V, DB]) stmt(p *driver.Plan, op driver.Op, set Set) (*driver.Stmt, error) {
	var space [16]string
	names := space[:0]
	for name := range set {
		names = append(names, name)
	}
	slices.Sort(names)
	var room [256]byte
	key := append(room[:0], byte(op))
	for _, name := range names {
		key = append(binary.AppendUvarint(key, uint64(len(name))), name...)
	}
	t.mu.RLock()
	s := t.stmts[string(key)]
	t.mu.RUnlock()
	if s != nil {
		return s, nil
	}
	columns, err := t.columns(p, names)
	if err != nil {
		return nil, err
	}
	s = &driver.Stmt{Op: op, Text: t.d.Text(p, op, columns), Columns: columns, Names: slices.Clone(names)}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.stmts) >= maxStmts {
		clear(t.stmts)
	}
	if t.plan.Load() == p { // a text of a table that was altered meanwhile is not kept
		t.stmts[string(key)] = s
	}
	return s, nil
}

// columns are those that are to be set, as the table has them.
func (t *Table[V, DB]) columns(p *driver.Plan, names []string) ([]driver.Column, error) {
	columns := make([]driver.Column, len(names))
	seen := map[string]bool{}
	for i, name := range names {
		if _, err := rowlock.Name("set", name, t.dialect.Quote); err != nil {
			return nil, err
		}
		folded := t.dialect.Fold(name)
		c, known := p.All[folded]
		switch {
		case !known:
			t.dropPlan() // it may have it by now
			return nil, invalid("set", "%s has no column %q", t.spec.Table, name)
		case seen[folded]:
			return nil, invalid("set", "the column %q is set twice", name)
		case c.Name == p.KeyColumn.Name:
			return nil, invalid("set", "%q is the key: delete the row and make another", name)
		case t.spec.Kind != driver.Columns && c.Name == p.Token[0].Name:
			return nil, invalid("set", "%q is the version: every write sets it", name)
		}
		seen[folded] = true
		columns[i] = c
	}
	return columns, nil
}
