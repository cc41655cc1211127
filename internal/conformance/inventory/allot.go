package inventory

import (
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/inventory"
)

// wantsAllotted fails unless these units of the SKU "sale" are shared, and in allotments.
func (s *env) wantsAllotted(t *testing.T, available, allotted int64) {
	t.Helper()
	b := s.balance(t, "sale")
	assert.Equal(t, []int64{available, allotted, 0}, []int64{b.Available, b.Allotted, b.Drift()})
}

// allotted is how many units of an SKU are in allotments.
func (s *env) allotted(t *testing.T, sku string) int64 {
	t.Helper()
	return s.countf(t, "SELECT SUM(available) FROM dblock_stock WHERE bucket >= 1048576 AND sku = '%s'", sku)
}

// allotments is how many rows of stock are allotments.
func (s *env) allotments(t *testing.T) int64 {
	t.Helper()
	return s.Count(t, "SELECT count(*) FROM dblock_stock WHERE bucket >= 1048576")
}

// SellsFromAllotments has several processes with allotments sell an SKU to the last unit, and
// counts how often the shared row is written.
func (mergeTests) SellsFromAllotments(t *testing.T, s *env) {
	const stores, units, allotted = 4, 2000, 100
	s.stock(t, "a", units)
	s.Exec(t, "CREATE TABLE stock_write (bucket int)")
	if s.Postgres() {
		s.Exec(t, `CREATE FUNCTION stock_write() RETURNS trigger LANGUAGE plpgsql AS
			'BEGIN INSERT INTO stock_write VALUES (0); RETURN NULL; END'`)
		s.Exec(t, `CREATE TRIGGER stock_write AFTER UPDATE ON dblock_stock FOR EACH ROW
			WHEN (new.bucket = 0) EXECUTE FUNCTION stock_write()`)
	} else {
		s.Exec(t, `CREATE TRIGGER stock_write AFTER UPDATE ON dblock_stock FOR EACH ROW
			IF new.bucket = 0 THEN INSERT INTO stock_write VALUES (0); END IF`)
	}
	writes := func() int64 { return s.Count(t, "SELECT count(*) FROM stock_write") }
	var all []*inventory.Store
	for range stores {
		all = append(all, s.openClosed(t, inventory.Options{Allotment: allotted, Timeout: time.Minute}))
	}
	var sold atomic.Int64
	suite.Crowd(stores, func(i int) {
		sold.Add(int64(len(soldIn(t, all[i], ordersOf(fmt.Sprint("store ", i), (units+500)/stores, "a")))))
	})
	assert.EqualValues(t, units, sold.Load())
	assert.LessOrEqual(t, writes(), int64(units/allotted+2*stores))
	before := writes()
	s.restock(t, "more", "a", 20)
	for _, r := range ordersOf("one by one", 20, "a") {
		s.sells(t, r)
	}
	assert.EqualValues(t, 21, writes()-before, "the control has no allotment, and writes the shared row for each order")
	s.sound(t)
}

// AllotmentsAreStock sells, restocks and writes off beside an allotment.
func (mergeTests) AllotmentsAreStock(t *testing.T, s *env) {
	s.stock(t, "sale", 100)
	s.stock(t, "other", 1)
	store := s.open(t, inventory.Options{Allotment: 40})
	sell := func(key string, qty int64) error {
		return suite.Second(store.Reserve(t.Context(), order(key, "sale", qty)))
	}
	for _, step := range []struct {
		what                string
		do                  func() error
		available, allotted int64
	}{
		{"the first order", func() error { return sell("one", 1) }, 60, 39},
		{"a delivery", func() error { return restock(t, s.Store, "up", "sale", 20) }, 80, 39},
		{"another delivery", func() error { return restock(t, s.Store, "more", "sale", 30) }, 110, 39},
		{"a write-off takes what is shared first", func() error { return restock(t, s.Store, "down", "sale", -10) }, 100, 39},
		{"a write-off of more", func() error { return restock(t, s.Store, "far down", "sale", -110) }, 0, 29},
		{"a write-off of allotted units", func() error { return restock(t, s.Store, "all but 3", "sale", -26) }, 0, 3},
		{"the rest of the allotment", func() error { return sell("rest", 2) }, 0, 1},
		{"a cart finds its unit in the allotment", func() error {
			cart := inventory.Cart{Key: "cart", Lines: []inventory.Line{{SKU: "sale", Qty: 1}, {SKU: "other", Qty: 1}}}
			return suite.Second(store.ReserveAll(t.Context(), cart))
		}, 0, 0},
		{"a delivery once all is gone", func() error { return restock(t, s.Store, "again", "sale", 50) }, 50, 0},
		{"another allotment", func() error { return sell("again", 5) }, 10, 35},
		{"Close returns it", func() error { return store.Close(t.Context()) }, 45, 0},
	} {
		assert.NoError(t, step.do(), step.what)
		s.wantsAllotted(t, step.available, step.allotted)
	}
	s.sound(t)
}

// SeesWhatIsAllottedMeanwhile has calls wait for stock that moves to a new allotment meanwhile. The
// test makes that allotment by hand, to be as slow as it takes.
func (mergeTests) SeesWhatIsAllottedMeanwhile(t *testing.T, s *env) {
	for name, call := range map[string]func() error{
		"a cart": func() error {
			lines := []inventory.Line{{SKU: "a cart", Qty: 7}, {SKU: "other", Qty: 1}}
			return suite.Second(s.ReserveAll(t.Context(), inventory.Cart{Key: "a cart", Lines: lines}))
		},
		"an order with a limit": func() error {
			r := order("limited", "an order with a limit", 7)
			r.Limit = 7
			return suite.Second(s.Reserve(t.Context(), r))
		},
		"a write-off": func() error { return restock(t, s.Store, "off", "a write-off", -7) },
		"a transaction": func() error {
			for _, begin := range s.e.Callers { // any form
				tx, err := begin(t.Context(), s.DSN, sql.LevelReadCommitted)
				if err != nil {
					return err
				}
				defer tx.Close()
				_, err = tx.Reserve(t.Context(), s.Store, order("in a transaction", "a transaction", 7))
				return errors.Join(err, tx.Commit(t.Context()))
			}
			return nil
		},
	} {
		s.stock(t, name, 10)
		s.restock(t, "other "+name, "other", 1)
		tx := suite.Must(s.DB.DB.BeginTx(t.Context(), nil))(t)
		for _, statement := range []string{
			"UPDATE dblock_stock SET available = 0, epoch = epoch + 1 WHERE bucket = 0 AND sku = '" + name + "'",
			"INSERT INTO dblock_stock (sku, bucket, available) VALUES ('" + name + "', 1048576, 10)",
		} {
			require.NoError(t, suite.Second(tx.ExecContext(t.Context(), statement)))
		}
		end := suite.Begin(func() (any, error) { return nil, call() })
		s.waitsForARow(t)
		require.NoError(t, tx.Commit())
		assert.NoError(t, suite.Second(end()), name)
		b := s.balance(t, name)
		assert.EqualValues(t, 3, b.Available+b.Allotted, name)
	}
	s.sound(t)
}

// TakesAnotherAllotment has a process lose its lease, and another process get it, while both sell
// on: the first one takes another allotment.
func (mergeTests) TakesAnotherAllotment(t *testing.T, s *env) {
	s.stock(t, "sale", 100_000)
	o := inventory.Options{Allotment: 10, Timeout: time.Minute}
	first, second := s.openClosed(t, o), s.openClosed(t, o)
	sell := func(store *inventory.Store, key string) {
		require.NoError(t, suite.Second(store.Reserve(t.Context(), order(key, "sale", 1))))
	}
	sell(first, "first")
	s.Exec(t, "DELETE FROM dblock_member")
	sell(second, "second")
	assert.EqualValues(t, 1, s.allotments(t), "the second process has the lost lease")
	n := 0
	suite.Until(t, "the first process takes another one", func() bool {
		n++
		sell(first, fmt.Sprint("on ", n))
		return s.allotments(t) > 1
	})
	s.sound(t)
}
