package pgoptimistic_test

import (
	"errors"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/optimistic/pgoptimistic"
)

// TestUpdateManyFindsRowsMadeAnew has UpdateMany wait for a transaction that deletes a row and
// inserts it anew. There is a row at every commit, so no outcome says that there is none.
func TestUpdateManyFindsRowsMadeAnew(t *testing.T) {
	t.Parallel()
	pool, ctx := testdb.Postgres(t), t.Context()
	if _, err := pool.Exec(ctx, "CREATE TABLE account (id BIGINT PRIMARY KEY, n BIGINT NOT NULL, version BIGINT NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	table, err := pgoptimistic.NewTable("account", "id", optimistic.Int("version"))
	if err != nil {
		t.Fatal(err)
	}
	// update is UpdateMany of the rows 1 and 2 at version 1, while a transaction makes the row 2
	// anew with the version given.
	update := func(mode optimistic.UpdateMode, version int64) ([]optimistic.Outcome[int64], error) {
		t.Helper()
		if _, err := pool.Exec(ctx, "TRUNCATE account"); err != nil {
			t.Fatal(err)
		}
		if _, err := pool.Exec(ctx, "INSERT INTO account VALUES (1, 0, 1), (2, 0, 1)"); err != nil {
			t.Fatal(err)
		}
		tx, err := pool.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(ctx) }()
		if _, err := tx.Exec(ctx, "DELETE FROM account WHERE id = 2"); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(ctx, "INSERT INTO account VALUES (2, 0, $1)", version); err != nil {
			t.Fatal(err)
		}
		type result struct {
			outcomes []optimistic.Outcome[int64]
			err      error
		}
		results := make(chan result, 1)
		go func() {
			set := optimistic.Set{"n": 5}
			changes := []optimistic.Change[int64]{{Key: 1, Expected: 1, Set: set}, {Key: 2, Expected: 1, Set: set}}
			outcomes, err := table.UpdateMany(ctx, pool, changes, mode)
			results <- result{outcomes, err}
		}()
		for waits := false; !waits; time.Sleep(time.Millisecond) {
			const blocked = "SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
			if err := pool.QueryRow(ctx, blocked).Scan(&waits); err != nil {
				t.Fatal(err)
			}
		}
		if err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		r := <-results
		return r.outcomes, r.err
	}
	if _, err := update(optimistic.UpdateAllOrNothing, 7); !errors.Is(err, optimistic.ErrStale) || errors.Is(err, optimistic.ErrNotFound) {
		t.Errorf("all or nothing: %v, want ErrStale", err)
	}
	outcomes, err := update(optimistic.UpdateEachRow, 7)
	if err != nil || outcomes[0].Verdict != optimistic.VerdictUpdated || outcomes[1].Verdict != optimistic.VerdictStale || outcomes[1].Version != 7 {
		t.Errorf("each row: %v, %v, want the first one updated, and the second one stale at 7", outcomes, err)
	}
	for _, mode := range []optimistic.UpdateMode{optimistic.UpdateAllOrNothing, optimistic.UpdateEachRow} {
		outcomes, err := update(mode, 1)
		if err != nil || outcomes[1].Verdict != optimistic.VerdictUpdated || outcomes[1].Version != 2 {
			t.Errorf("mode %d, at the version expected: %v, %v, want it updated to 2", mode, outcomes, err)
		}
	}
}

// TestUpdateManyWritesNULL: a []byte that is nil is NULL in a text column, as it is for Update.
func TestUpdateManyWritesNULL(t *testing.T) {
	t.Parallel()
	pool, ctx := testdb.Postgres(t), t.Context()
	_, err := pool.Exec(ctx, `CREATE TABLE note (id BIGINT PRIMARY KEY, body TEXT, version BIGINT NOT NULL);
		INSERT INTO note VALUES (1, 'a', 1), (2, 'b', 1), (3, 'c', 1)`)
	if err != nil {
		t.Fatal(err)
	}
	table, err := pgoptimistic.NewTable("note", "id", optimistic.Int("version"))
	if err != nil {
		t.Fatal(err)
	}
	changes := []optimistic.Change[int64]{
		{Key: 1, Expected: 1, Set: optimistic.Set{"body": []byte(nil)}},
		{Key: 2, Expected: 1, Set: optimistic.Set{"body": []byte{}}},
		{Key: 3, Expected: 1, Set: optimistic.Set{"body": []byte("d")}},
	}
	if _, err := table.UpdateMany(ctx, pool, changes, optimistic.UpdateAllOrNothing); err != nil {
		t.Fatal(err)
	}
	var bodies string
	if err := pool.QueryRow(ctx, "SELECT string_agg(coalesce(body, 'NULL'), ',' ORDER BY id) FROM note").Scan(&bodies); err != nil || bodies != "NULL,,d" {
		t.Errorf("%q, %v", bodies, err)
	}
}
