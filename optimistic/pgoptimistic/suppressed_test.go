package pgoptimistic_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/optimistic/pgoptimistic"
)

// TestSuppressedWrites has a trigger keep one row from being written: it returns NULL, or the old
// row. No call says that the row is written. The error names it, UpdateAllOrNothing writes no row,
// and UpdateEachRow the others.
func TestSuppressedWrites(t *testing.T) {
	t.Parallel()
	pool, ctx := testdb.Postgres(t), t.Context()
	for _, returns := range []string{"NULL", "OLD"} {
		suppressedWrites(t, ctx, pool, returns, "BIGINT NOT NULL DEFAULT 1", optimistic.Int("version"))
		suppressedWrites(t, ctx, pool, returns, "TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()", optimistic.Timestamp("version"))
		suppressedWrites(t, ctx, pool, returns, "UUID NOT NULL DEFAULT gen_random_uuid()", optimistic.UUID("version"))
	}
	suppressedWrites(t, ctx, pool, "NULL", "BIGINT", optimistic.Columns("n"))
}

// suppressedWrites is the test with one kind of version.
func suppressedWrites[V any](
	t *testing.T, ctx context.Context, pool *pgxpool.Pool, returns, version string, token optimistic.Version[V],
) {
	exec := func(texts ...string) {
		t.Helper()
		for _, text := range texts {
			if _, err := pool.Exec(ctx, text); err != nil {
				t.Fatal(err)
			}
		}
	}
	exec("DROP TABLE IF EXISTS account", "CREATE TABLE account (id TEXT PRIMARY KEY, n BIGINT NOT NULL, version "+version+")",
		"INSERT INTO account (id, n) SELECT i::text, 0 FROM generate_series(1, 9) i",
		"CREATE OR REPLACE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN "+returns+"; END'",
		"CREATE TRIGGER keep BEFORE UPDATE ON account FOR EACH ROW WHEN (OLD.id = '5') EXECUTE FUNCTION keep()",
		"CREATE OR REPLACE FUNCTION skip() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
		"CREATE TRIGGER skip BEFORE DELETE ON account FOR EACH ROW WHEN (OLD.id = '5') EXECUTE FUNCTION skip()",
		"CREATE TRIGGER new BEFORE INSERT ON account FOR EACH ROW WHEN (NEW.id = '50') EXECUTE FUNCTION skip()",
		"CREATE OR REPLACE FUNCTION other() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN NEW.id := 'other'; RETURN NEW; END$$",
		"CREATE TRIGGER other BEFORE INSERT ON account FOR EACH ROW WHEN (NEW.id = '51') EXECUTE FUNCTION other()")
	table, err := pgoptimistic.NewTable("account", "id", token)
	if err != nil {
		t.Fatal(err)
	}
	written := func(want int64) {
		t.Helper()
		var n int64
		if err := pool.QueryRow(ctx, "SELECT sum(n) + count(*) FROM account").Scan(&n); err != nil || n != want+9 {
			t.Errorf("%s, %s: %d rows are written, %v; want %d", version, returns, n-9, err, want)
		}
	}
	suppresses := func(what, key string, err error) {
		t.Helper()
		var s *optimistic.SuppressedError
		if !errors.As(err, &s) || s.Key != key || !strings.Contains(err.Error(), "account "+key) {
			t.Errorf("%s, %s, %s: %v, want a SuppressedError of %s", version, returns, what, err, key)
		}
	}
	at := func(key string) V {
		t.Helper()
		v, err := table.Version(ctx, pool, key)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	var changes []optimistic.Change[V]
	for _, key := range []string{"1", "2", "5", "9"} {
		changes = append(changes, optimistic.Change[V]{Key: key, Expected: at(key), Set: optimistic.Set{"n": int64(1)}})
	}
	set := optimistic.Set{"n": int64(1)}
	_, err = table.UpdateMany(ctx, pool, changes, optimistic.UpdateAllOrNothing)
	suppresses("all or nothing", "5", err)
	_, err = table.Update(ctx, pool, "5", at("5"), set)
	suppresses("Update", "5", err)
	_, err = table.Upsert(ctx, pool, "50", optimistic.Absent[V](), set)
	suppresses("Upsert", "50", err)
	_, err = table.Upsert(ctx, pool, "51", optimistic.Absent[V](), set)
	suppresses("Upsert with another key", "51", err)
	suppresses("Delete", "5", table.Delete(ctx, pool, "5", at("5")))
	suppresses("Any.Delete", "5", table.Any().Delete(ctx, pool, "5"))
	if returns == "NULL" {
		_, err = table.Any().Update(ctx, pool, "5", set)
		suppresses("Any.Update", "5", err)
		_, err = table.Any().Upsert(ctx, pool, "5", set)
		suppresses("Any.Upsert", "5", err)
	}
	calls := 0
	_, err = pgoptimistic.Update(ctx, pool, func(ctx context.Context, db pgoptimistic.DB) (v V, err error) { return table.Version(ctx, db, "5") },
		func(context.Context, *V) error { calls++; return nil },
		func(ctx context.Context, db pgoptimistic.DB, v V) (V, error) {
			return table.Update(ctx, db, "5", v, set)
		})
	if suppresses("optimistic Update", "5", err); calls != 1 {
		t.Errorf("it was tried %d times", calls)
	}
	written(0)
	outcomes, err := table.UpdateMany(ctx, pool, changes, optimistic.UpdateEachRow)
	if returns == "OLD" {
		suppresses("each row", "5", err)
		written(0)
		return
	}
	if err != nil || fmt.Sprint(outcomes[1].Verdict, outcomes[2].Verdict) != "updated suppressed" {
		t.Fatalf("%s: %+v, %v", version, outcomes, err)
	}
	suppresses("each row", "5", outcomes[2].Err)
	written(3)
}

// TestCutKeys: an Upsert never writes another key than that it was asked for.
func TestCutKeys(t *testing.T) {
	t.Parallel()
	pool, ctx := testdb.Postgres(t), t.Context()
	for typ, key := range map[string]any{
		"VARCHAR(3)": "abc  ", "NUMERIC(4,1)": "1.26", "TIMESTAMP(0)": time.UnixMicro(1_000_001).UTC(),
	} {
		if _, err := pool.Exec(ctx, "DROP TABLE IF EXISTS cut; CREATE TABLE cut (id "+typ+" PRIMARY KEY, n INT, version BIGINT NOT NULL)"); err != nil {
			t.Fatal(err)
		}
		table, err := pgoptimistic.NewTable("cut", "id", optimistic.Int("version"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = table.Upsert(ctx, pool, key, optimistic.Absent[int64](), optimistic.Set{"n": 1})
		var n int
		if failed := pool.QueryRow(ctx, "SELECT count(*) FROM cut").Scan(&n); failed != nil || n != 0 || !errors.Is(err, optimistic.ErrSuppressed) {
			t.Errorf("%s: %v, and %d rows (%v)", typ, err, n, failed)
		}
	}
}

// TestAPolicyThatShowsARow and lets it not be written: no call says that the row has changed.
func TestAPolicyThatShowsARow(t *testing.T) {
	t.Parallel()
	pool, ctx := testdb.Postgres(t), t.Context()
	conn, err := pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	role := "reader_" + pool.Config().ConnConfig.Database
	if _, err := conn.Exec(ctx, fmt.Sprintf(`CREATE TABLE account (id int PRIMARY KEY, n int, version int NOT NULL DEFAULT 1);
		INSERT INTO account VALUES (1), (2), (3); ALTER TABLE account ENABLE ROW LEVEL SECURITY; CREATE ROLE %[1]s;
		CREATE POLICY shown ON account FOR SELECT USING (true); CREATE POLICY written ON account FOR UPDATE USING (id <> 2);
		GRANT SELECT, UPDATE ON account TO %[1]s; SET ROLE %[1]s`, role)); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := conn.Exec(ctx, fmt.Sprintf("RESET ROLE; DROP OWNED BY %[1]s; DROP ROLE %[1]s", role)); err != nil {
			t.Error(err)
		}
	}()
	table, err := pgoptimistic.NewTable("account", "id", optimistic.Int("version"))
	if err != nil {
		t.Fatal(err)
	}
	set := optimistic.Set{"n": 1}
	changes := []optimistic.Change[int64]{{Key: 1, Expected: 1, Set: set}, {Key: 2, Expected: 1, Set: set}, {Key: 3, Expected: 1, Set: set}}
	_, one := table.Update(ctx, conn, 2, 1, set)
	_, all := table.UpdateMany(ctx, conn, changes, optimistic.UpdateAllOrNothing)
	outcomes, err := table.UpdateMany(ctx, conn, changes, optimistic.UpdateEachRow)
	if err != nil || outcomes[0].Verdict != optimistic.VerdictUpdated || outcomes[1].Verdict != optimistic.VerdictSuppressed {
		t.Fatalf("%+v, %v", outcomes, err)
	}
	for call, err := range map[string]error{"one": one, "all or nothing": all, "each row": outcomes[1].Err} {
		var of *optimistic.SuppressedError
		if !errors.As(err, &of) || of.Key != 2 || errors.Is(err, optimistic.ErrStale) {
			t.Errorf("%s: %v", call, err)
		}
	}
}
