package inventory

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/inventory"
)

type begins = func(sql.IsolationLevel) *CallerTx

// reservesInACallersTx sells orders and carts in transactions of the caller's: they are there with what else it writes, or not at all.
func reservesInACallersTx(t *testing.T, s *env, begin begins) {
	s.keepsBooks(t)
	s.exec(t, "CREATE TABLE own_order (order_key varchar(200) NOT NULL PRIMARY KEY, n int NOT NULL)")
	s.stock(t, "sale", 10)
	s.stock(t, "other", 10)
	lines := []inventory.Line{{SKU: "sale", Qty: 2}, {SKU: "other", Qty: 1, Limit: 3}, {SKU: "gift", Qty: 1, Unstocked: true}}
	for _, name := range []string{"rolled back", "committed"} {
		tx := begin(sql.LevelReadCommitted)
		hold := held(name+" held", "sale")
		hold.Limit = 2
		for i, call := range []func() (inventory.Reservation, error){
			func() (inventory.Reservation, error) { return tx.Reserve(t.Context(), s.Store, order(name, "sale", 1)) },
			func() (inventory.Reservation, error) { return tx.Reserve(t.Context(), s.Store, hold) },
			func() (inventory.Reservation, error) {
				return tx.ReserveAll(t.Context(), s.Store, inventory.Cart{Key: name + " cart", Buyer: "ann", Lines: lines})
			},
		} {
			if r, err := call(); err != nil || r.Replayed || r.State == inventory.Refused {
				t.Errorf("%s, call %d: %+v, %v", name, i, r, err)
			}
		}
		if r, err := tx.Reserve(t.Context(), s.Store, order(name, "sale", 1)); err != nil || !r.Replayed {
			t.Errorf("%s: the same order in the same transaction: %+v, %v", name, r, err)
		}
		if err := tx.Exec(t.Context(), "INSERT INTO own_order (order_key, n) VALUES ('"+name+"', 1)"); err != nil {
			t.Error(err)
		}
		if _, err := s.Lookup(t.Context(), name); !errors.Is(err, inventory.ErrNotFound) {
			t.Errorf("%s: before the commit others see it: %v", name, err)
		}
		end := map[string]func(context.Context) error{"rolled back": tx.Rollback, "committed": tx.Commit}[name]
		if err := end(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s.wantsBooks(t, "sale", 6, 1, 3)
	s.wantsBooks(t, "other", 9, 0, 1)
	if n := s.count(t, "SELECT count(*) FROM own_order WHERE order_key = 'committed'"); n != 1 {
		t.Errorf("%d rows of the caller's own", n)
	}
	if r, err := s.Reserve(t.Context(), order("committed", "sale", 1)); err != nil || !r.Replayed {
		t.Errorf("the same order elsewhere: %+v, %v", r, err)
	}
	if _, err := s.Confirm(t.Context(), "committed held"); err != nil {
		t.Error(err)
	}
	s.balanced(t)
}

// aCallersTxOutlivesARefusal has orders refused in every way: the transaction goes on, and what it has written else is committed.
func aCallersTxOutlivesARefusal(t *testing.T, s *env, begin begins) {
	s.keepsBooks(t)
	s.stock(t, "sale", 5)
	s.sells(t, order("before", "sale", 1))
	if _, err := s.Cancel(t.Context(), "cancelled"); err != nil {
		t.Fatal(err)
	}
	limited := order("limited", "sale", 2)
	limited.Limit = 1
	other := order("before", "sale", 3)
	bad := order("", "sale", 1)
	tx := begin(sql.LevelReadCommitted)
	refused := map[*inventory.Request]error{
		new(order("big", "sale", 5)): inventory.ErrSoldOut, new(order("unknown", "nonsense", 1)): inventory.ErrUnknownSKU,
		&limited: inventory.ErrLimitExceeded, &other: inventory.ErrKeyReused, &bad: inventory.ErrInvalid,
		new(order("cancelled", "sale", 1)): inventory.ErrCancelled,
	}
	n := 0
	for r, want := range refused {
		if _, err := tx.Reserve(t.Context(), s.Store, *r); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", r.Key, err, want)
		}
		n++
		if _, err := tx.Reserve(t.Context(), s.Store, order(fmt.Sprintf("after %d", n), "sale", int64(n%2))); n%2 == 1 && err != nil {
			t.Errorf("after %s: %v", r.Key, err)
		}
	}
	if _, err := tx.ReserveAll(t.Context(), s.Store, inventory.Cart{Key: "cart"}); !errors.Is(err, inventory.ErrInvalid) {
		t.Errorf("an empty cart: %v", err)
	}
	if r, err := tx.Reserve(t.Context(), s.Store, order("before", "sale", 1)); err != nil || !r.Replayed {
		t.Errorf("what was sold before: %+v, %v", r, err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.wantsBooks(t, "sale", 1, 0, 4)
	s.balanced(t)
}

// aCallersTxMeetsOthers has the same orders sent in transactions of callers' and to a Store, at once: each is sold once, limits hold,
// and whoever waits for longer than may be is told that it is busy.
func aCallersTxMeetsOthers(t *testing.T, s *env, begin begins) {
	s.keepsBooks(t)
	const keys, limit = 24, 3
	s.stock(t, "sale", keys)
	var crowd sync.WaitGroup
	var mu sync.Mutex
	fresh, limited := map[string]int{}, 0
	count := func(r inventory.Request, res inventory.Reservation, err error) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil && !res.Replayed:
			fresh[r.Key]++
		case errors.Is(err, inventory.ErrLimitExceeded):
			limited++
		case err != nil:
			t.Errorf("%s: %v", r.Key, err)
		}
	}
	for i := range keys {
		r := order(fmt.Sprintf("order-%d", i), "sale", 1)
		if r.Buyer, r.Limit = "ann", limit; i%2 == 0 {
			r.Buyer, r.Limit = "", 0
		}
		crowd.Go(func() {
			res, err := s.inTxAgainAndAgain(t, begin, r)
			count(r, res, err)
		})
		crowd.Go(func() {
			res, err := s.Reserve(t.Context(), r)
			count(r, res, err)
		})
	}
	crowd.Wait()
	for key, n := range fresh {
		if n != 1 {
			t.Errorf("%s was sold anew %d times", key, n)
		}
	}
	if len(fresh) != keys/2+limit || limited != 2*(keys/2-limit) {
		t.Errorf("%d were sold and %d over the limit", len(fresh), limited)
	}
	s.waitsNoLonger(t, begin)
	s.balanced(t)
}

// inTxAgainAndAgain reserves in a transaction that is run again after a conflict: the same key may be on its way to the Store, which
// writes the order first and then takes the stock.
func (s *env) inTxAgainAndAgain(t *testing.T, begin begins, r inventory.Request) (inventory.Reservation, error) {
	for {
		tx := begin(sql.LevelReadCommitted)
		res, err := tx.Reserve(t.Context(), s.Store, r)
		if errors.Is(err, dblock.ErrConflict) {
			_ = tx.Rollback(t.Context())
			continue
		}
		return res, errors.Join(err, tx.Commit(t.Context()))
	}
}

// waitsNoLonger has a transaction with a bound for its waits meet one that keeps the stock, or the buyer's limit.
func (s *env) waitsNoLonger(t *testing.T, begin begins) {
	t.Helper()
	for what, of := range map[string]func(key string) inventory.Request{
		"the stock": func(key string) inventory.Request { return order(key, "sale", 1) },
		"the limit": func(key string) inventory.Request {
			return inventory.Request{Key: key + " gift", Buyer: "ann", SKU: "gift", Qty: 1, Limit: 5, Unstocked: true}
		},
	} {
		s.waitsNoLongerFor(t, begin, what, of)
	}
}

func (s *env) waitsNoLongerFor(t *testing.T, begin begins, what string, of func(key string) inventory.Request) {
	t.Helper()
	s.sells(t, of("before"))
	first, second := begin(sql.LevelReadCommitted), begin(sql.LevelReadCommitted)
	if _, err := first.Reserve(t.Context(), s.Store, of("first")); err != nil {
		t.Fatal(err)
	}
	bound := "SET innodb_lock_wait_timeout = 1"
	if s.e.Kind == devdb.Postgres {
		bound = "SET LOCAL lock_timeout = '100ms'"
	}
	if err := second.Exec(t.Context(), bound); err != nil {
		t.Fatal(err)
	}
	if _, err := second.Reserve(t.Context(), s.Store, of("second")); !errors.Is(err, dblock.ErrBusy) {
		t.Errorf("%s is locked for longer than one waits: %v", what, err)
	}
	if err := first.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := second.Reserve(t.Context(), s.Store, of("second")); err != nil {
		t.Errorf("%s is free again: %v", what, err)
	}
	if err := second.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// aCallersTxNeverSellsOnWhatItSawFirst has a transaction look before others sell, at every level: it is told of a conflict, or
// sells what is really there, and never says sold out of an order that is sold.
func aCallersTxNeverSellsOnWhatItSawFirst(t *testing.T, s *env, begin begins) {
	s.keepsBooks(t)
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		for _, meanwhile := range []string{"the order itself", "another one", "nothing"} {
			sku := fmt.Sprintf("%v, %s", level, meanwhile)
			s.stock(t, sku, 1)
			tx := begin(level)
			look := "SELECT count(*) FROM dblock_reservation"
			if level == sql.LevelSerializable && s.e.Kind != devdb.Postgres { // there a look locks what it sees, and nobody could sell
				look = "DO 1"
			}
			if err := tx.Exec(t.Context(), look); err != nil {
				t.Fatal(err)
			}
			r := order("of "+sku, sku, 1)
			switch meanwhile {
			case "the order itself":
				s.sells(t, r)
			case "another one":
				s.sells(t, order("another of "+sku, sku, 1))
			}
			res, err := tx.Reserve(t.Context(), s.Store, r)
			conflict := errors.Is(err, dblock.ErrConflict)
			if conflict && level == sql.LevelReadCommitted {
				t.Errorf("%s: %v", sku, err)
			}
			switch {
			case meanwhile == "nothing" && (err != nil || res.Replayed),
				meanwhile == "the order itself" && !conflict && (err != nil || !res.Replayed),
				meanwhile == "another one" && !conflict && !errors.Is(err, inventory.ErrSoldOut):
				t.Errorf("%s: %+v, %v", sku, res, err)
			}
			end := tx.Commit
			if err != nil {
				end = tx.Rollback
			}
			if err := end(t.Context()); err != nil {
				t.Errorf("%s: %v", sku, err)
			}
			s.wantsBooks(t, sku, 0, 0, 1)
		}
	}
	s.balanced(t)
}

// aCallersTxThatIsNone has ended, or its Store is closed: nothing is sent.
func aCallersTxThatIsNone(t *testing.T, s *env, begin begins) {
	s.stock(t, "sale", 5)
	for name, end := range map[string]func(*CallerTx) error{
		"committed":   func(tx *CallerTx) error { return tx.Commit(t.Context()) },
		"rolled back": func(tx *CallerTx) error { return tx.Rollback(t.Context()) },
	} {
		tx := begin(sql.LevelReadCommitted)
		if err := end(tx); err != nil {
			t.Fatal(err)
		}
		var invalid *inventory.InvalidError
		if _, err := tx.Reserve(t.Context(), s.Store, order("late", "sale", 1)); !errors.As(err, &invalid) || invalid.Field != "tx" {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.endedByAStatement(t, begin)
	readOnly := []string{"SET TRANSACTION READ ONLY"}
	if s.e.Kind != devdb.Postgres {
		readOnly = []string{"COMMIT", "START TRANSACTION READ ONLY"}
	}
	reader := begin(sql.LevelReadCommitted)
	for _, statement := range readOnly {
		if err := reader.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := reader.Reserve(t.Context(), s.Store, order("late", "sale", 1)); !errors.Is(err, inventory.ErrInvalid) {
		t.Errorf("a read-only one: %v", err)
	}
	tx := begin(sql.LevelReadCommitted)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := tx.Reserve(ended, s.Store, order("cancelled", "sale", 1)); err == nil {
		t.Error("an order whose caller has given up is sold")
	}
	tx = begin(sql.LevelReadCommitted)
	store := s.open(t, s.o)
	if err := store.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Reserve(t.Context(), store, order("closed", "sale", 1)); !errors.Is(err, dblock.ErrClosed) {
		t.Errorf("a Store that is closed: %v", err)
	}
	s.wantsBooks(t, "sale", 5, 0, 0)
}

// endedByAStatement has a statement of the caller's end the transaction, which the driver does not know: the order is not
// acknowledged.
func (s *env) endedByAStatement(t *testing.T, begin begins) {
	t.Helper()
	s.stock(t, "ended", 5)
	tx := begin(sql.LevelReadCommitted)
	if err := tx.Exec(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	var invalid *inventory.InvalidError
	res, err := tx.Reserve(t.Context(), s.Store, order("ended", "ended", 1))
	if !errors.Is(err, dblock.ErrTxEnded) && (!errors.As(err, &invalid) || invalid.Field != "tx") {
		t.Errorf("in a transaction that a statement has ended: %+v, %v", res, err)
	}
	_ = tx.Rollback(t.Context())
}
