package mysqlinventory

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// TestABrieflyLockedSKUIsWaitedFor: a transaction has got the SKU that it waited for, and finds
// another one locked for a moment. It waits for that one, too, if it lingers. Without that, it
// passes over it.
func TestABrieflyLockedSKUIsWaitedFor(t *testing.T) {
	t.Parallel()
	const tries = 20 // a busy machine may keep the row locked for longer than the wait
	for _, kind := range testdb.Engines() {
		if kind == devdb.Postgres {
			continue
		}
		db, ctx := testdb.MigratedMySQL(t, kind), t.Context()
		_, err := db.ExecContext(ctx, "INSERT INTO dblock_stock (sku, bucket, available) VALUES ('k', 0, 9), ('o', 0, 9)")
		require.NoError(t, err)
		d := &database{db: mysql.NewDatabase(db, "")}
		d.db.MariaDB = kind == devdb.MariaDB
		got := func(lingers bool) (both bool) {
			other, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			_, err = other.ExecContext(ctx, "SELECT 1 FROM dblock_stock WHERE sku = 'o' FOR UPDATE")
			require.NoError(t, err)
			done := make(chan error, 1)
			go func() {
				ask := driver.ReadRequest{SKUs: []string{"k", "o"}, WaitFor: "k", Lingers: lingers}
				done <- d.Transact(ctx, ask, func(b driver.Books) driver.Plan {
					both = len(b.Stock["o"]) == 1
					return driver.Plan{}
				})
			}()
			for free := true; lingers && free && len(done) == 0; { // until it has the other SKU
				_, err := db.ExecContext(ctx, "SELECT 1 FROM dblock_stock WHERE sku = 'k' FOR UPDATE NOWAIT")
				free = err == nil
			}
			if lingers {
				require.NoError(t, other.Commit())
			}
			require.NoError(t, <-done)
			_ = other.Rollback()
			return both
		}
		assert.False(t, got(false), kind)
		gotBoth := false
		for n := 0; n < tries && !gotBoth; n++ {
			gotBoth = got(true)
		}
		assert.True(t, gotBoth, "passed over an SKU that was locked for a moment, %d times, on %s", tries, kind)
	}
}
