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

// TestALockedGapStopsNoOtherBuyer: another transaction has locked the gap that new limits would go
// into, as an open INSERT may. On MariaDB a batch that waits for its stock passes over the buyers
// that are new, and locks the limit of one that is not.
func TestALockedGapStopsNoOtherBuyer(t *testing.T) {
	t.Parallel()
	for _, kind := range testdb.Engines() {
		if kind != devdb.MariaDB {
			continue
		}
		db := testdb.MigratedMySQL(t, kind)
		exec := func(query string) {
			t.Helper()
			_, err := db.ExecContext(t.Context(), query)
			require.NoError(t, err)
		}
		exec("INSERT INTO dblock_stock (sku, bucket, available) VALUES ('sale', 0, 9)")
		exec("INSERT INTO dblock_quota (sku, buyer, used, most) VALUES ('sale', 'a', 1, 9), ('sale', 'z', 0, 9)")
		other, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = other.ExecContext(t.Context(), "SELECT used FROM dblock_quota WHERE sku = 'sale' AND buyer > 'a' FOR UPDATE")
		require.NoError(t, err)
		d := &database{db: mysql.NewDatabase(db, "")}
		d.db.MariaDB = true
		a, m, n := driver.Quota{SKU: "sale", Buyer: "a"}, driver.Quota{SKU: "sale", Buyer: "m"}, driver.Quota{SKU: "sale", Buyer: "n"}
		read := func() (used map[driver.Quota]int64) {
			err := d.Transact(t.Context(), driver.ReadRequest{SKUs: []string{"sale"}, Quotas: []driver.Quota{a, m, n}, Wait: true}, func(b driver.Books) driver.Plan {
				used = b.Used
				return driver.Plan{}
			})
			require.NoError(t, err)
			return used
		}
		assert.Equal(t, map[driver.Quota]int64{a: 1}, read())
		require.NoError(t, other.Rollback())
		assert.Equal(t, map[driver.Quota]int64{a: 1, m: 0, n: 0}, read())
	}
}
