package pgoptimistic_test

import (
	"testing"

	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/optimistic/pgoptimistic"
)

// TestTableUpdateCostsLittle: a Table's Update allocates at most four times more than the statement
// written by hand. It does not run in parallel: others' allocations would be counted.
func TestTableUpdateCostsLittle(t *testing.T) {
	pool, ctx := testdb.Postgres(t), t.Context()
	for _, text := range []string{
		"CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL, version BIGINT NOT NULL DEFAULT 1)",
		"INSERT INTO account VALUES (1000, 0, 1000), (2000, 0, 1000)",
	} {
		if _, err := pool.Exec(ctx, text); err != nil {
			t.Fatal(err)
		}
	}
	table, err := pgoptimistic.NewTable("account", "id", optimistic.Int("version"))
	if err != nil {
		t.Fatal(err)
	}
	const text = "UPDATE account SET balance = $3, version = version + 1 WHERE id = $1 AND version = $2 RETURNING version"
	mine, hand := int64(1000), int64(1000)
	ours := testing.AllocsPerRun(300, func() {
		if mine, err = table.Update(ctx, pool, int64(1000), mine, optimistic.Set{"balance": mine}); err != nil {
			t.Fatal(err)
		}
	})
	theirs := testing.AllocsPerRun(300, func() {
		if err := pool.QueryRow(ctx, text, int64(2000), hand, hand).Scan(&hand); err != nil {
			t.Fatal(err)
		}
	})
	t.Logf("%.0f allocations, by hand %.0f", ours, theirs)
	if ours > theirs+4 {
		t.Errorf("%.0f allocations, by hand %.0f", ours, theirs)
	}
}
