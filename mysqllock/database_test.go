package mysqllock_test

import (
	"database/sql"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/mysqlinventory"
	"github.com/dblock-go/dblock/mysqllock"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/mysqlqueue"
)

func openDSN(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// TestUseOther: a host sends USE on the connections of its pool. Leases stay in the database that
// the pool was connected to.
func TestUseOther(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			dsn := testdb.Migrated(t, kind)
			other, err := mysql.ParseDSN(testdb.Migrated(t, kind))
			require.NoError(t, err)
			pool := openDSN(t, dsn)
			a, err := mysqllock.NewLeaseLocker(t.Context(), openDSN(t, dsn), mysqllock.LeaseOptions{})
			require.NoError(t, err)
			defer func() { _ = a.Close(t.Context()) }()
			b, err := mysqllock.NewLeaseLocker(t.Context(), pool, mysqllock.LeaseOptions{})
			require.NoError(t, err)
			defer func() { _ = b.Close(t.Context()) }()
			store, err := mysqlinventory.New(t.Context(), pool, inventory.Options{})
			require.NoError(t, err)
			defer func() { _ = store.Close(t.Context()) }()
			jobs, err := mysqlqueue.New(t.Context(), pool, queue.Options{})
			require.NoError(t, err)
			defer func() { _ = jobs.Close(t.Context()) }()

			pool.SetMaxIdleConns(8)
			var used []*sql.Conn
			for range 8 {
				conn, err := pool.Conn(t.Context())
				require.NoError(t, err)
				_, err = conn.ExecContext(t.Context(), "USE "+other.DBName)
				require.NoError(t, err)
				used = append(used, conn)
			}
			for _, conn := range used {
				require.NoError(t, conn.Close())
			}
			lock, err := a.TryAcquire(t.Context(), "k")
			require.NoError(t, err)
			defer func() { _ = lock.Release(t.Context()) }()
			_, err = b.TryAcquire(t.Context(), "k")
			assert.ErrorIs(t, err, dblock.ErrNotAcquired)
			_, err = store.Restock(t.Context(), inventory.Adjustment{ID: "first", SKU: "sku", Delta: 1})
			require.NoError(t, err)
			_, err = jobs.Enqueue(t.Context(), queue.Task{Kind: "k"})
			require.NoError(t, err)
			in := openDSN(t, other.FormatDSN())
			for _, table := range []string{"dblock_stock", "dblock_queue_job", "dblock_lease"} {
				var rows int
				require.NoError(t, in.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+table).Scan(&rows))
				assert.Zero(t, rows, table)
			}
		})
	}
}

// TestAClockThatStands: a session whose clock stands still takes leases of others for ended ones.
func TestAClockThatStands(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			dsn, err := mysql.ParseDSN(testdb.Migrated(t, kind))
			require.NoError(t, err)
			for _, at := range []string{"1000000000", "2000000000"} {
				dsn.Params = map[string]string{"timestamp": at}
				_, err = mysqllock.NewLeaseLocker(t.Context(), openDSN(t, dsn.FormatDSN()), mysqllock.LeaseOptions{})
				assert.ErrorIs(t, err, dblock.ErrUnsupported)
				assert.ErrorContains(t, err, "timestamp")
			}
		})
	}
}
