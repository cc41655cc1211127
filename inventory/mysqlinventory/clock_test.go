package mysqlinventory_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/migrations"
)

// TestWaitingTakesTime: a hold that ends while its confirmation waits for the row has ended. Here a
// statement's time is that of its beginning, and by that time it had not.
func TestWaitingTakesTime(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			store, db := shop(t, kind)
			hold := inventory.Request{Key: "order", SKU: "sku", Qty: 1, Hold: time.Hour}
			if _, err := store.Reserve(ctx, hold); err != nil {
				t.Fatal(err)
			}
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback() }()
			if _, err := tx.ExecContext(ctx, "SELECT 1 FROM dblock_reservation WHERE reservation_key = 'order' FOR UPDATE"); err != nil {
				t.Fatal(err)
			}
			confirmed := make(chan error, 1)
			go func() {
				_, err := store.Confirm(ctx, "order")
				confirmed <- err
			}()
			untilItWaits(ctx, t, db)
			if _, err := tx.ExecContext(ctx, "UPDATE dblock_reservation SET expires_at = UTC_TIMESTAMP(6) WHERE reservation_key = 'order'"); err != nil {
				t.Fatal(err)
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			if err := <-confirmed; !errors.Is(err, inventory.ErrExpired) {
				t.Errorf("confirmed after its end: %v", err)
			}
		})
	}
}

// shop is a Store on a database of its own, with one SKU, and the test's own pool.
func shop(t *testing.T, kind devdb.Kind) (*inventory.Store, *sql.DB) {
	t.Helper()
	dsn := testdb.DSN(t, kind)
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if _, err := migrations.Up(t.Context(), db, migrations.Options{}); err != nil {
		t.Fatal(err)
	}
	store, closePool, err := open(t.Context(), dsn, inventory.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(closePool)
	if _, err := store.Restock(t.Context(), inventory.Adjustment{ID: "delivery", SKU: "sku", Delta: 9}); err != nil {
		t.Fatal(err)
	}
	return store, db
}

// untilItWaits returns once a statement of this database, which names the order, waits for a lock.
// InnoDB brings up to date only what is read less often than every 100 ms.
func untilItWaits(ctx context.Context, t *testing.T, db *sql.DB) {
	t.Helper()
	const waiting = "SELECT COUNT(*) FROM information_schema.innodb_trx t JOIN " + devdb.Processlist + " p ON p.id = t.trx_mysql_thread_id " +
		"WHERE p.db = DATABASE() AND t.trx_state = 'LOCK WAIT' AND LOCATE(?, t.trx_query) > 0"
	for n := 0; n == 0; time.Sleep(150 * time.Millisecond) {
		key := mysql.Interpolate("?", []byte("order"))
		if err := db.QueryRowContext(ctx, waiting, key).Scan(&n); err != nil {
			t.Fatal(err)
		}
	}
}
