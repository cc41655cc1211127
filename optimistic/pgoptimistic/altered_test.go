package pgoptimistic_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/optimistic/pgoptimistic"
)

// TestTableNeedsNoSelectOnWhatItSets: a role that may update a column and not read it writes it by
// a Table.
func TestTableNeedsNoSelectOnWhatItSets(t *testing.T) {
	t.Parallel()
	pool, ctx := testdb.Postgres(t), t.Context()
	conn, err := pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	role := "writer_" + pool.Config().ConnConfig.Database
	if _, err := conn.Exec(ctx, fmt.Sprintf(`CREATE TABLE account (id int PRIMARY KEY, secret text, version int NOT NULL DEFAULT 1);
		INSERT INTO account VALUES (1), (2); CREATE ROLE %[1]s; GRANT SELECT (id, version), INSERT, UPDATE ON account TO %[1]s;
		SET ROLE %[1]s`, role)); err != nil {
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
	set := optimistic.Set{"secret": "x"}
	_, update := table.Update(ctx, conn, 1, 1, set)
	_, many := table.UpdateMany(ctx, conn, []optimistic.Change[int64]{{Key: 2, Expected: 1, Set: set}}, optimistic.UpdateAllOrNothing)
	_, upsert := table.Upsert(ctx, conn, 3, optimistic.Absent[int64](), set)
	if err := errors.Join(update, many, upsert); err != nil {
		t.Error(err)
	}
}

// TestTableOfATypesName: a type in a schema that is searched before that of the table may have the
// table's name.
func TestTableOfATypesName(t *testing.T) {
	t.Parallel()
	pool, ctx := testdb.Postgres(t), t.Context()
	conn, err := pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(ctx, `CREATE SCHEMA first; CREATE TYPE first.status AS ENUM ('good'); CREATE TYPE first."o'clock" AS ENUM ('one');
		CREATE TABLE public.status (id int PRIMARY KEY, c first."o'clock", n date, version int NOT NULL DEFAULT 1);
		SET search_path = first, public`); err != nil {
		t.Fatal(err)
	}
	table, err := pgoptimistic.NewTable("status", "id", optimistic.Int("version"))
	if err != nil {
		t.Fatal(err)
	}
	version, err := table.Upsert(ctx, conn, 1, optimistic.Absent[int64](), optimistic.Set{"c": "one", "n": "2024-02-29"})
	if err != nil {
		t.Fatal(err)
	}
	if version, err = table.Update(ctx, conn, 1, version, optimistic.Set{"c": nil, "n": "2024-02-29"}); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(ctx, "ALTER TABLE status ALTER n TYPE timestamp"); err != nil {
		t.Fatal(err)
	}
	set := optimistic.Set{"c": nil, "n": "2024-02-29 10:11:12"}
	if _, err := table.Update(ctx, conn, 1, version, set); !errors.Is(err, dblock.ErrConflict) {
		t.Errorf("after a column got another type: %v", err)
	}
	if _, err := table.Update(ctx, conn, 1, version, set); err != nil {
		t.Errorf("again: %v", err)
	}
}
