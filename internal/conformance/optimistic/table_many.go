package optimistic

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/optimistic"
)

// manyRows: verdicts for each row, or nothing at all.
func manyRows[DB any](t *testing.T, b *tables[DB]) {
	ctx := t.Context()
	b.fresh(t, "account", 10)
	table := b.ints(t, "account")
	must(table.Update(ctx, b.db, 4, 1, set{"note": "x"}))(t)
	to := func(n int) set { return set{"balance": n, "note": fmt.Sprintf("n%d", n)} }
	changes := []change{
		{Key: 9, Expected: 1, Set: to(90)}, {Key: 4, Expected: 1, Set: to(40)}, {Key: int32(2), Expected: 1, Set: to(20)},
		{Key: 77, Expected: 1, Set: to(77)}, {Key: int64(1), Expected: 1, Set: to(10)},
	}
	outcomes, err := table.UpdateMany(ctx, b.db, changes, optimistic.AllOrNothing)
	assert.Nil(t, outcomes)
	assert.ErrorIs(t, err, optimistic.ErrConflict)
	assert.ErrorIs(t, err, optimistic.ErrNotFound)
	conflict := suite.As[*optimistic.ConflictError](t, err)
	assert.Equal(t, []any{4, int64(2)}, []any{conflict.Key, conflict.Actual})
	b.is(t, 0, "SELECT count(*) FROM account WHERE balance <> 0")

	want := []struct {
		verdict optimistic.Verdict
		version int64
	}{{optimistic.Updated, 2}, {optimistic.Conflicted, 2}, {optimistic.Updated, 2}, {optimistic.Missing, 0}, {optimistic.Updated, 2}}
	for i, o := range must(table.UpdateMany(ctx, b.db, changes, optimistic.EachRow))(t) {
		assert.Equal(t, []any{want[i].verdict, want[i].version, changes[i].Key}, []any{o.Verdict, o.Version, o.Key})
		assert.Equal(t, o.Verdict == optimistic.Updated, o.Err == nil, "%+v", o)
	}
	b.is(t, 120, "SELECT sum(balance) FROM account")
	b.is(t, 3, "SELECT count(*) FROM account WHERE balance > 0 AND note = "+b.by("'n' || balance", "CONCAT('n', balance)")+" AND version = 2")

	var all []change
	for key := 10; key > 0; key-- {
		all = append(all, change{Key: key, Expected: must(table.Version(ctx, b.db, key))(t), Set: set{"balance": 1 + key%2}})
	}
	for i, o := range must(table.UpdateMany(ctx, b.db, all, optimistic.AllOrNothing))(t) {
		assert.Equal(t, []any{optimistic.Updated, all[i].Expected + 1}, []any{o.Verdict, o.Version})
	}
	tags := b.tags(t, "account", "tag")
	was := must(tags.Version(ctx, b.db, 3))(t)
	got := must(tags.UpdateMany(ctx, b.db, []optimistic.Change[[16]byte]{{Key: 3, Expected: was, Set: to(1)}, {Key: 5, Expected: [16]byte{1}, Set: to(2)}},
		optimistic.EachRow))(t)
	now := must(tags.Version(ctx, b.db, 3))(t)
	assert.NotEqual(t, was, now)
	assert.Equal(t, now, got[0].Version)
	assert.Equal(t, optimistic.Conflicted, got[1].Verdict)
}

func manyBadInput[DB any](t *testing.T, b *tables[DB]) {
	ctx, table, five := t.Context(), b.ints(t, "account"), set{"balance": 5}
	one := change{Key: 1, Expected: 1, Set: five}
	for name, changes := range map[string][]change{
		"none":            nil,
		"a key twice":     {one, {Key: int64(1), Expected: 1, Set: five}},
		"other columns":   {one, {Key: 2, Expected: 1, Set: set{"note": "x"}}},
		"more columns":    {one, {Key: 2, Expected: 1, Set: set{"balance": 5, "note": "x"}}},
		"too many":        make([]change, optimistic.MaxChanges+1),
		"version 0 later": {one, {Key: 2, Set: five}},
	} {
		badInput(t, name, errOf(table.UpdateMany(ctx, b.db, changes, optimistic.EachRow)))
	}
	badInput(t, "no mode", errOf(table.UpdateMany(ctx, b.db, []change{one}, 0)))

	// Keys that the server takes for the same one.
	if b.Postgres() {
		b.Exec(t, `CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false)`)
	}
	b.Exec(t, "CREATE TABLE named (id VARCHAR(20) "+b.by("COLLATE loose", "CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci")+
		" PRIMARY KEY, balance BIGINT NOT NULL, version BIGINT NOT NULL DEFAULT 1)")
	b.Exec(t, "INSERT INTO named VALUES ('a', 0, 1), ('b', 0, 1)")
	named := b.ints(t, "named")
	for _, mode := range []optimistic.Mode{optimistic.EachRow, optimistic.AllOrNothing} {
		badInput(t, "a and A", errOf(named.UpdateMany(ctx, b.db, []change{
			{Key: "a", Expected: 1, Set: five}, {Key: "b", Expected: 1, Set: five}, {Key: "A", Expected: 1, Set: five},
		}, mode)))
	}
	b.is(t, 0, "SELECT sum(balance) FROM named")
	b.is(t, 0, "SELECT sum(balance) FROM account")
	must(named.UpdateMany(ctx, b.db, []change{{Key: "B", Expected: 1, Set: five}, {Key: "A", Expected: 1, Set: five}}, optimistic.AllOrNothing))(t)
}

// manyTypes: each row gets its own value in columns of all types, NULL among them; by keys of texts
// and of UUIDs.
func manyTypes[DB any](t *testing.T, b *tables[DB]) {
	ctx := t.Context()
	if b.Postgres() {
		b.Exec(t, "CREATE TYPE mood AS ENUM ('good', 'bad')")
	}
	b.Exec(t, "CREATE TABLE every (id "+b.by("UUID", "BINARY(16)")+" PRIMARY KEY, n INT, price DECIMAL(20,6), half DOUBLE PRECISION, name VARCHAR(30), "+
		"doc "+b.by("JSONB", "JSON")+", day DATE, raw "+b.by("BYTEA, feeling mood", "VARBINARY(20), feeling ENUM('good', 'bad')")+
		", version BIGINT NOT NULL DEFAULT 1)")
	table := b.ints(t, "every")
	first, other := [16]byte{1, 2, 0xff}, [16]byte{2, 0, '\''}
	sets := []set{
		{"n": 5, "price": "12345678901234.123456", "half": 0.1, "name": "ä \\ '?", "doc": `{"a": [1, null]}`, "day": "2024-02-29",
			"raw": []byte{0, 0xff, '\''}, "feeling": "good"},
		{"n": nil, "price": nil, "half": nil, "name": nil, "doc": nil, "day": nil, "raw": nil, "feeling": nil},
	}
	for _, key := range [][16]byte{first, other} {
		must(table.Upsert(ctx, b.db, key, optimistic.Absent[int64](), set{"n": 1}))(t)
	}
	for round := range 2 {
		must(table.UpdateMany(ctx, b.db, []change{
			{Key: other, Expected: int64(round + 1), Set: sets[round]}, {Key: first, Expected: int64(round + 1), Set: sets[1-round]},
		}, optimistic.AllOrNothing))(t)
		b.is(t, 1, "SELECT count(*) FROM every WHERE n = 5 AND price = 12345678901234.123456 AND half = 0.1e0 AND name = 'ä "+
			b.by(`\`, `\\`)+" ''?' AND day = '2024-02-29' AND raw = "+b.by(`'\x00ff27'`, "X'00ff27'")+" AND feeling = 'good' AND doc"+
			b.by(" = '{\"a\": [1, null]}'", " IS NOT NULL"))
		b.is(t, 1, "SELECT count(*) FROM every WHERE coalesce("+
			b.by("n::text, price::text, half::text, name, doc::text, day::text, raw::text, feeling::text", "n, price, half, name, doc, day, raw, feeling")+
			") IS NULL")
	}
	most := make([]change, optimistic.MaxChanges)
	var rows strings.Builder
	for i := range most {
		most[i] = change{Key: fmt.Sprintf("key %d", i), Expected: 1, Set: set{"balance": i, "note": "x"}}
		fmt.Fprintf(&rows, ", ('key %d', -1, '', 1)", i)
	}
	b.Exec(t, "CREATE TABLE named (id VARCHAR(20) PRIMARY KEY, balance BIGINT NOT NULL, note VARCHAR(9), version BIGINT NOT NULL DEFAULT 1)")
	b.Exec(t, "INSERT INTO named VALUES "+rows.String()[2:])
	must(b.ints(t, "named").UpdateMany(ctx, b.db, most, optimistic.AllOrNothing))(t)
	b.is(t, int64(len(most)), "SELECT count(*) FROM named WHERE id = "+b.by("'key ' || balance", "CONCAT('key ', balance)"))
}

// manyNeverDeadlock: calls on the same rows, in opposite orders, wait for each other in line.
func manyNeverDeadlock[DB any](t *testing.T, b *tables[DB]) {
	ctx, table := t.Context(), b.ints(t, "account")
	require.NoError(t, table.Check(ctx, b.db))
	suite.Crowd(8, func(worker int) {
		for range 40 {
			var changes []change
			var errs []error
			for i := range int64(10) {
				key := i + 1
				if worker%2 == 0 {
					key = 10 - i
				}
				v, err := table.Version(ctx, b.db, key)
				changes, errs = append(changes, change{Key: key, Expected: v, Set: set{"note": itoa(int64(worker))}}), append(errs, err)
			}
			_, err := table.UpdateMany(ctx, b.db, changes, optimistic.EachRow)
			if !assert.NoError(t, errors.Join(append(errs, err)...)) {
				return
			}
		}
	})
}

// manyInTransactions: the caller commits, and a call that is refused leaves the transaction ready
// for use.
func manyInTransactions[DB any](t *testing.T, b *tables[DB]) {
	ctx, table, five := t.Context(), b.ints(t, "account"), set{"balance": 5}
	tx := b.tx(t, sql.LevelReadCommitted)
	many := func(keys ...int) error {
		var changes []change
		for _, key := range keys {
			changes = append(changes, change{Key: key, Expected: 1, Set: five})
		}
		return errOf(table.UpdateMany(ctx, tx.DB, changes, optimistic.AllOrNothing))
	}
	require.NoError(t, many(1, 2))
	stale := many(1, 3)
	assert.ErrorIs(t, stale, optimistic.ErrConflict)
	assert.NotErrorIs(t, stale, dblock.ErrConflict)
	must(table.Update(ctx, tx.DB, 4, 1, five))(t)
	require.NoError(t, tx.Commit())
	b.is(t, 3, "SELECT count(*) FROM account WHERE balance = 5")
}
