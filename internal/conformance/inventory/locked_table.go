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
			s := e.env(t, inventory.Options{Timeout: timeout})
			s.stock(t, "x", 1000)
			var n atomic.Int64
			reserve := func(ctx context.Context) error {
				r := order(fmt.Sprint("behind ", n.Add(1)), "x", 1)
				r.Limit = 10
				return suite.Second(s.Reserve(ctx, r))
			}
			calls := map[string]func(context.Context) error{"reserve": reserve}
			if table != "dblock_quota" {
				calls["audit"] = func(ctx context.Context) error { return suite.Second(s.Audit(ctx, "x")) }
			}
			if table == "dblock_reservation" {
				calls["cancel"] = func(ctx context.Context) error {
					return suite.Second(s.Cancel(ctx, fmt.Sprint("gone ", n.Add(1))))
				}
				calls["sweep"] = func(ctx context.Context) error { return suite.Second(s.Sweep(ctx, 10)) }
			}
			s.BehindATable(t, table, conns, 2*timeout, calls)
			s.sells(t, order("after", "x", 1))
			s.sound(t)
		})
	}
}
