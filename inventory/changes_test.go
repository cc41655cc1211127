package inventory

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// lockedSKUs is a driver with a reservation of an SKU of its own under each key but "unknown".
// Statements that wait for an SKU "locked …" wait until release is closed. The SKU "brief" is
// locked for the first statement only.
type lockedSKUs struct {
	carts
	release chan struct{}
	waits   sync.WaitGroup // for as many statements as may wait at once
	briefly sync.Once
}

func (e *lockedSKUs) Move(_ context.Context, fn func(driver.MoveTx) error) error { return fn(e) }

func (e *lockedSKUs) Reservations(_ context.Context, keys []string, _ bool) (map[string][]driver.Row, map[string]bool, error) {
	recorded := make(map[string][]driver.Row)
	for _, key := range keys {
		if key != "unknown" {
			recorded[key] = []driver.Row{{Key: key, SKU: key, Qty: 1, State: int16(ReservationHeld), Left: time.Hour}}
		}
	}
	return recorded, nil, nil
}

func (e *lockedSKUs) Returns(_ context.Context, m driver.Moves, _, wait bool) (map[driver.Quota]bool, map[string]bool, error) {
	free := make(map[string]bool)
	for _, sku := range m.SKUs() {
		free[sku] = true
		switch {
		case sku == "brief":
			e.briefly.Do(func() { free[sku] = false })
		case strings.HasPrefix(sku, "locked") && !wait:
			free[sku] = false
		case strings.HasPrefix(sku, "locked"):
			select {
			case <-e.release:
			default:
				e.waits.Done()
				<-e.release
			}
		}
	}
	return nil, free, nil
}

// TestAChangeWaitsForItsOwnRowsOnly: while as many statements as may wait for locked rows, and
// changes behind them, a key that is not recorded is cancelled, and so is a change whose row was
// locked for a moment.
func TestAChangeWaitsForItsOwnRowsOnly(t *testing.T) {
	t.Parallel()
	o, err := Options{Timeout: time.Minute}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	e := &lockedSKUs{release: make(chan struct{})}
	e.waits.Add(apartInFlight)
	s := newStore(e, o)
	var locked sync.WaitGroup
	for i := range 5 * apartInFlight {
		locked.Go(func() {
			if _, err := s.Cancel(t.Context(), fmt.Sprint("locked ", i)); err != nil {
				t.Error(err)
			}
		})
	}
	e.waits.Wait()
	for _, key := range []string{"unknown", "brief"} {
		if _, err := s.Cancel(t.Context(), key); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	close(e.release)
	locked.Wait()
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
