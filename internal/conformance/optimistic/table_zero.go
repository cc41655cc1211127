package optimistic

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/optimistic"
)

// versionsFromZero: rows at version 0, as Rails and Hibernate insert them, are written like others.
func versionsFromZero[DB any](t *testing.T, b *bank[DB]) {
	ctx := t.Context()
	b.exec(t, "CREATE TABLE article (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL, lock_version INT NOT NULL DEFAULT 0)")
	b.exec(t, "INSERT INTO article (id, balance) VALUES (1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (6, 0)")
	table := sure(b.e.Int("article", "id", optimistic.IntFromZero("lock_version")))(t)
	set := optimistic.Set{"balance": 1}
	is := func(what string, got int64, err error, want int64) {
		t.Helper()
		if err != nil || got != want {
			t.Fatalf("%s: version %d, %v, want %d", what, got, err, want)
		}
	}
	v, err := table.Version(ctx, b.db, 1)
	is("a new row", v, err, 0)
	v, err = table.Update(ctx, b.db, 1, 0, set)
	is("its first update", v, err, 1)
	_, err = table.Update(ctx, b.db, 1, 0, set)
	conflicts(t, "a stale update", err, int64(0), int64(1))
	conflicts(t, "a stale delete", table.Delete(ctx, b.db, 1, 0), int64(0), int64(1))
	_, err = table.Update(ctx, b.db, 77, 0, set)
	missing(t, "an update of no row", err)
	v, err = table.Touch(ctx, b.db, 2, 0)
	is("a touch", v, err, 1)
	require.NoError(t, table.Delete(ctx, b.db, 3, 0), "a delete")
	v, err = table.Any().Update(ctx, b.db, 4, set)
	is("a blind update", v, err, 1)

	absent := optimistic.Absent[int64]()
	v, err = table.Upsert(ctx, b.db, 10, absent, set)
	is("an insert", v, err, 0)
	_, err = table.Upsert(ctx, b.db, 10, absent, set)
	conflicts(t, "a second insert", err, absent, int64(0))
	v, err = table.Upsert(ctx, b.db, 10, optimistic.At(int64(0)), set)
	is("an upsert at 0", v, err, 1)
	v, err = table.Any().Upsert(ctx, b.db, 11, set)
	is("a blind insert", v, err, 0)

	outcomes := sure(table.UpdateMany(ctx, b.db, []optimistic.Change[int64]{
		{Key: 1, Expected: 0, Set: set}, {Key: 5, Expected: 0, Set: set},
	}, optimistic.EachRow))(t)
	conflicts(t, "a stale one of many", outcomes[0].Err, int64(0), int64(1))
	is("one of many", outcomes[1].Version, outcomes[1].Err, 1)
	versionsBelowZero(t, b, table)

	var wg sync.WaitGroup
	won := make(chan int64, 8)
	for i := range int64(8) {
		wg.Go(func() {
			if _, err := table.Update(ctx, b.db, 6, 0, optimistic.Set{"balance": 100 + i}); err == nil {
				won <- 100 + i
			}
		})
	}
	wg.Wait()
	if n := len(won); n != 1 {
		t.Fatalf("%d of 8 writers at version 0 succeeded, want 1", n)
	}
	if kept, wrote := b.number(t, "SELECT balance FROM article WHERE id = 6 AND lock_version = 1"), <-won; kept != wrote {
		t.Errorf("the balance is %d, want that of the writer that succeeded, %d", kept, wrote)
	}
}

// versionsBelowZero: a lower version is refused, and so is 0 by a table whose versions begin at 1.
func versionsBelowZero[DB any](t *testing.T, b *bank[DB], table *optimistic.Table[int64, DB]) {
	ctx, set := t.Context(), optimistic.Set{"balance": 9}
	_, err := table.Update(ctx, b.db, 6, -1, set)
	badInput(t, "a version below 0", err)
	b.exec(t, "UPDATE article SET lock_version = -1 WHERE id = 6")
	_, err = table.Any().Update(ctx, b.db, 6, set)
	badInput(t, "a row below 0", err)
	b.exec(t, "UPDATE article SET lock_version = 0 WHERE id = 6")

	ones := sure(b.e.Int("article", "id", optimistic.Int("lock_version")))(t)
	_, expected := ones.Update(ctx, b.db, 6, 0, set)
	_, found := ones.Update(ctx, b.db, 6, 1, set)
	for what, err := range map[string]error{"the version 0": expected, "a row at 0": found} {
		badInput(t, what, err)
		if !strings.Contains(err.Error(), "IntFromZero") {
			t.Errorf("%s: %v does not name IntFromZero", what, err)
		}
	}
	b.exec(t, "CREATE TABLE bare (id BIGINT PRIMARY KEY)")
	err = sure(b.e.Int("bare", "id", optimistic.IntFromZero("lock_version")))(t).Check(ctx, b.db)
	if badInput(t, "no version", err); !strings.HasSuffix(err.Error(), "DEFAULT 0") {
		t.Errorf("%v does not end with DEFAULT 0", err)
	}
	if n := b.number(t, "SELECT balance FROM article WHERE id = 6"); n != 0 {
		t.Errorf("the balance is %d, although each write was refused", n)
	}
}
