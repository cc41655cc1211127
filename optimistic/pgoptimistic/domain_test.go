package pgoptimistic_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/optimistic/pgoptimistic"
)

// TestDomainsCountAsTheirBaseType: a domain has the precision of the type that it is made from,
// however many domains lie between, and a version of less than microseconds is refused.
func TestDomainsCountAsTheirBaseType(t *testing.T) {
	t.Parallel()
	pool, ctx := testdb.Postgres(t), t.Context()
	for _, of := range []struct {
		base string
		good bool
	}{
		{"timestamptz(0)", false}, {"timestamptz(3)", false}, {"timestamp(5)", false}, {"date", false},
		{"timestamptz", true}, {"timestamptz(6)", true}, {"timestamp", true},
	} {
		if _, err := pool.Exec(ctx, fmt.Sprintf("DROP DOMAIN IF EXISTS one CASCADE; CREATE DOMAIN one AS %s; "+
			"CREATE DOMAIN two AS one; CREATE DOMAIN three AS two CHECK (VALUE IS NOT NULL)", of.base)); err != nil {
			t.Fatal(err)
		}
		for _, domain := range []string{"one", "two", "three"} {
			if _, err := pool.Exec(ctx, "DROP TABLE IF EXISTS stamped; CREATE TABLE stamped (id INT PRIMARY KEY, n INT, changed "+domain+
				" NOT NULL); INSERT INTO stamped VALUES (1, 0, '2024-01-01')"); err != nil {
				t.Fatal(err)
			}
			table, err := pgoptimistic.NewTable("stamped", "id", optimistic.Timestamp("changed"))
			if err != nil {
				t.Fatal(err)
			}
			err = table.Check(ctx, pool)
			if !of.good {
				if !errors.Is(err, dblock.ErrInvalid) {
					t.Errorf("domain %s over %s: %v, want it refused", domain, of.base, err)
				}
				continue
			}
			v, err := table.Version(ctx, pool, 1)
			if err != nil {
				t.Fatalf("domain %s over %s: %v", domain, of.base, err)
			}
			next, err := table.Update(ctx, pool, 1, v, optimistic.Set{"n": 1})
			if err != nil {
				t.Fatalf("domain %s over %s: %v", domain, of.base, err)
			}
			if _, err := table.Update(ctx, pool, 1, v, optimistic.Set{"n": 2}); !errors.Is(err, optimistic.ErrStale) {
				t.Errorf("domain %s over %s: a stale update: %v", domain, of.base, err)
			}
			many := []optimistic.Change[time.Time]{{Key: 1, Expected: next, Set: optimistic.Set{"n": 3}}}
			if _, err := table.UpdateMany(ctx, pool, many, optimistic.UpdateAllOrNothing); err != nil {
				t.Errorf("domain %s over %s: %v", domain, of.base, err)
			}
		}
	}
}

// TestDomainsDoNotCutValues: a cast to a domain cuts what an assignment refuses, so no statement
// has one.
func TestDomainsDoNotCutValues(t *testing.T) {
	t.Parallel()
	pool, ctx := testdb.Postgres(t), t.Context()
	if _, err := pool.Exec(ctx, `
		CREATE DOMAIN code AS varchar(3); CREATE DOMAIN code2 AS code;
		CREATE DOMAIN money2 AS numeric(10,2); CREATE DOMAIN counter AS int; CREATE DOMAIN counter2 AS counter;
		CREATE DOMAIN number AS bigint;
		CREATE TABLE priced (id number PRIMARY KEY, name code2, price money2, version counter2 NOT NULL DEFAULT 1);
		INSERT INTO priced VALUES (1, 'abc', 1.23), (2, 'abc', 1.23)`); err != nil {
		t.Fatal(err)
	}
	ints, err := pgoptimistic.NewTable("priced", "id", optimistic.Int("version"))
	if err != nil {
		t.Fatal(err)
	}
	long := optimistic.Set{"name": "abcdef"}
	if _, err := ints.Update(ctx, pool, 1, 1, long); err == nil {
		t.Error("Update: a value that is too long was written")
	}
	if _, err := ints.UpdateMany(ctx, pool, []optimistic.Change[int64]{{Key: 1, Expected: 1, Set: long}}, optimistic.UpdateEachRow); err == nil {
		t.Error("UpdateMany: a value that is too long was written")
	}
	var name string
	if err := pool.QueryRow(ctx, "SELECT name FROM priced WHERE id = 1").Scan(&name); err != nil || name != "abc" {
		t.Errorf("the name is %q, %v", name, err)
	}

	columns, err := pgoptimistic.NewTable("priced", "id", optimistic.Columns("name", "price"))
	if err != nil {
		t.Fatal(err)
	}
	set := optimistic.Set{"version": 2}
	for _, stale := range []optimistic.Values{{"name": "abcd", "price": "1.23"}, {"name": "abc", "price": "1.234"}} {
		if _, err := columns.Update(ctx, pool, 2, stale, set); !errors.Is(err, optimistic.ErrStale) {
			t.Errorf("Update at %v: %v, want a conflict", stale, err)
		}
		many := []optimistic.Change[optimistic.Values]{{Key: 2, Expected: stale, Set: set}}
		if _, err := columns.UpdateMany(ctx, pool, many, optimistic.UpdateAllOrNothing); !errors.Is(err, optimistic.ErrStale) {
			t.Errorf("UpdateMany at %v: %v, want a conflict", stale, err)
		}
	}
	if _, err := columns.Update(ctx, pool, 2, optimistic.Values{"name": "abc", "price": "1.23"}, set); err != nil {
		t.Error(err)
	}
}
