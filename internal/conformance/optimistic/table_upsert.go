package optimistic

import (
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/optimistic"
)

func upserts[DB any](t *testing.T, b *bank[DB]) {
	ctx := t.Context()
	b.fresh(t, "account", 2)
	table := b.ints(t, "account")
	set := optimistic.Set{"balance": 5}
	none := optimistic.Absent[int64]()
	if v := sure(table.Upsert(ctx, b.db, 30, none, set))(t); v != 1 {
		t.Fatalf("inserted at %d", v)
	}
	_, err := table.Upsert(ctx, b.db, 30, none, optimistic.Set{"balance": 6})
	conflicts(t, "a second insert", err, none, int64(1))
	v := sure(table.Upsert(ctx, b.db, 30, optimistic.At(int64(1)), optimistic.Set{"balance": 7}))(t)
	_, err = table.Upsert(ctx, b.db, 30, optimistic.At(int64(1)), optimistic.Set{"balance": 8})
	conflicts(t, "a stale one", err, int64(1), v)
	_, err = table.Upsert(ctx, b.db, 31, optimistic.At(int64(1)), set)
	missing(t, "one that was deleted", err)
	if v := sure(table.Any().Upsert(ctx, b.db, 32, set))(t); v != 1 {
		t.Fatalf("inserted at %d", v)
	}
	if v := sure(table.Any().Upsert(ctx, b.db, 32, set))(t); v != 2 {
		t.Fatalf("updated to %d", v)
	}
	if n := b.number(t, "SELECT sum(balance) FROM account"); n != 12 {
		t.Fatalf("the balances are %d", n)
	}
	tags := sure(b.e.UUID("account", "id", optimistic.UUID("tag")))(t)
	tag := sure(tags.Upsert(ctx, b.db, 33, optimistic.Absent[[16]byte](), set))(t)
	require.NoError(t, tags.Delete(ctx, b.db, 33, tag), "delete")
	columns := b.columns(t, "account", "balance", "note")
	_, err = columns.Upsert(ctx, b.db, 34, optimistic.Absent[values](), set)
	badInput(t, "some of the columns", err)
	row := sure(columns.Upsert(ctx, b.db, 34, optimistic.Absent[values](), optimistic.Set{"balance": 5, "note": "x"}))(t)
	require.NoError(t, columns.Delete(ctx, b.db, 34, row), "delete")
}

// upsertAnotherIndex: a row that another unique index refuses is no row of ours, and is left alone.
func upsertAnotherIndex[DB any](t *testing.T, b *bank[DB]) {
	ctx, table := t.Context(), b.ints(t, "account")
	b.exec(t, "CREATE UNIQUE INDEX account_note ON account (note)")
	sure(table.Update(ctx, b.db, 1, 1, optimistic.Set{"note": "mine"}))(t)
	_, err := table.Upsert(ctx, b.db, 40, optimistic.Absent[int64](), optimistic.Set{"balance": 9, "note": "mine"})
	if err == nil || errors.Is(err, optimistic.ErrConflict) {
		t.Errorf("by another index: %v", err)
	}
	_, err = table.Any().Upsert(ctx, b.db, 40, optimistic.Set{"balance": 9, "note": "mine"})
	if err == nil || errors.Is(err, optimistic.ErrConflict) {
		t.Errorf("blindly, by another index: %v", err)
	}
	_, err = table.Upsert(ctx, b.db, 2, optimistic.Absent[int64](), optimistic.Set{"balance": 9, "note": "other"})
	conflicts(t, "by the key", err, optimistic.Absent[int64](), int64(1))
	if n := b.number(t, "SELECT count(*) FROM account WHERE balance = 9 OR id = 40"); n != 0 {
		t.Errorf("%d rows were written", n)
	}
	if b.postgres() {
		return
	}
	b.exec(t, "CREATE TABLE counted (id BIGINT AUTO_INCREMENT PRIMARY KEY, balance BIGINT, changed DATETIME(6) NOT NULL, version BIGINT NOT NULL)")
	_, err = b.ints(t, "counted").Upsert(ctx, b.db, 0, optimistic.Absent[int64](), optimistic.Set{"balance": 9, "changed": "2020-01-01"})
	badInput(t, "0 in AUTO_INCREMENT", err)
	times := sure(b.e.Time("counted", "id", optimistic.Timestamp("changed")))(t)
	got := sure(times.Any().Upsert(ctx, b.db, 17, optimistic.Set{"balance": 9, "version": 1}))(t)
	if read := sure(times.Version(ctx, b.db, 17))(t); !read.Equal(got) {
		t.Errorf("with AUTO_INCREMENT it is at %v, told as %v", read, got)
	}
}

// upsertRace: of many who insert a row one does, and the others meet a conflict.
func upsertRace[DB any](t *testing.T, b *bank[DB]) {
	ctx, table := t.Context(), b.ints(t, "account")
	require.NoError(t, table.Check(ctx, b.db), "check")
	for key := int64(100); key < 120; key++ {
		var wg sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			wg.Go(func() {
				_, errs[i] = table.Upsert(ctx, b.db, key, optimistic.Absent[int64](), optimistic.Set{"balance": 1})
			})
		}
		wg.Wait()
		won := 0
		for _, err := range errs {
			switch {
			case err == nil:
				won++
			case !errors.Is(err, optimistic.ErrConflict):
				t.Errorf("%v", err)
			}
		}
		if won != 1 {
			t.Errorf("%d inserted %d", won, key)
		}
	}
}
