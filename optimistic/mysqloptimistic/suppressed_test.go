package mysqloptimistic_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/optimistic/mysqloptimistic"
)

// TestSuppressedWrites has a trigger put the old row in the place of the new one. No call says that
// it is written. The error names it, UpdateAllOrNothing writes no row, and UpdateEachRow the
// others.
func TestSuppressedWrites(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			db, ctx := suite.NewDB(t, kind).DB, t.Context()
			for _, text := range []string{
				"CREATE TABLE account (id INT PRIMARY KEY, n INT NOT NULL, version BIGINT NOT NULL DEFAULT 1)",
				"INSERT INTO account (id, n) VALUES (1, 0), (2, 0), (5, 0)",
				"CREATE TRIGGER keep BEFORE UPDATE ON account FOR EACH ROW IF OLD.id = 5 THEN SET NEW.n = OLD.n, NEW.version = OLD.version; END IF",
			} {
				if _, err := db.ExecContext(ctx, text); err != nil {
					t.Fatal(err)
				}
			}
			table, err := mysqloptimistic.NewTable("account", "id", optimistic.Int("version"))
			if err != nil {
				t.Fatal(err)
			}
			suppresses := func(what string, err error) {
				t.Helper()
				var s *optimistic.SuppressedError
				if !errors.As(err, &s) || s.Key != 5 {
					t.Errorf("%s: %v, want a SuppressedError of 5", what, err)
				}
			}
			var changes []optimistic.Change[int64]
			for _, key := range []int{1, 5, 2} {
				changes = append(changes, optimistic.Change[int64]{Key: key, Expected: 1, Set: optimistic.Set{"n": 1}})
			}
			_, err = table.UpdateMany(ctx, db, changes, optimistic.UpdateAllOrNothing)
			suppresses("all or nothing", err)
			_, err = table.Update(ctx, db, 5, 1, optimistic.Set{"n": 1})
			suppresses("Update", err)
			_, err = table.Any().Update(ctx, db, 5, optimistic.Set{"n": 1})
			suppresses("Any.Update", err)
			if _, err := db.ExecContext(ctx, "CREATE TABLE small (id INT PRIMARY KEY, n INT, version TINYINT NOT NULL)"); err != nil {
				t.Fatal(err)
			}
			if _, err := db.ExecContext(ctx, "INSERT INTO small VALUES (1, 0, 127)"); err != nil {
				t.Fatal(err)
			}
			small, err := mysqloptimistic.NewTable("small", "id", optimistic.Int("version"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := small.Any().Update(ctx, db, 1, optimistic.Set{"n": 1}); !errors.Is(err, dblock.ErrInvalid) {
				t.Errorf("Any.Update of a row at the last version: %v", err)
			}
			var n int
			if err := db.QueryRowContext(ctx, "SELECT SUM(n) FROM account").Scan(&n); err != nil || n != 0 {
				t.Errorf("%d rows are written, %v", n, err)
			}
			outcomes, err := table.UpdateMany(ctx, db, changes, optimistic.UpdateEachRow)
			if err != nil || fmt.Sprint(outcomes[0].Verdict, outcomes[1].Verdict, outcomes[2].Verdict) != "updated suppressed updated" {
				t.Fatalf("%+v, %v", outcomes, err)
			}
		})
	}
}

// TestCutKeys: without strict mode an Upsert writes no other key than that it was asked for, and a
// key that fits is written.
func TestCutKeys(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			dsn := suite.Appended("sql_mode=''")(t, testdb.DSN(t, kind))
			pool, err := openOn(dsn, &faultconn.Dialer{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = pool.Close() }()
			ctx := t.Context()
			for typ, keys := range map[string][2][]any{ // that fit, and that don't
				"VARCHAR(4) CHARACTER SET utf8mb4": {{"abcd", "äöü€", "a b"}, {"abcde", "äöü€ß", strings.Repeat("x", 300)}},
				"CHAR(4) CHARACTER SET latin1":     {{"abcd", "äöüß"}, {"abcde", "αβγ"}},
				"ENUM('a', 'b')":                   {{"a"}, {"c"}},
				"VARBINARY(4)":                     {{[]byte("abcd")}, {[]byte("abcde")}},
				"BINARY(4)":                        {{[]byte("abcd")}, {[]byte("abcde"), []byte("ab")}},
				"TINYINT":                          {{127, -128}, {128, -129, uint64(math.MaxUint64)}},
				"INT UNSIGNED":                     {{1, int64(math.MaxUint32)}, {-1, int64(math.MaxUint32) + 1}},
				"BIGINT UNSIGNED":                  {{uint64(math.MaxUint64)}, {-1}},
			} {
				for _, text := range []string{
					"DROP TABLE IF EXISTS cut", "CREATE TABLE cut (id " + typ + " PRIMARY KEY, n INT, version BIGINT NOT NULL)",
				} {
					if _, err := pool.ExecContext(ctx, text); err != nil {
						t.Fatal(err)
					}
				}
				table, err := mysqloptimistic.NewTable("cut", "id", optimistic.Int("version"))
				if err != nil {
					t.Fatal(err)
				}
				set, none := optimistic.Set{"n": 1}, optimistic.Absent[int64]()
				tx, err := pool.BeginTx(ctx, nil)
				if err != nil {
					t.Fatal(err)
				}
				for _, db := range []mysqloptimistic.DB{pool, tx} { // tx keeps locks
					for _, key := range keys[1] {
						_, err := table.Upsert(ctx, db, key, none, set)
						if err == nil || key != "αβγ" && !errors.Is(err, dblock.ErrInvalid) { // MariaDB can't compare that
							t.Errorf("%s: %.9v: %v, want ErrInvalid", typ, key, err)
						}
					}
				}
				if err := tx.Commit(); err != nil {
					t.Error(err)
				}
				for _, key := range keys[0] {
					if _, err := table.Upsert(ctx, pool, key, none, set); err != nil {
						t.Errorf("%s: %v is refused: %v", typ, key, err)
					}
					if v, err := table.Version(ctx, pool, key); err != nil || v != 1 {
						t.Errorf("%s: %v has the version %d, %v", typ, key, v, err)
					}
				}
				var n int
				if err := pool.QueryRowContext(ctx, "SELECT COUNT(*) FROM cut").Scan(&n); err != nil || n != len(keys[0]) {
					t.Errorf("%s: there are %d rows, %v; want %d", typ, n, err, len(keys[0]))
				}
			}
		})
	}
}
