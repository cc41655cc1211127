package mysqloptimistic_test

import (
	"errors"
	"testing"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/optimistic/mysqloptimistic"
)

// TestUpsertInAnyLanguage: a row that is there is a conflict, in whatever language the server says
// so, and one that another unique index refuses is none.
func TestUpsertInAnyLanguage(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		for _, language := range []string{"en_US", "de_DE", "ja_JP", "hu_HU", "cs_CZ", "ru_RU"} {
			t.Run(string(kind)+" "+language, func(t *testing.T) {
				t.Parallel()
				pool, err := openOn(suite.Appended("lc_messages="+language)(t, testdb.DSN(t, kind)), &faultconn.Dialer{})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = pool.Close() }()
				ctx := t.Context()
				for _, text := range []string{
					"CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL, name VARCHAR(9), version BIGINT NOT NULL DEFAULT 1, UNIQUE (name))",
					"INSERT INTO account VALUES (1, 0, 'a', 3)",
				} {
					if _, err := pool.ExecContext(ctx, text); err != nil {
						t.Fatal(err)
					}
				}
				table, err := mysqloptimistic.NewTable("account", "id", optimistic.Int("version"))
				if err != nil {
					t.Fatal(err)
				}
				none, set := optimistic.Absent[int64](), optimistic.Set{"balance": 5, "name": "a"}
				_, err = table.Upsert(ctx, pool, 1, none, optimistic.Set{"balance": 5})
				var conflict *optimistic.StaleError
				if !errors.As(err, &conflict) || conflict.Actual != int64(3) {
					t.Errorf("a row that is there: %v, want a conflict with version 3", err)
				}
				if v, err := table.Any().Upsert(ctx, pool, 1, optimistic.Set{"balance": 5}); err != nil || v != 4 {
					t.Errorf("blindly: version %d, %v, want 4", v, err)
				}
				if _, err := table.Upsert(ctx, pool, 2, none, set); err == nil || errors.Is(err, optimistic.ErrStale) {
					t.Errorf("a name that another row has: %v, want the server's error", err)
				}
			})
		}
	}
}

// TestDatesThatAreNone: a row whose date is 0000-00-00 is written if it still is, and another
// writer's change is a conflict.
func TestDatesThatAreNone(t *testing.T) {
	eachOfFamily(t, func(t *testing.T, kind devdb.Kind) {
		ctx := t.Context()
		pool, err := openOn(suite.Appended("sql_mode=%27%27")(t, testdb.DSN(t, kind)), &faultconn.Dialer{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = pool.Close() }()
		execute := func(text string) {
			if _, err := pool.ExecContext(ctx, text); err != nil {
				t.Fatal(err)
			}
		}
		execute("CREATE TABLE visit (id BIGINT PRIMARY KEY, note INT NOT NULL, day DATE NOT NULL, at DATETIME NOT NULL, ended DATETIME NULL)")
		execute("INSERT INTO visit VALUES (1, 0, '0000-00-00', '0000-00-00', '2026-00-00')")
		table, err := mysqloptimistic.NewTable("visit", "id", optimistic.Columns("day", "at", "ended"))
		if err != nil {
			t.Fatal(err)
		}
		read, err := table.Version(ctx, pool, 1)
		if err != nil {
			t.Fatal(err)
		}
		for note := range 2 {
			if _, err := table.Update(ctx, pool, 1, read, optimistic.Set{"note": note + 1}); err != nil {
				t.Error(err)
			}
		}
		changes := []optimistic.Change[optimistic.Values]{{Key: 1, Expected: read, Set: optimistic.Set{"note": 3}}}
		if results, err := table.UpdateMany(ctx, pool, changes, optimistic.UpdateEachRow); err != nil || results[0].Err != nil {
			t.Errorf("of several: %v, %v", results, err)
		}
		execute("UPDATE visit SET ended = NULL")
		if _, err := table.Update(ctx, pool, 1, read, optimistic.Set{"note": 4}); !errors.Is(err, optimistic.ErrStale) {
			t.Errorf("after a change: %v", err)
		}
		var note int
		if err := pool.QueryRowContext(ctx, "SELECT note FROM visit").Scan(&note); err != nil || note != 3 {
			t.Errorf("note %d, %v, want 3", note, err)
		}
	})
}

// TestColumnsWithAlias: the driver may put the table's name before that of each column.
func TestColumnsWithAlias(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			driver(kind).RunWith(t, map[string]func(*testing.T, string) string{"alias": suite.Appended("columnsWithAlias=true")})
		})
	}
}
