package mysqlinventory_test

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/migrations"
)

// TestStatementsFitThePacket sells to many at once, and the largest cart, on a server that takes
// statements of 512 KiB. All keys, SKUs and buyers have the greatest length.
func TestStatementsFitThePacket(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			server := testdb.Own(t, kind, "--max-allowed-packet=512K")
			if server == nil {
				return
			}
			dsn, _, err := server.CreateDatabase(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			db, err := sql.Open("mysql", dsn)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = db.Close() }()
			if _, err := migrations.Up(t.Context(), db, migrations.Options{}); err != nil {
				t.Fatal(err)
			}
			store, done, err := open(t.Context(), dsn, inventory.Options{MaxBatch: 8192})
			if err != nil {
				t.Fatal(err)
			}
			defer done()
			fitsThePacket(t, store)
			books, err := store.Audit(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range books {
				if b.Drift() != 0 {
					t.Errorf("%+v", b)
				}
			}
		})
	}
}

func fitsThePacket(t *testing.T, store *inventory.Store) {
	t.Helper()
	long := func(format string, n int) string {
		text := fmt.Sprintf(format, n)
		return text + strings.Repeat("x", inventory.MaxIdentifierBytes-len(text))
	}
	hot := long("hot %d ", 0)
	restock := func(sku string, n int64) {
		if _, err := store.Restock(t.Context(), inventory.Adjustment{ID: sku, SKU: sku, Delta: n}); err != nil {
			t.Error(err)
		}
	}
	cart := inventory.Cart{Key: long("cart %d ", 0), Buyer: long("buyer %d ", 0), Hold: time.Hour}
	var all sync.WaitGroup
	for i := range inventory.MaxLines {
		sku := long("sku %d ", i)
		cart.Lines = append(cart.Lines, inventory.Line{SKU: sku, Qty: 1})
		if i < 8 {
			all.Go(func() {
				for j := i; j < inventory.MaxLines; j += 8 {
					restock(long("sku %d ", j), 2)
				}
			})
		}
	}
	all.Wait()
	const orders = 2000
	restock(hot, orders+10)
	each := func(what string, call func(i int) error) {
		t.Helper()
		var all sync.WaitGroup
		var failed sync.Once
		for i := range orders {
			all.Go(func() {
				if err := call(i); err != nil {
					failed.Do(func() { t.Errorf("%s: %.300v", what, err) })
				}
			})
		}
		all.Wait()
	}
	key := func(i int) string { return long("order %d ", i) }
	each("hold", func(i int) error {
		_, err := store.Reserve(t.Context(), inventory.Request{Key: key(i), SKU: hot, Buyer: long("buyer %d ", i), Qty: 1, Hold: time.Hour, Limit: 5})
		return err
	})
	if _, err := store.ReserveAll(t.Context(), cart); err != nil {
		t.Errorf("the largest cart: %.300v", err)
	}
	each("confirm or cancel", func(i int) error {
		if i%2 == 0 {
			_, err := store.Confirm(t.Context(), key(i))
			return err
		}
		_, err := store.Cancel(t.Context(), key(i))
		return err
	})
	if _, err := store.Confirm(t.Context(), cart.Key); err != nil {
		t.Errorf("the largest cart: %.300v", err)
	}
	if _, err := store.Cancel(t.Context(), key(0)); !errors.Is(err, inventory.ErrAlreadyConfirmed) {
		t.Errorf("cancel of a confirmed order: %v", err)
	}
}
