package pginventory

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// TestOpenQuotasAreLeftOut: a batch goes on without those quotas that another transaction has
// inserted. If there are many, it leaves out more, so as to find them in time.
func TestOpenQuotasAreLeftOut(t *testing.T) {
	t.Parallel()
	const (
		tries = 20              // on a busy machine one may take its time, and leave out more
		most  = 2 * time.Second // to wait for each of 500 takes longer on any machine
	)
	db, ctx := testdb.MigratedPostgres(t), t.Context()
	d, err := open(ctx, db, "", nil)
	require.NoError(t, err)
	_, err = db.Exec(ctx, "INSERT INTO dblock_quota (sku, buyer, used, most) VALUES ('k', 'there', 7, 9)")
	require.NoError(t, err)
	for _, open := range []int{1, 2, 500} {
		other, err := db.Begin(ctx)
		require.NoError(t, err)
		free, there := driver.Quota{SKU: "k", Buyer: "free"}, driver.Quota{SKU: "k", Buyer: "there"}
		ask := driver.ReadRequest{Quotas: []driver.Quota{free}}
		for n := range open {
			q := driver.Quota{SKU: "k", Buyer: fmt.Sprintf("open %03d", n)}
			_, err := other.Exec(ctx, "INSERT INTO dblock_quota (sku, buyer, used, most) VALUES ($1, $2, 0, 0)", q.SKU, q.Buyer)
			require.NoError(t, err)
			ask.Quotas = append(ask.Quotas, q)
		}
		ask.Quotas = append(ask.Quotas, there)
		var used map[driver.Quota]int64
		taken := most
		for n := 0; n < tries && (len(used) < 2 || taken >= most); n++ {
			began := time.Now()
			require.NoError(t, d.Transact(ctx, ask, func(b driver.Books) driver.Plan {
				used = b.Used
				return driver.Plan{}
			}))
			taken = time.Since(began)
		}
		assert.Equal(t, map[driver.Quota]int64{free: 0, there: 7}, used)
		assert.Less(t, taken, most, "with %d open quotas", open)
		require.NoError(t, other.Rollback(ctx))
	}
}
