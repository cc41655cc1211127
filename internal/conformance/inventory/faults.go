package inventory

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inventory"
)

// aPoisonedOrderFailsAlone has the host's own trigger refuse one buyer.
func aPoisonedOrderFailsAlone(t *testing.T, s *env) {
	s.stock(t, "sale", 1000)
	s.poison(t)
	reqs := ordersFor(300, "sale")
	for i := range reqs {
		if i%100 == 42 {
			reqs[i].Buyer = "banned"
		}
	}
	for _, a := range crowd(t.Context(), s.Store, reqs) {
		banned := a.req.Buyer == "banned"
		if banned && (!errors.Is(a.err, inventory.ErrRejected) || !strings.Contains(a.err.Error(), "banned")) {
			t.Errorf("%s: got %v, want the trigger's own words", a.req.Key, a.err)
		}
		if !banned && a.err != nil {
			t.Errorf("%s failed for another's sake: %v", a.req.Key, a.err)
		}
	}
	if b := s.balance(t, "sale"); b.Sold != 297 {
		t.Errorf("%+v", b)
	}
	s.sound(t)
}

// aLockedSKUDoesNotStallTheRest has somebody else's transaction hold one row.
func aLockedSKUDoesNotStallTheRest(t *testing.T, s *env) {
	s.stock(t, "locked", 50)
	s.stock(t, "free", 150)
	tx, err := s.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), "SELECT 1 FROM dblock_stock WHERE sku = 'locked' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	o := s.o
	o.Timeout = 6 * time.Second
	store := s.open(t, o)
	var reqs []inventory.Request
	for i := range 100 {
		reqs = append(reqs, order(fmt.Sprintf("order-%d", i), []string{"locked", "free"}[i%2], 1))
	}
	start := time.Now()
	free := make(chan time.Duration, len(reqs))
	done := make(chan []told)
	go func() {
		done <- crowd(t.Context(), store, reqs)
	}()
	for i := range 100 {
		if _, err := store.Reserve(t.Context(), order(fmt.Sprintf("late-%d", i), "free", 1)); err != nil {
			t.Error(err)
		}
		free <- time.Since(start)
	}
	for _, a := range <-done {
		switch {
		case a.req.SKU == "free" && a.err != nil:
			t.Errorf("%s: %v", a.req.Key, a.err)
		case a.req.SKU == "locked" && !errors.Is(a.err, dblock.ErrBusy):
			t.Errorf("%s: got %v, want ErrBusy", a.req.Key, a.err)
		}
	}
	locked := time.Since(start)
	for range 100 {
		if took := <-free; took >= locked {
			t.Errorf("an order for a free SKU took %v, as long as those for the locked one", took)
		}
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if b := s.balance(t, "locked"); b.Available != 50 {
		t.Errorf("busy, and yet sold: %+v", b)
	}
	if _, err := store.Reserve(t.Context(), order("after", "locked", 1)); err != nil {
		t.Error(err)
	}
	s.sound(t)
}

// The seller that gets killed is this test binary again, told by its environment what to do.
const (
	sellerDSN      = "DBLOCK_TEST_SELLER"
	sellerStrategy = "DBLOCK_TEST_SELLER_STRATEGY"
)

// sellerOrders is how many orders the seller has: where most are refused at first, fewer take as long.
func sellerOrders(s inventory.Strategy) int {
	if s.SellsAll() {
		return 3000
	}
	return 900
}

// Main sells and exits where this process is a seller that a test has started. Call it first in
// TestMain.
func (e Inventory) Main() {
	dsn := os.Getenv(sellerDSN)
	if dsn == "" {
		return
	}
	if options := os.Getenv(sellerOptions); options != "" {
		err := e.doWhatIsAsked(dsn, options)
		if errors.Is(err, io.EOF) {
			os.Exit(0)
		}
		fmt.Fprintln(os.Stderr, "doer:", err)
		os.Exit(1)
	}
	strategy, err := inventory.ParseStrategy(os.Getenv(sellerStrategy))
	if err == nil {
		err = e.sellUntilKilled(dsn, strategy)
	}
	fmt.Fprintln(os.Stderr, "seller:", err)
	os.Exit(1)
}

// sellUntilKilled sells the orders over and over, and writes a line when the first ones are sold.
func (e Inventory) sellUntilKilled(dsn string, strategy inventory.Strategy) error {
	store, _, err := e.Open(context.Background(), dsn, small(strategy))
	if err != nil {
		return err
	}
	reqs := ordersFor(sellerOrders(strategy), "sale")
	go func() {
		for { // wait for the first sale, not for the first answer
			if _, err := store.Lookup(context.Background(), reqs[0].Key); err == nil {
				fmt.Println("selling")
				return
			}
		}
	}()
	for first := 0; ; first = (first + 300) % len(reqs) {
		for _, a := range crowd(context.Background(), store, reqs[first:first+300]) {
			if a.err != nil {
				return a.err
			}
		}
	}
}

// survivesAKilledSeller kills -9 a process in mid-sale and has another send the same orders.
func survivesAKilledSeller(t *testing.T, s *env) {
	orders := sellerOrders(s.o.Strategy)
	s.stock(t, "sale", int64(orders)+100)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	seller := exec.CommandContext(ctx, os.Args[0])
	seller.Env = append(os.Environ(), sellerDSN+"="+s.dsn, sellerStrategy+"="+s.o.Strategy.String())
	seller.Stderr = os.Stderr
	out, err := seller.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := seller.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err := seller.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err != nil || line != "selling\n" {
		t.Fatalf("the seller wrote %q, %v", line, err)
	}
	_ = seller.Wait() // it says that it was killed
	replayed := 0
	for _, a := range crowd(t.Context(), s.Store, ordersFor(orders, "sale")) {
		if a.err != nil {
			t.Errorf("%s: %v", a.req.Key, a.err)
		}
		if a.res.Replayed {
			replayed++
		}
	}
	if replayed == 0 || replayed == orders {
		t.Errorf("the seller had sold %d of %d orders when it was killed: nothing was shown", replayed, orders)
	}
	if b := s.balance(t, "sale"); b.Sold != int64(orders) || b.Available != 100 {
		t.Errorf("after the kill: %+v", b)
	}
	s.sound(t)
}
