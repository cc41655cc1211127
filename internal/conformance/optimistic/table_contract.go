package optimistic

import (
	"context"
	"database/sql"
	"errors"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/optimistic"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// tableContract goes through what is promised of every version.
func tableContract[DB any](t *testing.T, b *bank[DB]) {
	b.fresh(t, "account", 10)
	contractOf(t, b, sure(b.e.Int("account", "id", optimistic.Int("version")))(t))
	b.fresh(t, "account", 10)
	contractOf(t, b, sure(b.e.Time("account", "id", optimistic.Timestamp("changed")))(t))
	b.fresh(t, "account", 10)
	contractOf(t, b, sure(b.e.UUID("account", "id", optimistic.UUID("tag")))(t))
	if b.postgres() {
		b.exec(t, "ALTER TABLE account ALTER changed TYPE TIMESTAMP(6)")
		b.exec(t, "DELETE FROM account")
		b.row(t, "account", 1)
		b.row(t, "account", 2)
		contractOf(t, b, sure(b.e.Time("account", "id", optimistic.Timestamp("changed")))(t))
		return
	}
	b.fresh(t, "account", 10)
	b.exec(t, "ALTER TABLE account MODIFY tag CHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '0A2F6B4E-7C1D-4E2F-8A3B-1C2D3E4F5A6B'")
	b.exec(t, "UPDATE account SET tag = DEFAULT")
	if b.e.Kind == devdb.MariaDB {
		contractOf(t, b, sure(b.e.UUID("account", "id", optimistic.UUID("tag")))(t))
		b.fresh(t, "account", 10)
		b.exec(t, "ALTER TABLE account DROP COLUMN tag, ADD COLUMN tag UUID NOT NULL DEFAULT '0A2F6B4E-7C1D-4E2F-8A3B-1C2D3E4F5A6B'")
	}
	contractOf(t, b, sure(b.e.UUID("account", "id", optimistic.UUID("tag")))(t))
}

func contractOf[V, DB any](t *testing.T, b *bank[DB], table *optimistic.Table[V, DB]) {
	t.Helper()
	ctx := t.Context()
	was := sure(table.Version(ctx, b.db, 1))(t)
	now := sure(table.Update(ctx, b.db, 1, was, optimistic.Set{"balance": 10, "note": "a 'note' \\"}))(t)
	if reflect.DeepEqual(was, now) {
		t.Fatalf("the version is %v still", now)
	}
	if read := sure(table.Version(ctx, b.db, int64(1)))(t); !reflect.DeepEqual(read, now) {
		t.Fatalf("the version is %v, was told as %v", read, now)
	}
	_, err := table.Update(ctx, b.db, 1, was, optimistic.Set{"balance": 20})
	conflicts(t, "a stale update", err, was, now)
	_, err = table.Touch(ctx, b.db, 1, was)
	conflicts(t, "a stale touch", err, was, now)
	conflicts(t, "a stale delete", table.Delete(ctx, b.db, 1, was), was, now)
	if n := b.number(t, "SELECT balance FROM account WHERE id = 1"); n != 10 {
		t.Fatalf("the balance is %d", n)
	}
	_, err = table.Update(ctx, b.db, 77, was, optimistic.Set{"balance": 20})
	missing(t, "an update of no row", err)
	_, err = table.Version(ctx, b.db, 77)
	missing(t, "the version of no row", err)

	touched := sure(table.Touch(ctx, b.db, 1, now))(t)
	_, err = table.Update(ctx, b.db, 1, now, optimistic.Set{"note": nil})
	conflicts(t, "an update after a touch", err, now, touched)
	noted := sure(table.Update(ctx, b.db, 1, touched, optimistic.Set{"note": nil}))(t)
	if n := b.number(t, "SELECT count(*) FROM account WHERE id = 1 AND note IS NULL"); n != 1 {
		t.Fatal("the note is not NULL")
	}

	var zero V
	_, err = table.Update(ctx, b.db, 1, zero, optimistic.Set{"balance": 20})
	badInput(t, "the zero version", err)
	blind := sure(table.Any().Update(ctx, b.db, 1, optimistic.Set{"balance": 30}))(t)
	conflicts(t, "a delete after a blind write", table.Delete(ctx, b.db, 1, noted), noted, blind)
	blind = sure(table.Any().Touch(ctx, b.db, 1))(t)
	require.NoError(t, table.Delete(ctx, b.db, 1, blind), "a delete")
	missing(t, "a second delete", table.Delete(ctx, b.db, 1, blind))
	missing(t, "a blind delete", table.Any().Delete(ctx, b.db, 1))
	require.NoError(t, table.Any().Delete(ctx, b.db, 2), "a blind delete")
	_, err = table.Any().Update(ctx, b.db, 2, optimistic.Set{"balance": 30})
	missing(t, "a blind update", err)
}

func tableInTransactions[DB any](t *testing.T, b *bank[DB]) {
	ctx, table := t.Context(), b.ints(t, "account")
	tx := b.tx(t, sql.LevelReadCommitted)
	two := sure(table.Update(ctx, tx.DB, 1, 1, optimistic.Set{"balance": 5}))(t)
	_, err := table.Update(ctx, tx.DB, 1, 1, optimistic.Set{"balance": 6})
	conflicts(t, "after a write of its own", err, int64(1), two)
	sure(table.Update(ctx, tx.DB, 1, two, optimistic.Set{"balance": 7}))(t)
	require.NoError(t, tx.Rollback(), "rollback")
	if v := sure(table.Version(ctx, b.db, 1))(t); v != 1 {
		t.Fatalf("the version is %d after a rollback", v)
	}
	_, err = table.Update(ctx, tx.DB, 1, 1, optimistic.Set{"balance": 6})
	if err == nil || errors.Is(err, optimistic.ErrConflict) || errors.Is(err, dblock.ErrOutcomeUnknown) {
		t.Fatalf("in a transaction that has ended: %v", err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err = table.Update(ended, b.db, 1, 1, optimistic.Set{"balance": 6}); !errors.Is(err, context.Canceled) {
		t.Fatalf("with a context that has ended: %v", err)
	}
}

// tableAtAnyIsolation reads a row, has somebody else write it, and writes: that must never pass for a success.
func tableAtAnyIsolation[DB any](t *testing.T, b *bank[DB]) {
	ctx := t.Context()
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		for name, mine := range map[string]func(*optimistic.Table[int64, DB], DB, int64) error{
			"update": func(table *optimistic.Table[int64, DB], db DB, v int64) error {
				_, err := table.Update(ctx, db, 1, v, optimistic.Set{"balance": 2})
				return err
			},
			"delete": func(table *optimistic.Table[int64, DB], db DB, v int64) error { return table.Delete(ctx, db, 1, v) },
			"many": func(table *optimistic.Table[int64, DB], db DB, v int64) error {
				_, err := table.UpdateMany(ctx, db, []optimistic.Change[int64]{{Key: 1, Expected: v, Set: optimistic.Set{"balance": 2}}},
					optimistic.AllOrNothing)
				return err
			},
		} {
			b.fresh(t, "account", 2)
			table := b.ints(t, "account")
			tx := b.tx(t, level)
			// Another row is read, so that no lock on this one keeps the other writer out, and what tx sees of it is fixed.
			sure(table.Version(ctx, tx.DB, 2))(t)
			sure(table.Update(ctx, tx.DB, 2, 1, optimistic.Set{"balance": 1}))(t)
			sure(table.Update(ctx, b.db, 1, 1, optimistic.Set{"balance": 1}))(t)
			err := mine(table, tx.DB, 1)
			if !errors.Is(err, optimistic.ErrConflict) && !errors.Is(err, dblock.ErrConflict) {
				t.Errorf("%s at %v: %v", name, level, err)
			}
			_ = tx.Rollback()
			if n := b.number(t, "SELECT balance FROM account WHERE id = 1"); n != 1 {
				t.Errorf("%s at %v: the balance is %d", name, level, n)
			}
		}
	}
}

func tableCountsStatements[DB any](t *testing.T, b *bank[DB]) {
	ctx, table := t.Context(), b.ints(t, "account")
	require.NoError(t, table.Check(ctx, b.db), "check")
	tx := b.tx(t, sql.LevelReadCommitted)
	db, sent := b.e.Counted(tx.DB)
	count := func(what string, want int64, run func()) {
		t.Helper()
		before := sent()
		if run(); sent()-before != want {
			t.Errorf("%s took %d statements, not %d", what, sent()-before, want)
		}
	}
	count("check", 0, func() { require.NoError(t, table.Check(ctx, db)) })
	count("update", 1, func() { sure(table.Update(ctx, db, 1, 1, optimistic.Set{"balance": 1}))(t) })
	count("conflict", 2, func() { _, _ = table.Update(ctx, db, 1, 1, optimistic.Set{"balance": 1}) })
	count("no row", 2, func() { _, _ = table.Update(ctx, db, 99, 1, optimistic.Set{"balance": 1}) })
	count("bad input", 0, func() { _, _ = table.Update(ctx, db, 1, 0, optimistic.Set{"balance": 1}) })
	count("touch", 1, func() { sure(table.Touch(ctx, db, 1, 2))(t) })
	count("insert", 1, func() { sure(table.Upsert(ctx, db, 20, optimistic.Absent[int64](), optimistic.Set{"balance": 1}))(t) })
	count("delete", 1, func() { require.NoError(t, table.Delete(ctx, db, 1, 3)) })
	changes := []optimistic.Change[int64]{
		{Key: 3, Expected: 1, Set: optimistic.Set{"balance": 1}}, {Key: 2, Expected: 1, Set: optimistic.Set{"balance": 1}},
	}
	many := int64(2)
	if b.postgres() {
		many = 1
	}
	count("many", many, func() { sure(table.UpdateMany(ctx, db, changes, optimistic.AllOrNothing))(t) })
	count("many that conflict", 1, func() { _, _ = table.UpdateMany(ctx, db, changes, optimistic.AllOrNothing) })
}

// timesGrow: where the clock has not moved on, or was set back, the version is one microsecond later than the last.
func timesGrow[DB any](t *testing.T, b *bank[DB]) {
	ctx := t.Context()
	table := sure(b.e.Time("account", "id", optimistic.Timestamp("changed")))(t)
	b.exec(t, "UPDATE account SET changed = '2120-03-04 05:06:07.000009"+b.by("+00'", "'"))
	was := sure(table.Version(ctx, b.db, 1))(t)
	if want := time.Date(2120, 3, 4, 5, 6, 7, 9000, time.UTC); !was.Equal(want) || was.Location() != time.UTC {
		t.Fatalf("the version is %v, want %v", was, want)
	}
	now := sure(table.Update(ctx, b.db, 1, was.Add(999).In(time.FixedZone("odd", 5*3600+1800)), optimistic.Set{"balance": 1}))(t)
	if now.Sub(was) != time.Microsecond {
		t.Fatalf("it is %v after %v", now, was)
	}
	outcomes := sure(table.UpdateMany(ctx, b.db, []optimistic.Change[time.Time]{{Key: 1, Expected: now, Set: optimistic.Set{"balance": 2}}},
		optimistic.AllOrNothing))(t)
	if got := outcomes[0].Version; got.Sub(now) != time.Microsecond || !sure(table.Version(ctx, b.db, 1))(t).Equal(got) {
		t.Fatalf("of many it is %v after %v", got, now)
	}
	b.exec(t, "UPDATE account SET changed = '2020-03-04 05:06:07"+b.by("+00'", "'"))
	was = sure(table.Version(ctx, b.db, 2))(t)
	now = sure(table.Touch(ctx, b.db, 2, was))(t)
	if away := time.Since(now); away.Abs() > time.Hour {
		t.Fatalf("the server's clock is away by %v", away)
	}
	inserted := sure(table.Upsert(ctx, b.db, 50, optimistic.Absent[time.Time](), optimistic.Set{"balance": 1}))(t)
	if read := sure(table.Version(ctx, b.db, 50))(t); !read.Equal(inserted) {
		t.Fatalf("inserted at %v, told as %v", read, inserted)
	}
}

// recreatedRows: a row that was deleted and made anew is another one. Integers begin at 1 again, and do not tell.
func recreatedRows[DB any](t *testing.T, b *bank[DB]) {
	ctx := t.Context()
	tags := sure(b.e.UUID("account", "id", optimistic.UUID("tag")))(t)
	was := sure(tags.Touch(ctx, b.db, 1, sure(tags.Version(ctx, b.db, 1))(t)))(t)
	require.NoError(t, tags.Delete(ctx, b.db, 1, was), "delete")
	now := sure(tags.Upsert(ctx, b.db, 1, optimistic.Absent[[16]byte](), optimistic.Set{"balance": 1}))(t)
	_, err := tags.Update(ctx, b.db, 1, was, optimistic.Set{"balance": 2})
	conflicts(t, "UUID", err, was, now)

	ints := b.ints(t, "account")
	require.NoError(t, ints.Delete(ctx, b.db, 2, 1), "delete")
	b.row(t, "account", 2)
	sure(ints.Update(ctx, b.db, 2, 1, optimistic.Set{"balance": 2}))(t)
}
