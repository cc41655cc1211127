package inventory

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/inventory"
)

// ALockedTableIsBusyInTime has another session lock a table. Batches and reads behind it end within
// twice the Timeout, merged and with Direct.
func (ownTests) ALockedTableIsBusyInTime(t *testing.T, e Inventory) {
	const timeout, conns = 2 * time.Second, 64
	for _, table := range []string{"dblock_stock", "dblock_reservation", "dblock_quota"} {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			s := e.env(t, inventory.Options{})
			s.stock(t, "x", 1000)
			store := s.open(t, inventory.Options{Timeout: timeout})
			var n atomic.Int64
			calls := map[string]func(context.Context) error{"reserve": func(ctx context.Context) error {
				r := order(fmt.Sprint("behind ", n.Add(1)), "x", 1)
				r.Limit = 10
				return suite.Second(store.Reserve(ctx, r))
			}}
			if table != "dblock_quota" {
				calls["audit"] = func(ctx context.Context) error { return suite.Second(store.Audit(ctx, "x")) }
			}
			if table == "dblock_reservation" {
				gone := func() string { return fmt.Sprint("gone ", n.Add(1)) }
				calls["cancel"] = func(ctx context.Context) error { return suite.Second(store.Cancel(ctx, gone())) }
				calls["sweep"] = func(ctx context.Context) error { return suite.Second(store.Sweep(ctx, 10)) }
			}
			s.BehindATable(t, table, conns, 2*timeout, calls)
			s.sells(t, order("after", "x", 1))
			s.sound(t)
		})
	}
}
