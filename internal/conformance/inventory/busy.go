package inventory

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/sale"
	"github.com/dblock-go/dblock/inventory"
)

// reserve sends an order as callers of the strategy do: where it does not wait for others they send
// it again as long as it is refused as busy.
func reserve(ctx context.Context, store *inventory.Store, r inventory.Request) (inventory.Reservation, error) {
	for {
		res, err := store.Reserve(ctx, r)
		if store.Strategy().SellsAll() || !errors.Is(err, dblock.ErrBusy) || ctx.Err() != nil {
			return res, err
		}
		time.Sleep(rand.N(10 * time.Millisecond))
	}
}

// sellsAllToThoseWhoComeAgain has more buyers than units, from two Stores. Refused as busy they ask
// again, and so the units are sold to the last one, whatever the strategy.
func sellsAllToThoseWhoComeAgain(t *testing.T, s *env) {
	units, buyers := int64(s.size(300)), s.size(400)
	s.stock(t, "sale", units)
	other := s.open(t, s.o)
	elsewhere := make(chan []told)
	reqs := ordersFor(buyers, "sale")
	go func() { elsewhere <- crowd(t.Context(), other, reqs[buyers/2:]) }()
	sold := int64(0)
	for _, a := range append(crowd(t.Context(), s.Store, reqs[:buyers/2]), <-elsewhere...) {
		switch {
		case a.err == nil:
			sold++
		case !errors.Is(a.err, inventory.ErrSoldOut):
			t.Errorf("%s: %v", a.req.Key, a.err)
		}
	}
	if b := s.balance(t, "sale"); sold != units || b.Sold != units || b.Available != 0 {
		t.Errorf("%d buyers came for %d units: %d were told so, the books hold %+v", buyers, units, sold, b)
	}
	s.sound(t)
}

// neverSaysSoldOutForBusy has everybody ask once: units may stay unsold, and nobody is told that
// they are gone.
func neverSaysSoldOutForBusy(t *testing.T, s *env) {
	for units, buyers := range map[int64]int{400: 400, 50: 400} {
		name := fmt.Sprintf("sale of %d", units)
		r, err := sale.Sale{Name: name, Buyers: buyers, Stock: units, Seed: 3}.Run(t.Context(), s.Store, func() {})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Check(s.o.Strategy); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if r.Sold == 0 || r.Sold != r.Balance.Sold || r.Sold+r.SoldOut+r.Busy != int64(buyers) {
			t.Errorf("%s: %+v", name, r)
		}
	}
	s.sound(t)
}

// refusesAtOnceWhatIsHeld has somebody else's transaction hold the stock: the order is refused long
// before any bound on a wait, nothing is written, and sent again afterwards it is sold.
func refusesAtOnceWhatIsHeld(t *testing.T, s *env) {
	s.stock(t, "held", 64)
	s.stock(t, "none", 0)
	s.o.Timeout = time.Minute
	store := s.open(t, s.o)
	letGo := s.hold(t, store, "held")
	start := time.Now()
	_, err := store.Reserve(t.Context(), order("k", "held", 1))
	if took := time.Since(start); took > s.o.Timeout/4 {
		t.Errorf("an answer after %v", took)
	}
	s.isBusy(t, "k", err)
	if _, err := store.Reserve(t.Context(), order("other", "none", 1)); !errors.Is(err, inventory.ErrSoldOut) {
		t.Errorf("of an SKU that nobody holds, and that is sold out: %v", err)
	}
	letGo()
	if res, err := reserve(t.Context(), store, order("k", "held", 1)); err != nil || res.Replayed {
		t.Errorf("sent again: %+v, %v", res, err)
	}
	s.sound(t)
}

// isBusy holds what the caller of a new order was told against what is recorded.
func (s *env) isBusy(t *testing.T, key string, err error) {
	t.Helper()
	if !errors.Is(err, dblock.ErrBusy) || errors.Is(err, inventory.ErrSoldOut) || !strings.Contains(err.Error(), key) ||
		!strings.Contains(err.Error(), "nothing was written") || !strings.Contains(err.Error(), "sent again") {
		t.Errorf("got %v", err)
	}
	if _, err := s.Lookup(t.Context(), key); !errors.Is(err, inventory.ErrNotFound) {
		t.Errorf("busy, and yet recorded: %v", err)
	}
}

// hold has a transaction hold all of an SKU's stock, in the way that the Store's strategy excludes,
// until letGo is called.
func (s *env) hold(t *testing.T, store *inventory.Store, sku string) (letGo func()) {
	t.Helper()
	tx, err := s.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	exec := func(statement string) {
		if _, err := tx.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	holder := make(chan error, 1)
	if store.Strategy() == inventory.Advisory {
		// A seller that has what it takes, and waits for an order that is being written under its key.
		exec(fmt.Sprintf("INSERT INTO dblock_reservation (reservation_key, sku, buyer, qty, state) VALUES ('holder', '%s', '', 1, 2)", sku))
		go func() {
			_, err := store.Reserve(t.Context(), order("holder", sku, 1))
			holder <- err
		}()
		for start := time.Now(); s.count(t, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND "+
			"database = (SELECT oid FROM pg_database WHERE datname = current_database())") == 0; time.Sleep(time.Millisecond) {
			if time.Since(start) > 20*time.Second {
				t.Fatal("nobody has the advisory lock")
			}
		}
	} else {
		exec(fmt.Sprintf("SELECT 1 FROM dblock_stock WHERE sku = '%s' FOR UPDATE", sku))
		holder <- nil
	}
	return func() {
		if err := errors.Join(tx.Rollback(), <-holder); err != nil {
			t.Error(err)
		}
	}
}

// refusesWhatOthersChange has somebody change the row all the time: an order is tried a few times
// and then refused, and once there is peace the same order is sold.
func refusesWhatOthersChange(t *testing.T, s *env) {
	s.stock(t, "sale", 10_000)
	ctx, stop := context.WithCancel(t.Context())
	var others sync.WaitGroup
	for range 6 {
		others.Go(func() {
			for ctx.Err() == nil {
				_, err := s.db.ExecContext(ctx, "UPDATE dblock_stock SET epoch = epoch + 1 WHERE sku = 'sale'")
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	refused := ""
	for i := 0; refused == "" && i < 1000; i++ { // at most: nearly each one is refused
		key := fmt.Sprintf("order-%d", i)
		if _, err := s.Reserve(t.Context(), order(key, "sale", 1)); err != nil {
			s.isBusy(t, key, err)
			refused = key
		}
	}
	stop()
	others.Wait()
	if refused == "" {
		t.Error("nobody was ever refused: this test shows nothing")
	}
	if res, err := s.Reserve(t.Context(), order(refused, "sale", 1)); err != nil || res.Replayed {
		t.Errorf("sent again: %+v, %v", res, err)
	}
	s.sound(t)
}

func refusesWhatTheDatabaseLacks(t *testing.T, e Inventory) {
	s := e.env(t, inventory.Options{})
	for _, strategy := range inventory.Strategies() {
		_, closePool, err := e.Open(t.Context(), s.dsn, inventory.Options{Strategy: strategy})
		if err == nil {
			closePool()
		}
		has := slices.Contains(e.strategies(), strategy)
		if has && err != nil || !has && (!errors.Is(err, dblock.ErrUnsupported) || !strings.Contains(err.Error(), "merge")) {
			t.Errorf("%v: %v", strategy, err)
		}
	}
}
