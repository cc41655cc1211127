package optimistic

import (
	"context"
	sqldriver "database/sql/driver"
	"reflect"
	"strings"

	"github.com/dblock-go/dblock/optimistic/internal/driver"
)

// checked is the table as it was found good for use. An error is not kept: the table may be altered, or the server come back.
func (t *Table[V, DB]) checked(ctx context.Context, db DB, key any) (*driver.Plan, error) {
	if p := t.plan.Load(); p != nil {
		return p, nil
	}
	facts, err := t.d.Look(ctx, db, t.spec)
	if err != nil {
		return nil, t.d.Wrong(ctx, t.spec.Table, false, err)
	}
	p, err := t.judge(facts)
	if err != nil {
		return nil, err
	}
	if p.Index == "" {
		return nil, t.notUnique(ctx, db, p, key)
	}
	t.plan.Store(p)
	return p, nil
}

// judge says what is wrong with a table, and what to alter. Whether its key is unique is judged later.
func (t *Table[V, DB]) judge(facts driver.Facts) (*driver.Plan, error) {
	s := t.spec
	if len(facts.All) == 0 {
		return nil, invalid("table", "there is no table %s where the connection looks: name its schema as well, or create it", s.Table)
	}
	if facts.Odd != "" {
		return nil, invalid("table", "%s %s", s.Table, facts.Odd)
	}
	p := &driver.Plan{Spec: s, Facts: facts}
	var known bool
	if p.KeyColumn, known = facts.All[t.d.Fold(s.Key)]; !known {
		return nil, invalid("key", "%s has no column %q", s.Table, s.Key)
	}
	for _, name := range s.Columns {
		c, known := facts.All[t.d.Fold(name)]
		if err := t.judgeVersion(name, c, known); err != nil {
			return nil, err
		}
		p.Token = append(p.Token, c)
	}
	return p, nil
}

func (t *Table[V, DB]) judgeVersion(name string, c driver.Column, known bool) error {
	s := t.spec
	want := t.d.Definition(s)
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
		if reason := t.d.Fits(s.Kind, c); reason != "" {
			return invalid("version", "the column %q of %s %s: leave it out, or give the table a version", name, s.Table, reason)
		}
		return nil
	}
	if reason := t.d.Fits(s.Kind, c); reason != "" {
		return invalid("version", "the column %q of %s %s: ALTER TABLE and make it %s", name, s.Table, reason, want)
	}
	if c.Nullable {
		return invalid("version", "the column %q of %s may be NULL, which no version is equal to: fill it, then ALTER TABLE and make it %s",
			name, s.Table, want)
	}
	return nil
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
	switch k := key.(type) {
	case nil:
		return invalid("key", "it is nil: no row is equal to NULL")
	case int64, int, int32, int16, int8, uint64, uint32, uint16, uint8, uint, [16]byte:
		return nil
	case string:
		if strings.ContainsRune(k, 0) {
			return invalid("key", "%q contains NUL", k)
		}
		return nil
	case []byte:
		if k == nil {
			return invalid("key", "it is nil: no row is equal to NULL")
		}
		return nil
	}
	v := reflect.ValueOf(key)
	switch v.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Interface:
		if v.IsNil() {
			return invalid("key", "it is nil: no row is equal to NULL")
		}
	case reflect.Float32, reflect.Float64:
		return invalid("key", "a float is no key")
	}
	if valuer, ok := key.(sqldriver.Valuer); ok {
		value, err := valuer.Value()
		if err != nil {
			return invalid("key", "%v", err)
		}
		if value == nil {
			return invalid("key", "it is NULL, which no row is equal to")
		}
	}
	return nil
}
