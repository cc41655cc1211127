package pglock_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/pglock"
)

// TestRowLocksOfOneName calls for tables of one name: in two databases, along two search_paths, and
// of one that gets a foreign partition later. What is true of one of them decides nothing about
// another.
func TestRowLocksOfOneName(t *testing.T) {
	t.Parallel()
	here, there := testdb.Postgres(t), testdb.Postgres(t)
	const elsewhere = "CREATE FOREIGN DATA WRAPPER elsewhere; CREATE SERVER elsewhere FOREIGN DATA WRAPPER elsewhere; "
	execute(t, here, elsewhere+`CREATE TABLE one_name (id BIGINT PRIMARY KEY); INSERT INTO one_name VALUES (1);
		CREATE SCHEMA tenant; CREATE FOREIGN TABLE tenant.one_name (id BIGINT) SERVER elsewhere;
		CREATE TABLE halves (id BIGINT) PARTITION BY LIST (id); CREATE TABLE half_here PARTITION OF halves FOR VALUES IN (1);
		INSERT INTO halves VALUES (1)`)
	execute(t, there, elsewhere+"CREATE FOREIGN TABLE one_name (id BIGINT) SERVER elsewhere")
	for _, table := range []string{"one_name", "halves"} {
		lockEach(t, here, "public", table, nil)
	}
	lockEach(t, here, "tenant", "one_name", dblock.ErrUnsupported)
	lockEach(t, there, "public", "one_name", dblock.ErrUnsupported)
	execute(t, here, "CREATE FOREIGN TABLE half_there PARTITION OF halves FOR VALUES IN (2) SERVER elsewhere")
	lockEach(t, here, "public", "halves", dblock.ErrUnsupported)
	lockEach(t, here, "public", "one_name", nil)
}

// TestRowLocksOfViews: the server would lock no rows of some views, and all rows of others.
func TestRowLocksOfViews(t *testing.T) {
	t.Parallel()
	pool := testdb.Postgres(t)
	execute(t, pool, "CREATE TABLE seat (id BIGINT PRIMARY KEY); INSERT INTO seat VALUES (1), (2)")
	for _, definition := range []string{
		"VIEW seats AS SELECT id FROM seat",
		"VIEW seats AS SELECT id FROM seat UNION ALL SELECT id + 100 FROM seat",
		"VIEW seats WITH (security_barrier) AS SELECT id FROM seat WHERE id > 0",
		"VIEW seats AS SELECT id FROM seat ORDER BY -id",
		`VIEW "seÄts" AS SELECT id FROM seat`,
		"MATERIALIZED VIEW seats AS SELECT id FROM seat",
	} {
		execute(t, pool, "CREATE "+definition)
		name := strings.Fields(strings.TrimPrefix(definition, "MATERIALIZED "))[1]
		for call, lock := range map[string]func(pgx.Tx) error{
			"LockRow": func(tx pgx.Tx) error {
				return pglock.LockRow(t.Context(), tx, strings.Trim(name, `"`), "id", 1, dblock.RowLock{})
			},
			"Claim": func(tx pgx.Tx) error {
				_, err := pglock.Claim(t.Context(), tx, dblock.RowLock{}, 1, pgx.RowTo[int64], "SELECT id FROM "+name)
				return err
			},
		} {
			for range 2 {
				err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
					defer execute(t, pool, "SELECT FROM seat FOR UPDATE NOWAIT") // what is refused has locked nothing
					return lock(tx)
				})
				if !errors.Is(err, dblock.ErrUnsupported) {
					t.Errorf("%s of a %s: %v", call, definition, err)
				}
			}
		}
		execute(t, pool, "DROP "+definition[:strings.Index(definition, name)]+name)
	}
}

// lockEach locks row 1 of a table by each call along a search_path.
func lockEach(t *testing.T, pool *pgxpool.Pool, path, table string, want error) {
	t.Helper()
	for call, lock := range map[string]func(context.Context, pgx.Tx) error{
		"LockRow": func(ctx context.Context, tx pgx.Tx) error {
			return pglock.LockRow(ctx, tx, table, "id", int64(1), dblock.RowLock{})
		},
		"LockRows": func(ctx context.Context, tx pgx.Tx) error {
			_, err := pglock.LockRows(ctx, tx, table, "id", []int64{1, 2}, dblock.RowLock{Wait: dblock.NoWait()})
			return err
		},
		"Claim": func(ctx context.Context, tx pgx.Tx) error {
			_, err := pglock.Claim(ctx, tx, dblock.RowLock{}, 1, pgx.RowTo[int64], "SELECT id FROM "+table)
			return err
		},
	} {
		if err := lockAlong(t, pool, path, lock); !errors.Is(err, want) {
			t.Errorf("%s of %s along %s: %v, want %v", call, table, path, err, want)
		}
	}
}

// lockAlong runs lock in a transaction with a search_path.
func lockAlong(t *testing.T, pool *pgxpool.Pool, path string, lock func(context.Context, pgx.Tx) error) error {
	t.Helper()
	return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), "SET LOCAL search_path = "+path); err != nil {
			t.Fatal(err)
		}
		return lock(t.Context(), tx)
	})
}

// TestRowLocksOfAnotherType: a key that the column's type cannot have is invalid, whether pgx or
// the server finds out.
func TestRowLocksOfAnotherType(t *testing.T) {
	t.Parallel()
	pool := testdb.Postgres(t)
	execute(t, pool, "CREATE TABLE seat (id BIGINT PRIMARY KEY, name TEXT UNIQUE, day DATE); INSERT INTO seat VALUES (7, 'a', '2026-01-01')")
	db := stdlib.OpenDBFromPool(pool)
	defer func() { _ = db.Close() }()
	for _, key := range []struct {
		column string
		value  any
	}{{"name", 7}, {"id", uint64(math.MaxUint64)}, {"id", true}, {"id", struct{}{}}, {"id", "7abc"}, {"name", "a\xff"}, {"day", "never"}} {
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			return pglock.LockRow(t.Context(), tx, "seat", key.column, key.value, dblock.RowLock{})
		})
		if !errors.Is(err, dblock.ErrInvalid) {
			t.Errorf("%s = %v in a pgx.Tx: %v; want ErrInvalid", key.column, key.value, err)
		}
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		err = pglock.LockRow(t.Context(), pglock.SQLTx(tx), "seat", key.column, key.value, dblock.RowLock{})
		if !errors.Is(err, dblock.ErrInvalid) {
			t.Errorf("%s = %v in a sql.Tx: %v; want ErrInvalid", key.column, key.value, err)
		}
		_ = tx.Rollback()
	}
}

// TestRowLocksCompareByTheColumnsType has a column of one name in two schemas: a text, and a type
// with operators of its own.
func TestRowLocksCompareByTheColumnsType(t *testing.T) {
	t.Parallel()
	config := testdb.Postgres(t).Config()
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol // pgx does not know the type
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	execute(t, pool, "CREATE SCHEMA own; CREATE TYPE own.word")
	function := func(name, args, returns, of string) {
		execute(t, pool, "CREATE FUNCTION own."+name+args+" RETURNS "+returns+" LANGUAGE internal IMMUTABLE STRICT AS '"+of+"'")
	}
	function("word_in", "(cstring)", "own.word", "textin")
	function("word_out", "(own.word)", "cstring", "textout")
	execute(t, pool, "CREATE TYPE own.word (INPUT = own.word_in, OUTPUT = own.word_out, LIKE = text, COLLATABLE = true)")
	const two = "(own.word, own.word)"
	for operator, of := range map[string]string{"<": "text_lt", "<=": "text_le", "=": "texteq", ">=": "text_ge", ">": "text_gt"} {
		function(of, two, "boolean", of)
		execute(t, pool, "CREATE OPERATOR own."+operator+" (LEFTARG = own.word, RIGHTARG = own.word, FUNCTION = own."+of+")")
	}
	function("cmp", two, "integer", "bttextcmp")
	execute(t, pool, `CREATE OPERATOR CLASS own.word_ops DEFAULT FOR TYPE own.word USING btree AS
			OPERATOR 1 own.<, OPERATOR 2 own.<=, OPERATOR 3 own.=, OPERATOR 4 own.>=, OPERATOR 5 own.>, FUNCTION 1 own.cmp`+two)
	execute(t, pool, `CREATE TABLE noun (word TEXT PRIMARY KEY); INSERT INTO noun VALUES ('tree');
		CREATE TABLE own.noun (word own.word PRIMARY KEY); INSERT INTO own.noun VALUES ('tree')`)
	for _, path := range []string{"public", "own", "public"} {
		lock := func() error {
			return lockAlong(t, pool, path, func(ctx context.Context, tx pgx.Tx) error {
				return pglock.LockRow(ctx, tx, "noun", "word", "tree", dblock.RowLock{})
			})
		}
		err := lock()
		if errors.Is(err, dblock.ErrConflict) { // the call before was for another type
			err = lock()
		}
		if err != nil {
			t.Errorf("along %s: %v", path, err)
		}
	}
}

func execute(t *testing.T, pool *pgxpool.Pool, statements string) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), statements, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
}
