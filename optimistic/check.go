package optimistic

import (
	"context"
	sqldriver "database/sql/driver"
	"fmt"
	"reflect"
	"strings"

	"github.com/dblock-go/dblock/optimistic/internal/driver"
)

// checked is the table as it was found good for use. An error is not kept: the table may be
// altered, or the server come back.
func (t *Table[V, DB]) checked(ctx context.Context, db DB, key any) (*driver.Plan, error) {
	if p := t.plan.Load(); p != nil {
		return p, nil
	}
	facts, err := t.d.Inspect(ctx, db, t.spec)
	if err != nil {
		return nil, t.worded(ctx, t.spec.Table, false, err)
	}
	p, err := t.check(facts)
	if err != nil {
		return nil, err
	}
	if p.Index == "" {
		return nil, t.notUnique(ctx, db, p, key)
	}
	t.plan.Store(p)
	return p, nil
}

// check returns the plan for a table, or an error that says what is wrong with it and what to
// alter. Whether its key is unique is checked later.
func (t *Table[V, DB]) check(facts driver.Facts) (*driver.Plan, error) {
	s := t.spec
	if len(facts.All) == 0 {
		return nil, invalid("table", "there is no table %s where the connection looks: name its schema as well, or create it", s.Table)
	}
	if facts.Odd != "" {
		return nil, invalid("table", "%s %s", s.Table, facts.Odd)
	}
	p := &driver.Plan{Spec: s, Facts: facts}
	var known bool
	if p.KeyColumn, known = facts.All[t.dialect.Fold(s.Key)]; !known {
		return nil, invalid("key", "%s has no column %q", s.Table, s.Key)
	}
	for _, name := range s.Columns {
		c, known := facts.All[t.dialect.Fold(name)]
		if err := t.checkVersion(name, c, known); err != nil {
			return nil, err
		}
		p.Token = append(p.Token, c)
	}
	return p, nil
}

func (t *Table[V, DB]) checkVersion(name string, c driver.Column, known bool) error {
	s := t.spec
	want := t.definition()
	switch {
	case !known && s.Kind == driver.Columns:
		return invalid("version", "%s has no column %q", s.Table, name)
	case !known:
		return invalid("version", "%s has no column %q: ALTER TABLE and add it, %s", s.Table, name, want)
	}
	if s.Kind == driver.Columns {
		if c.Class == driver.Inexact {
			return invalid("version", "the column %q of %s is of the type %s, which can't be compared exactly: leave it out, "+
				"or give the table a version", name, s.Table, c.Type)
		}
		if reason := misfit(s.Kind, c); reason != "" {
			return invalid("version", "the column %q of %s %s: leave it out, or give the table a version", name, s.Table, reason)
		}
		return nil
	}
	if reason := misfit(s.Kind, c); reason != "" {
		return invalid("version", "the column %q of %s %s: ALTER TABLE and make it %s", name, s.Table, reason, want)
	}
	if c.Nullable {
		return invalid("version", "the column %q of %s may be NULL, which no version is equal to: fill it, then ALTER TABLE and make it %s",
			name, s.Table, want)
	}
	return nil
}

// definition is how the column of the version is to be made.
func (t *Table[V, DB]) definition() string {
	switch t.spec.Kind {
	case driver.Int:
		return fmt.Sprintf("BIGINT NOT NULL DEFAULT %d", t.spec.First)
	case driver.Timestamp:
		return t.dialect.Timestamp
	}
	return t.dialect.UUID
}

// misfit returns why a column can't keep a version of the kind. Empty: it can.
func misfit(kind driver.Kind, c driver.Column) string {
	switch {
	case c.Zoned && (kind == driver.Timestamp || kind == driver.Columns):
		return "is of the type " + c.Type + ", whose values depend on the session's time zone"
	case kind == driver.Int && c.Class != driver.Integer, kind == driver.UUID && !c.UUID,
		kind == driver.Timestamp && c.Class != driver.Instant && c.Class != driver.DateTime:
		return "is of the type " + c.Type
	case kind == driver.Timestamp && c.Precision < 6:
		return fmt.Sprintf("keeps %d digits of a second, not 6, and would miss changes", c.Precision)
	}
	return ""
}

// notUnique refuses a key without a unique index. If it is of several rows already, the error says
// so.
func (t *Table[V, DB]) notUnique(ctx context.Context, db DB, p *driver.Plan, key any) error {
	if key != nil {
		n, err := t.d.Twins(ctx, db, p, key)
		if err == nil && n > 1 {
			return &manyRows{TooManyError{Table: t.spec.Table, Key: key, Rows: n}}
		}
	}
	return invalid("key", "%s has no unique index on %q alone, so that one write could hit many rows; nothing was written: CREATE UNIQUE INDEX",
		t.spec.Table, t.spec.Key)
}

// manyRows is of rows that were counted before anything was written.
type manyRows struct{ of TooManyError }

func (e *manyRows) Error() string {
	return "optimistic: " + Row{Table: e.of.Table, Key: e.of.Key}.name() +
		" is more than one row, so nothing was written: give the key a unique index"
}

func (e *manyRows) Unwrap() error { return &e.of }

// checkKey refuses what no row is equal to.
func checkKey(key any) error {
	of := reflect.ValueOf(key)
	switch of.Kind() {
	case reflect.Invalid:
		return invalid("key", "it is nil: no row is equal to NULL")
	case reflect.Pointer, reflect.Map, reflect.Slice:
		if of.IsNil() {
			return invalid("key", "it is nil: no row is equal to NULL")
		}
	case reflect.Float32, reflect.Float64:
		return invalid("key", "a float is no key")
	}
	switch k := key.(type) {
	case string:
		if strings.ContainsRune(k, 0) {
			return invalid("key", "%q contains NUL", k)
		}
	case sqldriver.Valuer:
		value, err := k.Value()
		if err != nil {
			return invalid("key", "%v", err)
		}
		if value == nil {
			return invalid("key", "it is NULL, which no row is equal to")
		}
	}
	return nil
}
