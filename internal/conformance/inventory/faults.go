package inventory

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/inventory"
)

// aPoisonedOrderFailsAlone has a trigger of the owner's refuse one buyer.
func aPoisonedOrderFailsAlone(t *testing.T, s *env) {
	s.stock(t, "sale", 1000)
	s.poison(t)
	reqs := ordersFor(300, "sale")
	for i := 42; i < len(reqs); i += 100 {
		reqs[i].Buyer = "banned"
	}
	for _, a := range crowd(t.Context(), s.Store, reqs) {
		assertBanned(t, a.req, a.err)
	}
	s.wantsBooks(t, "sale", 703, 0, 297)
	s.sound(t)
}

// aLockedSKUDoesNotStallTheRest has another transaction hold one SKU: its orders wait, and those of
// another SKU are sold meanwhile. An order whose time is up is ErrBusy, and is not sold.
func aLockedSKUDoesNotStallTheRest(t *testing.T, s *env) {
	s.stock(t, "locked", 50)
	s.stock(t, "free", 150)
	release := s.lockSKUs(t, []string{"locked"})
	o := s.o
	o.Timeout = 300 * time.Millisecond
	assert.ErrorIs(t, suite.Second(s.open(t, o).Reserve(t.Context(), order("hasty", "locked", 1))), dblock.ErrBusy)
	var mixed []inventory.Request
	for i := range 100 {
		mixed = append(mixed, order(fmt.Sprintf("order-%d", i), []string{"locked", "free"}[i%2], 1))
	}
	ends := suite.Begin(func() ([]told, error) { return crowd(t.Context(), s.Store, mixed), nil })
	for _, r := range ordersOf("late", 100, "free") {
		s.sells(t, r)
	}
	s.Until(t, "SELECT count(*) FROM dblock_reservation", 150)
	s.wantsBooks(t, "locked", 50, 0, 0)
	release()
	for _, a := range suite.Must(ends())(t) {
		assert.NoError(t, a.err, a.req.Key)
	}
	s.wantsBooks(t, "locked", 0, 0, 50)
	s.sound(t)
}

// The seller that is killed is this test binary with these variables in its environment.
const (
	sellerDSN = "DBLOCK_TEST_SELLER"
	sellerWay = "DBLOCK_TEST_SELLER_WAY"
)

// sellerOrders is how many orders the seller has.
const sellerOrders = 3000

// Main sells and exits if this process is a seller that a test has started. Call it first in
// TestMain.
func (e Inventory) Main() {
	dsn := os.Getenv(sellerDSN)
	if dsn == "" {
		return
	}
	var err error
	if options := os.Getenv(sellerOptions); options != "" {
		if err = e.doWhatIsAsked(dsn, options); errors.Is(err, io.EOF) {
			os.Exit(0)
		}
	} else {
		err = e.sellUntilKilled(dsn, os.Getenv(sellerWay))
	}
	fmt.Fprintln(os.Stderr, "seller:", err)
	os.Exit(1)
}

// sellUntilKilled sells the orders over and over, and writes a line when the first one is sold.
func (e Inventory) sellUntilKilled(dsn, way string) error {
	store, _, err := e.Open(context.Background(), dsn, small(ways[way]))
	if err != nil {
		return err
	}
	reqs := ordersFor(sellerOrders, "sale")
	go func() {
		for err := error(inventory.ErrNotFound); err != nil; {
			_, err = store.Lookup(context.Background(), reqs[0].Key)
		}
		fmt.Println("selling")
	}()
	for first := 0; ; first = (first + 300) % len(reqs) {
		for _, a := range crowd(context.Background(), store, reqs[first:first+300]) {
			if a.err != nil {
				return a.err
			}
		}
	}
}

// survivesAKilledSeller kills -9 a process while it sells, and has another one send the same
// orders.
func survivesAKilledSeller(t *testing.T, s *env) {
	const orders = sellerOrders
	s.stock(t, "sale", int64(orders)+100)
	cmd := exec.CommandContext(suite.Soon(t), os.Args[0])
	cmd.Env = append(os.Environ(), sellerDSN+"="+s.dsn, sellerWay+"="+map[bool]string{false: "merge", true: "direct"}[s.o.Direct])
	seller := suite.StartChild(t, cmd)
	seller.Says(t, "selling")
	seller.Kill()
	replayed := 0
	for _, a := range crowd(t.Context(), s.Store, ordersFor(orders, "sale")) {
		assert.NoError(t, a.err, a.req.Key)
		if a.res.Replayed {
			replayed++
		}
	}
	assert.True(t, 0 < replayed && replayed < orders, "%d of %d were sold when the seller was killed", replayed, orders)
	s.wantsBooks(t, "sale", 100, 0, int64(orders))
	s.sound(t)
}
