package optimistic_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/optimistic/internal/driver"
	"github.com/dblock-go/dblock/optimistic/internal/link"
)

// noDriver has no statements: a call that needs one panics.
type noDriver struct{ driver.Driver[struct{}] }

func (noDriver) Dialect() driver.Dialect {
	return driver.Dialect{Quote: `"`, Fold: func(name string) string { return name }}
}

func newTable[V any](table, key string, version optimistic.Version[V]) (*optimistic.Table[V, struct{}], error) {
	return link.NewTable[V, struct{}](noDriver{}, table, key, version)
}

// second is the error of a call.
func second[T any](_ T, err error) error { return err }

// TestRefusesBadInput: no statement is sent.
func TestRefusesBadInput(t *testing.T) {
	t.Parallel()
	ctx, db, version, five := t.Context(), struct{}{}, optimistic.Int("version"), optimistic.Set{"balance": 5}
	table, err := newTable("account", "id", version)
	if err != nil {
		t.Fatal(err)
	}
	times, err := newTable("account", "id", optimistic.Timestamp("changed"))
	if err != nil {
		t.Fatal(err)
	}
	tags, err := newTable("account", "id", optimistic.UUID("tag"))
	if err != nil {
		t.Fatal(err)
	}
	columns, err := newTable("account", "id", optimistic.Columns("balance", "note"))
	if err != nil {
		t.Fatal(err)
	}
	type change = optimistic.Change[int64]
	bad := map[string]error{
		"no table":       second(newTable("", "id", version)),
		"two dots":       second(newTable("a.b.c", "id", version)),
		"NUL":            second(newTable("a\x00", "id", version)),
		"a long name":    second(newTable(strings.Repeat("a", 64), "id", version)),
		"no key":         second(newTable("account", "", version)),
		"no version":     second(newTable("account", "id", optimistic.Int(""))),
		"the zero token": second(newTable("account", "id", optimistic.Version[int64]{})),
		"no columns":     second(newTable("account", "id", optimistic.Columns())),
		"twice":          second(newTable("account", "id", optimistic.Columns("note", "note"))),
		"the key":        second(newTable("account", "id", optimistic.Columns("note", "id"))),

		"nothing expected":  second(table.Upsert(ctx, db, 1, optimistic.Expected[int64]{}, five)),
		"upsert at 0":       second(table.Upsert(ctx, db, 1, optimistic.At(int64(0)), five)),
		"upsert of nothing": second(table.Upsert(ctx, db, 100, optimistic.Absent[int64](), nil)),
		"blindly nothing":   second(table.Any().Update(ctx, db, 1, nil)),
		"touch of columns":  second(columns.Touch(ctx, db, 1, optimistic.Values{"balance": 0, "note": nil})),
		"blind touch":       second(columns.Any().Touch(ctx, db, 1)),
		"the nil UUID":      tags.Delete(ctx, db, 1, [16]byte{}),
		"no mode":           second(table.UpdateMany(ctx, db, []change{{Key: 1, Expected: 1, Set: five}}, 0)),
	}
	for name, c := range map[string]change{
		"nil key":         {Key: nil, Expected: 1, Set: five},
		"nil pointer":     {Key: (*int64)(nil), Expected: 1, Set: five},
		"nil bytes":       {Key: []byte(nil), Expected: 1, Set: five},
		"key with NUL":    {Key: "a\x00", Expected: 1, Set: five},
		"float key":       {Key: 1.0, Expected: 1, Set: five},
		"version 0":       {Key: 1, Expected: 0, Set: five},
		"version below 0": {Key: 1, Expected: -1, Set: five},
		"empty set":       {Key: 1, Expected: 1, Set: optimistic.Set{}},
		"nil set":         {Key: 1, Expected: 1},
	} {
		bad[name] = second(table.Update(ctx, db, c.Key, c.Expected, c.Set))
		bad[name+" of many"] = second(table.UpdateMany(ctx, db, []change{c}, optimistic.UpdateEachRow))
	}
	one := change{Key: 1, Expected: 1, Set: five}
	for name, changes := range map[string][]change{
		"none":            nil,
		"other columns":   {one, {Key: 2, Expected: 1, Set: optimistic.Set{"note": "x"}}},
		"more columns":    {one, {Key: 2, Expected: 1, Set: optimistic.Set{"balance": 5, "note": "x"}}},
		"too many":        make([]change, optimistic.MaxChanges+1),
		"version 0 later": {one, {Key: 2, Set: five}},
	} {
		bad[name] = second(table.UpdateMany(ctx, db, changes, optimistic.UpdateEachRow))
	}
	for _, v := range []time.Time{{}, time.Date(999, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(10001, 1, 1, 0, 0, 0, 0, time.UTC)} {
		bad[v.String()] = times.Delete(ctx, db, 1, v)
	}
	for name, v := range map[string]optimistic.Values{
		"no values": nil, "empty values": {}, "one of two": {"balance": 0}, "another": {"balance": 0, "id": 1},
		"one more": {"balance": 0, "note": nil, "id": 1},
	} {
		bad[name] = second(columns.Update(ctx, db, 1, v, five))
	}
	for name, err := range bad {
		if !errors.As(err, new(*dblock.InvalidError)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestControlOfBadInput: a call with good input would have sent a statement.
func TestControlOfBadInput(t *testing.T) {
	t.Parallel()
	table, err := newTable("account", "id", optimistic.Int("version"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if recover() == nil {
			t.Error("no statement was sent")
		}
	}()
	_, _ = table.Update(context.Background(), struct{}{}, 1, 1, optimistic.Set{"balance": 5})
}
