package inventory

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/inventory"
)

// aCallersTxCountsNoExpiredHold has a buyer whose holds have expired order as much again in a caller's transaction: an order and a cart.
// What is swept for them comes back if the transaction is rolled back. The control is a hold that another transaction has locked: it counts.
func aCallersTxCountsNoExpiredHold(t *testing.T, s *env, begin begins) {
	s.keepsBooks(t)
	s.stock(t, "sale", 100)
	s.stock(t, "other", 100)
	hold := func(key string) inventory.Request {
		r := perBuyer(key, "sale", "ann", 2)
		r.Hold = time.Hour
		return r
	}
	held := inventory.Cart{Key: "a", Buyer: "ann", Hold: time.Hour, Lines: []inventory.Line{{SKU: "other", Qty: 1}, {SKU: "sale", Qty: 1, Limit: 2}}}
	if _, err := s.ReserveAll(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	s.sells(t, hold("b"))
	s.isDue(t, "a", "b")
	letGo := s.lockRows(t, "SELECT 1 FROM dblock_reservation WHERE reservation_key = 'b' FOR UPDATE")
	tx := begin(sql.LevelReadCommitted)
	cart := inventory.Cart{Key: "cart", Buyer: "ann", Lines: []inventory.Line{{SKU: "sale", Qty: 2, Limit: 2}, {SKU: "gift", Qty: 1, Unstocked: true}}}
	if _, err := tx.ReserveAll(t.Context(), s.Store, cart); !errors.Is(err, inventory.ErrLimitExceeded) {
		t.Errorf("beside a hold that is locked: %v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	letGo()
	for _, name := range []string{"rolled back", "committed"} {
		tx := begin(sql.LevelReadCommitted)
		for _, key := range []string{" c", " d"} {
			if res, err := tx.Reserve(t.Context(), s.Store, hold(name+key)); err != nil || res.Replayed {
				t.Errorf("%s%s: %+v, %v", name, key, res, err)
			}
		}
		if _, err := tx.Reserve(t.Context(), s.Store, hold(name+" e")); !errors.Is(err, inventory.ErrLimitExceeded) {
			t.Errorf("%s, one too many: %v", name, err)
		}
		end, books := tx.Rollback, func() { s.wantsBooks(t, "sale", 98, 2, 0); s.wantsBooks(t, "other", 99, 1, 0) }
		if name == "committed" {
			end, books = tx.Commit, func() { s.wantsBooks(t, "sale", 98, 2, 0); s.wantsBooks(t, "other", 100, 0, 0) }
		}
		if err := end(t.Context()); err != nil {
			t.Fatal(err)
		}
		books()
	}
	s.isDue(t, "committed c", "committed d")
	tx = begin(sql.LevelReadCommitted)
	if _, err := tx.ReserveAll(t.Context(), s.Store, cart); err != nil {
		t.Errorf("a cart: %v", err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.wantsBooks(t, "sale", 98, 0, 2)
	s.balanced(t)
}

// aSweepThatFailsLeavesTheRefusal has the sweep of a buyer's expired hold fail with a lock timeout:
// the order is refused for the limit, and the transaction goes on. The control is the same order
// once the sweep passes.
func aSweepThatFailsLeavesTheRefusal(t *testing.T, s *env, begin begins) {
	s.stock(t, "sale", 10)
	hold := perBuyer("hold", "sale", "ann", 1)
	hold.Hold = time.Hour
	s.sells(t, hold)
	s.isDue(t, "hold")
	if s.e.Kind == devdb.Postgres {
		s.exec(t, `CREATE FUNCTION busy() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE lock_not_available; END $$`)
		s.exec(t, `CREATE TRIGGER busy BEFORE UPDATE ON dblock_reservation FOR EACH ROW EXECUTE FUNCTION busy()`)
	} else {
		s.exec(t, `CREATE TRIGGER busy BEFORE UPDATE ON dblock_reservation FOR EACH ROW
			SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1205, MESSAGE_TEXT = 'busy'`)
	}
	tx := begin(sql.LevelReadCommitted)
	if _, err := tx.Reserve(t.Context(), s.Store, perBuyer("again", "sale", "ann", 1)); !errors.Is(err, inventory.ErrLimitExceeded) {
		t.Errorf("the sweep fails: %v", err)
	}
	if _, err := tx.Reserve(t.Context(), s.Store, perBuyer("other", "sale", "bob", 1)); err != nil {
		t.Errorf("the transaction goes on: %v", err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.exec(t, "DROP TRIGGER busy"+map[bool]string{true: " ON dblock_reservation"}[s.e.Kind == devdb.Postgres])
	tx = begin(sql.LevelReadCommitted)
	if _, err := tx.Reserve(t.Context(), s.Store, perBuyer("again", "sale", "ann", 1)); err != nil {
		t.Errorf("the sweep passes: %v", err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.wantsBooks(t, "sale", 8, 0, 2)
	s.sound(t)
}
