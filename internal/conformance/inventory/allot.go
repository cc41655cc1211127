package inventory

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/inventory"
)

// sellsFromAllotments has several processes, each with an allotment, sell one SKU to the last unit, and counts how often the
// shared row is written.
func sellsFromAllotments(t *testing.T, s *env) {
	const stores, units, allotted = 4, 4000, 100
	s.stock(t, "a", units)
	s.countWrites(t)
	var all []*inventory.Store
	for range stores {
		all = append(all, s.openClosed(t, inventory.Options{Allotment: allotted}))
	}
	var sold, soldOut atomic.Int64
	var wg sync.WaitGroup
	for i := range units + 500 {
		wg.Go(func() {
			switch _, err := all[i%stores].Reserve(t.Context(), order(fmt.Sprint(i), "a", 1)); {
			case err == nil:
				sold.Add(1)
			case errors.Is(err, inventory.ErrSoldOut):
				soldOut.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if sold.Load() != units || soldOut.Load() != 500 {
		t.Errorf("%d sold and %d told sold out, want %d and 500", sold.Load(), soldOut.Load(), units)
	}
	if writes := s.count(t, "SELECT count(*) FROM stock_write"); writes > units/allotted+2*stores {
		t.Errorf("the shared row was written %d times, want %d at most", writes, units/allotted+2*stores)
	}
	before := s.count(t, "SELECT count(*) FROM stock_write")
	s.restock(t, "more", "a", 20)
	for _, r := range ordersOf("one by one", 20, "a") {
		s.sells(t, r)
	}
	if writes := s.count(t, "SELECT count(*) FROM stock_write") - before; writes != 21 {
		t.Errorf("the control has no allotment, and wrote the shared row %d times: nothing is counted", writes)
	}
	s.sound(t)
}

// countWrites counts the updates of shared rows of stock.
func (s *env) countWrites(t *testing.T) {
	t.Helper()
	s.exec(t, "CREATE TABLE stock_write (bucket int)")
	if s.e.Kind == devdb.Postgres {
		s.exec(t, "CREATE FUNCTION stock_write() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO stock_write VALUES (new.bucket); RETURN NULL; END'")
		s.exec(t, "CREATE TRIGGER stock_write AFTER UPDATE ON dblock_stock FOR EACH ROW WHEN (new.bucket = 0) EXECUTE FUNCTION stock_write()")
		return
	}
	s.exec(t, "CREATE TRIGGER stock_write AFTER UPDATE ON dblock_stock FOR EACH ROW IF new.bucket = 0 THEN INSERT INTO stock_write VALUES (new.bucket); END IF")
}
