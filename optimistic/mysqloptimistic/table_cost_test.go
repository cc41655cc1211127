package mysqloptimistic_test

import (
	"testing"

	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/optimistic/mysqloptimistic"
)

// TestTableUpdateCostsLittle: a Table's Update allocates at most five times more than the statement
// written by hand: two are for a connection of its own, so that it is known if nothing was sent. It
// does not run in parallel: others' allocations would be counted.
func TestTableUpdateCostsLittle(t *testing.T) {
	pool, ctx := testdb.MySQL(t), t.Context()
	for _, text := range []string{
		"CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL, version BIGINT NOT NULL DEFAULT 1)",
		"INSERT INTO account VALUES (1000, 0, 1000), (2000, 0, 1000)",
	} {
		if _, err := pool.ExecContext(ctx, text); err != nil {
			t.Fatal(err)
		}
	}
	table, err := mysqloptimistic.NewTable("account", "id", optimistic.Int("version"))
	if err != nil {
		t.Fatal(err)
	}
	const text = "UPDATE account SET balance = ?, version = version + 1 WHERE id = ? AND version = ?"
	mine, hand := int64(1000), int64(1000)
	ours := testing.AllocsPerRun(300, func() {
		if mine, err = table.Update(ctx, pool, int64(1000), mine, optimistic.Set{"balance": mine}); err != nil {
			t.Fatal(err)
		}
	})
	theirs := testing.AllocsPerRun(300, func() {
		result, err := pool.ExecContext(ctx, text, hand, int64(2000), hand)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := result.RowsAffected(); err != nil || n != 1 {
			t.Fatal(n, err)
		}
		hand++
	})
	t.Logf("%.0f allocations, by hand %.0f", ours, theirs)
	if ours > theirs+5 {
		t.Errorf("%.0f allocations, by hand %.0f", ours, theirs)
	}
}
