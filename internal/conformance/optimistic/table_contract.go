package optimistic

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/optimistic"
)

// contract goes through what is promised of every kind of version.
func contract[DB any](t *testing.T, b *tables[DB]) {
	b.fresh(t, "account", 10)
	contractOf(t, b, b.ints(t, "account"))
	b.insert(t, "account", 1, 2)
	contractOf(t, b, b.times(t, "account", "changed"))
	b.insert(t, "account", 1, 2)
	contractOf(t, b, b.tags(t, "account", "tag"))
	if b.Postgres() {
		b.Exec(t, "ALTER TABLE account ALTER changed TYPE TIMESTAMP(6)")
		b.insert(t, "account", 1, 2)
		contractOf(t, b, b.times(t, "account", "changed"))
		return
	}
	const text = "CHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
	types := map[devdb.Kind][]string{devdb.MySQL: {text}, devdb.MariaDB: {text, "UUID"}}
	for _, typ := range types[b.Kind] {
		b.Exec(t, "ALTER TABLE account DROP COLUMN tag, ADD COLUMN tag "+typ+" NOT NULL DEFAULT '0A2F6B4E-7C1D-4E2F-8A3B-1C2D3E4F5A6B'")
		b.insert(t, "account", 1, 2)
		contractOf(t, b, b.tags(t, "account", "tag"))
	}
}

// contractOf writes the accounts 1 and 2, and deletes them.
func contractOf[V, DB any](t *testing.T, b *tables[DB], table *optimistic.Table[V, DB]) {
	t.Helper()
	ctx := t.Context()
	was := must(table.Version(ctx, b.db, 1))(t)
	now := must(table.Update(ctx, b.db, 1, was, set{"balance": 10, "note": "a 'note' \\"}))(t)
	require.NotEqual(t, was, now)
	require.Equal(t, now, must(table.Version(ctx, b.db, int64(1)))(t))
	conflicts(t, "a stale update", errOf(table.Update(ctx, b.db, 1, was, set{"balance": 20})), was, now)
	conflicts(t, "a stale touch", errOf(table.Touch(ctx, b.db, 1, was)), was, now)
	conflicts(t, "a stale delete", table.Delete(ctx, b.db, 1, was), was, now)
	b.is(t, 10, "SELECT balance FROM account WHERE id = 1")
	missing(t, "an update of no row", errOf(table.Update(ctx, b.db, 77, was, set{"balance": 20})))
	missing(t, "the version of no row", errOf(table.Version(ctx, b.db, 77)))

	touched := must(table.Touch(ctx, b.db, 1, now))(t)
	conflicts(t, "an update after a touch", errOf(table.Update(ctx, b.db, 1, now, set{"note": nil})), now, touched)
	noted := must(table.Update(ctx, b.db, 1, touched, set{"note": nil}))(t)
	b.is(t, 1, "SELECT count(*) FROM account WHERE id = 1 AND note IS NULL")

	var zero V
	badInput(t, "the zero version", errOf(table.Update(ctx, b.db, 1, zero, set{"balance": 20})))
	blind := must(table.Any().Update(ctx, b.db, 1, set{"balance": 30}))(t)
	conflicts(t, "a delete after a blind write", table.Delete(ctx, b.db, 1, noted), noted, blind)
	blind = must(table.Any().Touch(ctx, b.db, 1))(t)
	require.NoError(t, table.Delete(ctx, b.db, 1, blind))
	missing(t, "a second delete", table.Delete(ctx, b.db, 1, blind))
	missing(t, "a blind delete", table.Any().Delete(ctx, b.db, 1))
	require.NoError(t, table.Any().Delete(ctx, b.db, 2))
	missing(t, "a blind update", errOf(table.Any().Update(ctx, b.db, 2, set{"balance": 30})))
}

func inTransactions[DB any](t *testing.T, b *tables[DB]) {
	ctx, table := t.Context(), b.ints(t, "account")
	tx := b.tx(t, sql.LevelReadCommitted)
	two := must(table.Update(ctx, tx.DB, 1, 1, set{"balance": 5}))(t)
	conflicts(t, "after a write of its own", errOf(table.Update(ctx, tx.DB, 1, 1, set{"balance": 6})), int64(1), two)
	must(table.Update(ctx, tx.DB, 1, two, set{"balance": 7}))(t)
	require.NoError(t, tx.Rollback())
	assert.EqualValues(t, 1, must(table.Version(ctx, b.db, 1))(t), "after a rollback")
	err := errOf(table.Update(ctx, tx.DB, 1, 1, set{"balance": 6}))
	assert.Error(t, err, "in a transaction that has ended")
	assert.NotErrorIs(t, err, optimistic.ErrConflict)
	assert.NotErrorIs(t, err, dblock.ErrOutcomeUnknown)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	assert.ErrorIs(t, errOf(table.Update(ended, b.db, 1, 1, set{"balance": 6})), context.Canceled)
}

// atAnyIsolation reads a row, has another session write it, and writes: that must never pass for a
// success.
func atAnyIsolation[DB any](t *testing.T, b *tables[DB]) {
	ctx, table := t.Context(), b.ints(t, "account")
	b.fresh(t, "account", 2)
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		for name, mine := range map[string]func(DB) error{
			"update": func(db DB) error { return errOf(table.Update(ctx, db, 1, 1, set{"balance": 2})) },
			"delete": func(db DB) error { return table.Delete(ctx, db, 1, 1) },
			"many": func(db DB) error {
				return errOf(table.UpdateMany(ctx, db, []change{{Key: 1, Expected: 1, Set: set{"balance": 2}}}, optimistic.AllOrNothing))
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
			assert.True(t, errors.Is(err, optimistic.ErrConflict) || errors.Is(err, dblock.ErrConflict), "%s at %v: %v", name, level, err)
			_ = tx.Rollback()
			b.is(t, 1, "SELECT balance FROM account WHERE id = 1")
		}
	}
}

func countsStatements[DB any](t *testing.T, b *tables[DB]) {
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
	count("many", many, func() error { must(table.UpdateMany(ctx, db, changes, optimistic.AllOrNothing))(t); return nil })
	before := sent()
	require.ErrorIs(t, errOf(table.UpdateMany(ctx, db, changes, optimistic.AllOrNothing)), optimistic.ErrConflict)
	assert.EqualValues(t, 1, sent()-before, "statements of many that conflict")
}

// timesGrow: if the clock has not moved on, or was set back, the version is one microsecond later
// than the last.
func timesGrow[DB any](t *testing.T, b *tables[DB]) {
	ctx, table := t.Context(), b.times(t, "account", "changed")
	b.Exec(t, "UPDATE account SET changed = '2120-03-04 05:06:07.000009"+b.by("+00'", "'"))
	was := must(table.Version(ctx, b.db, 1))(t)
	require.Equal(t, time.Date(2120, 3, 4, 5, 6, 7, 9000, time.UTC), was)
	now := must(table.Update(ctx, b.db, 1, was.Add(999).In(time.FixedZone("odd", 5*3600+1800)), set{"balance": 1}))(t)
	require.Equal(t, was.Add(time.Microsecond), now)
	outcomes := must(table.UpdateMany(ctx, b.db, []optimistic.Change[time.Time]{{Key: 1, Expected: now, Set: set{"balance": 2}}},
		optimistic.AllOrNothing))(t)
	require.Equal(t, now.Add(time.Microsecond), outcomes[0].Version)
	require.Equal(t, outcomes[0].Version, must(table.Version(ctx, b.db, 1))(t))
	b.Exec(t, "UPDATE account SET changed = '2020-03-04 05:06:07"+b.by("+00'", "'"))
	was = must(table.Version(ctx, b.db, 2))(t)
	assert.WithinDuration(t, time.Now(), must(table.Touch(ctx, b.db, 2, was))(t), time.Hour, "the server's clock")
	inserted := must(table.Upsert(ctx, b.db, 50, optimistic.Absent[time.Time](), set{"balance": 1}))(t)
	assert.Equal(t, inserted, must(table.Version(ctx, b.db, 50))(t))
}

// recreated: a row that was deleted and inserted again is another one. Integers begin at 1 again,
// and do not tell.
func recreated[DB any](t *testing.T, b *tables[DB]) {
	ctx, tags, ints := t.Context(), b.tags(t, "account", "tag"), b.ints(t, "account")
	was := must(tags.Touch(ctx, b.db, 1, must(tags.Version(ctx, b.db, 1))(t)))(t)
	require.NoError(t, tags.Delete(ctx, b.db, 1, was))
	now := must(tags.Upsert(ctx, b.db, 1, optimistic.Absent[[16]byte](), set{"balance": 1}))(t)
	conflicts(t, "UUID", errOf(tags.Update(ctx, b.db, 1, was, set{"balance": 2})), was, now)
	require.NoError(t, ints.Delete(ctx, b.db, 2, 1))
	b.insert(t, "account", 2, 2)
	must(ints.Update(ctx, b.db, 2, 1, set{"balance": 2}))(t)
}

func upserts[DB any](t *testing.T, b *tables[DB]) {
	ctx, table, none, five := t.Context(), b.ints(t, "account"), optimistic.Absent[int64](), set{"balance": 5}
	b.fresh(t, "account", 2)
	assert.EqualValues(t, 1, must(table.Upsert(ctx, b.db, 30, none, five))(t))
	conflicts(t, "a second insert", errOf(table.Upsert(ctx, b.db, 30, none, set{"balance": 6})), none, int64(1))
	v := must(table.Upsert(ctx, b.db, 30, optimistic.At(int64(1)), set{"balance": 7}))(t)
	conflicts(t, "a stale one", errOf(table.Upsert(ctx, b.db, 30, optimistic.At(int64(1)), set{"balance": 8})), int64(1), v)
	missing(t, "one that was deleted", errOf(table.Upsert(ctx, b.db, 31, optimistic.At(int64(1)), five)))
	assert.EqualValues(t, 1, must(table.Any().Upsert(ctx, b.db, 32, five))(t))
	assert.EqualValues(t, 2, must(table.Any().Upsert(ctx, b.db, 32, five))(t))
	b.is(t, 12, "SELECT sum(balance) FROM account")
	tags := b.tags(t, "account", "tag")
	tag := must(tags.Upsert(ctx, b.db, 33, optimistic.Absent[[16]byte](), five))(t)
	require.NoError(t, tags.Delete(ctx, b.db, 33, tag))
	columns := b.columns(t, "account", "balance", "note")
	badInput(t, "some of the columns", errOf(columns.Upsert(ctx, b.db, 34, optimistic.Absent[values](), five)))
	row := must(columns.Upsert(ctx, b.db, 34, optimistic.Absent[values](), set{"balance": 5, "note": "x"}))(t)
	require.NoError(t, columns.Delete(ctx, b.db, 34, row))
}

// upsertAnotherIndex: a row that another unique index refuses is another row, and is left alone.
func upsertAnotherIndex[DB any](t *testing.T, b *tables[DB]) {
	ctx, table, none := t.Context(), b.ints(t, "account"), optimistic.Absent[int64]()
	b.Exec(t, "CREATE UNIQUE INDEX account_note ON account (note)")
	must(table.Update(ctx, b.db, 1, 1, set{"note": "mine"}))(t)
	same := set{"balance": 9, "note": "mine"}
	for _, err := range []error{
		errOf(table.Upsert(ctx, b.db, 40, none, same)), errOf(table.Any().Upsert(ctx, b.db, 40, same)),
	} {
		assert.Error(t, err, "by another index")
		assert.NotErrorIs(t, err, optimistic.ErrConflict)
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
