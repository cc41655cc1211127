package optimistic

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/optimistic"
)

// AtAnyIsolation reads a row, has another session write it, and writes: that must never pass for a
// success.
func (tests[DB]) AtAnyIsolation(t *testing.T, b *env[DB]) {
	ctx, table := t.Context(), b.ints(t, "account")
	b.fresh(t, "account", 2)
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		for name, mine := range map[string]func(DB) error{
			"update": func(db DB) error { return errOf(table.Update(ctx, db, 1, 1, set{"balance": 2})) },
			"delete": func(db DB) error { return table.Delete(ctx, db, 1, 1) },
			"many": func(db DB) error {
				return errOf(table.UpdateMany(ctx, db, []change{{Key: 1, Expected: 1, Set: set{"balance": 2}}}, optimistic.UpdateAllOrNothing))
			},
		} {
			b.Exec(t, "UPDATE account SET balance = 0, version = 1")
			tx := b.tx(t, level)
			// Another row is read, so that no lock on this one keeps the other writer out, and what
			// tx sees of it is fixed.
			must(table.Version(ctx, tx.DB, 2))(t)
			must(table.Update(ctx, tx.DB, 2, 1, set{"balance": 1}))(t)
			must(table.Update(ctx, b.db, 1, 1, set{"balance": 1}))(t)
			err := mine(tx.DB)
			assert.True(t, errors.Is(err, optimistic.ErrStale) || errors.Is(err, dblock.ErrConflict), "%s at %v: %v", name, level, err)
			_ = tx.Rollback()
			b.is(t, 1, "SELECT balance FROM account WHERE id = 1")
		}
	}
}

func (tests[DB]) CountsStatements(t *testing.T, b *env[DB]) {
	ctx, table, one := t.Context(), b.ints(t, "account"), set{"balance": 1}
	require.NoError(t, table.Check(ctx, b.db))
	tx := b.tx(t, sql.LevelReadCommitted)
	db, sent := b.e.Counted(tx.DB)
	count := func(what string, want int64, run func() error) {
		t.Helper()
		before := sent()
		if err := run(); want == 1 {
			require.NoError(t, err, what)
		}
		assert.Equal(t, want, sent()-before, "statements of %s", what)
	}
	count("check", 0, func() error { require.NoError(t, table.Check(ctx, db)); return nil })
	count("update", 1, func() error { return errOf(table.Update(ctx, db, 1, 1, one)) })
	count("conflict", 2, func() error { return errOf(table.Update(ctx, db, 1, 1, one)) })
	count("no row", 2, func() error { return errOf(table.Update(ctx, db, 99, 1, one)) })
	count("bad input", 0, func() error { return errOf(table.Update(ctx, db, 1, 0, one)) })
	count("touch", 1, func() error { return errOf(table.Touch(ctx, db, 1, 2)) })
	count("insert", 1, func() error { return errOf(table.Upsert(ctx, db, 20, optimistic.Absent[int64](), one)) })
	count("delete", 1, func() error { return table.Delete(ctx, db, 1, 3) })
	changes := []change{{Key: 3, Expected: 1, Set: one}, {Key: 2, Expected: 1, Set: one}}
	many := int64(2)
	if b.Postgres() {
		many = 1
	}
	count("many", many, func() error { must(table.UpdateMany(ctx, db, changes, optimistic.UpdateAllOrNothing))(t); return nil })
	before := sent()
	require.ErrorIs(t, errOf(table.UpdateMany(ctx, db, changes, optimistic.UpdateAllOrNothing)), optimistic.ErrStale)
	assert.EqualValues(t, 1, sent()-before, "statements of many that conflict")
}

// TimesGrow: if the clock has not moved on, or was set back, the version is one microsecond later
// than the last.
func (tests[DB]) TimesGrow(t *testing.T, b *env[DB]) {
	ctx, table := t.Context(), b.times(t, "account", "changed")
	b.Exec(t, "UPDATE account SET changed = '2120-03-04 05:06:07.000009"+b.by("+00'", "'"))
	was := must(table.Version(ctx, b.db, 1))(t)
	require.Equal(t, time.Date(2120, 3, 4, 5, 6, 7, 9000, time.UTC), was)
	now := must(table.Update(ctx, b.db, 1, was.Add(999).In(time.FixedZone("odd", 5*3600+1800)), set{"balance": 1}))(t)
	require.Equal(t, was.Add(time.Microsecond), now)
	outcomes := must(table.UpdateMany(ctx, b.db, []optimistic.Change[time.Time]{{Key: 1, Expected: now, Set: set{"balance": 2}}},
		optimistic.UpdateAllOrNothing))(t)
	require.Equal(t, now.Add(time.Microsecond), outcomes[0].Version)
	b.Exec(t, "UPDATE account SET changed = '2020-03-04 05:06:07"+b.by("+00'", "'"))
	assert.WithinDuration(t, time.Now(), must(table.Any().Touch(ctx, b.db, 2))(t), time.Hour, "the server's clock")
}

// UpsertAnotherIndex: a row that another unique index refuses is another row, and is left alone.
func (tests[DB]) UpsertAnotherIndex(t *testing.T, b *env[DB]) {
	ctx, table, none := t.Context(), b.ints(t, "account"), optimistic.Absent[int64]()
	b.Exec(t, "CREATE UNIQUE INDEX account_note ON account (note)")
	must(table.Update(ctx, b.db, 1, 1, set{"note": "mine"}))(t)
	same := set{"balance": 9, "note": "mine"}
	for _, err := range []error{
		errOf(table.Upsert(ctx, b.db, 40, none, same)), errOf(table.Any().Upsert(ctx, b.db, 40, same)),
	} {
		assert.Error(t, err, "by another index")
		assert.NotErrorIs(t, err, optimistic.ErrStale)
	}
	conflicts(t, "by the key", errOf(table.Upsert(ctx, b.db, 2, none, set{"balance": 9, "note": "other"})), none, int64(1))
	b.is(t, 0, "SELECT count(*) FROM account WHERE balance = 9 OR id = 40")
	if b.Postgres() {
		return
	}
	b.Exec(t, "CREATE TABLE counted (id BIGINT AUTO_INCREMENT PRIMARY KEY, balance BIGINT, changed DATETIME(6) NOT NULL, version BIGINT NOT NULL)")
	err := errOf(b.ints(t, "counted").Upsert(ctx, b.db, 0, none, set{"balance": 9, "changed": "2020-01-01"}))
	badInput(t, "0 in AUTO_INCREMENT", err)
	times := b.times(t, "counted", "changed")
	got := must(times.Any().Upsert(ctx, b.db, 17, set{"balance": 9, "version": 1}))(t)
	assert.Equal(t, got, must(times.Version(ctx, b.db, 17))(t))
}

// ManyKeys writes as many rows as one call takes, by texts, and rows by UUIDs. Keys that the server
// takes for the same one are refused.
func (tests[DB]) ManyKeys(t *testing.T, b *env[DB]) {
	ctx := t.Context()
	if b.Postgres() {
		b.Exec(t, `CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false)`)
	}
	b.Exec(t, "CREATE TABLE named (id VARCHAR(20) "+b.by("COLLATE loose", "CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci")+
		" PRIMARY KEY, balance BIGINT NOT NULL, version BIGINT NOT NULL DEFAULT 1)")
	most := make([]change, optimistic.MaxChanges)
	var rows []string
	for i := range most {
		most[i] = change{Key: fmt.Sprintf("Key %d", i), Expected: 1, Set: set{"balance": i}}
		rows = append(rows, fmt.Sprintf("('key %d', -1, 1)", i))
	}
	b.Exec(t, "INSERT INTO named VALUES "+strings.Join(rows, ", "))
	named := b.ints(t, "named")
	for _, mode := range []optimistic.UpdateMode{optimistic.UpdateEachRow, optimistic.UpdateAllOrNothing} {
		same := change{Key: "KEY 0", Expected: 1, Set: set{"balance": 5}}
		badInput(t, "two keys of a row", errOf(named.UpdateMany(ctx, b.db, append(most[:9:9], same), mode)))
	}
	b.is(t, -int64(len(most)), "SELECT sum(balance) FROM named")
	must(named.UpdateMany(ctx, b.db, most, optimistic.UpdateAllOrNothing))(t)
	b.is(t, int64(len(most)), "SELECT count(*) FROM named WHERE id = "+b.by("'key ' || balance", "CONCAT('key ', balance)"))

	b.Exec(t, "CREATE TABLE tagged (id "+b.by("UUID", "BINARY(16)")+" PRIMARY KEY, n INT NOT NULL, version BIGINT NOT NULL DEFAULT 1)")
	tagged := b.ints(t, "tagged")
	var changes []change
	for i, key := range [][16]byte{{1, 2, 0xff}, {2, 0, '\''}} {
		must(tagged.Upsert(ctx, b.db, key, optimistic.Absent[int64](), set{"n": 0}))(t)
		changes = append(changes, change{Key: key, Expected: 1, Set: set{"n": i + 1}})
	}
	must(tagged.UpdateMany(ctx, b.db, changes, optimistic.UpdateAllOrNothing))(t)
	b.is(t, 1, "SELECT count(*) FROM tagged WHERE n = 2 AND "+b.by("id = '02002700-0000-0000-0000-000000000000'", "HEX(id) LIKE '020027%'"))
}
