package inventory

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/inventory"
)

// leaveAllotment puts 3 of 10 units of an SKU into the allotment of a process that is gone.
func (s *env) leaveAllotment(t *testing.T, number int, sku string) {
	t.Helper()
	s.stock(t, sku, 10)
	s.exec(t, fmt.Sprintf("UPDATE dblock_stock SET available = 7 WHERE sku = '%s'", sku))
	s.exec(t, fmt.Sprintf("INSERT INTO dblock_stock (sku, bucket, available) VALUES ('%s', %d, 3)", sku, 1048576+number))
}

// allotted is what of an SKU is in allotments.
func (s *env) allotted(t *testing.T, sku string) int64 {
	t.Helper()
	return s.count(t, fmt.Sprintf("SELECT CAST(COALESCE(SUM(available), 0) AS DECIMAL(20)) FROM dblock_stock WHERE bucket >= 1048576 AND sku = '%s'", sku))
}

// aLeftAllotmentStopsNoSweep has one SKU of a dead process's allotment locked or refused, or the
// allotment's lease locked, or the table of leases missing. A hold on another SKU is swept by the same
// call, and the other SKUs and allotments are given back. That one is given back afterwards.
func aLeftAllotmentStopsNoSweep(t *testing.T, s *env) {
	for name, c := range map[string]struct {
		begin func(t *testing.T, s *env) (end func())
		stays string // SKUs that stay in allotments meanwhile
		is    error
		says  string
	}{
		"control":    {func(*testing.T, *env) func() { return func() {} }, "", nil, ""},
		"its stock":  {func(t *testing.T, s *env) func() { return s.lockSKUs(t, []string{"bad"}) }, "bad", nil, ""},
		"its bucket": {lockBadBucket, "bad", nil, ""},
		"its lease":  {lockBadLease, "bad beside", dblock.ErrBusy, ""},
		"a trigger":  {refuseBad, "bad", inventory.ErrRejected, `"bad"`},
		"all leases": {hideLeases, "bad beside elsewhere", dblock.ErrSchema, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := s.e.env(t, s.o)
			t.Cleanup(func() { _ = s.Close(context.WithoutCancel(t.Context())) })
			s.stock(t, "sale", 10)
			s.leaveAllotment(t, 4, "first")
			if _, err := s.openClosed(t, s.o).Sweep(t.Context(), 1); err != nil { // it makes the lease
				t.Fatal(err)
			}
			s.leaveAllotment(t, 4, "bad")
			s.leaveAllotment(t, 4, "beside")
			s.leaveAllotment(t, 5, "elsewhere")
			s.sells(t, held("due", "sale"))
			s.isDue(t, "due")
			end := c.begin(t, s)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			swept, err := s.Sweep(ctx, 10)
			if swept != 1 || !errors.Is(err, c.is) || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("swept %d: %v, want 1 and %v of %s", swept, err, c.is, c.says)
			}
			for _, sku := range []string{"bad", "beside", "elsewhere"} {
				if n, stays := s.allotted(t, sku), strings.Contains(c.stays, sku); (n == 3) != stays || n != 0 && n != 3 {
					t.Errorf("%d units of %q are allotted, want them to stay: %v", n, sku, stays)
				}
			}
			end()
			suite.Until(t, "all is given back", func() bool {
				if _, err := s.Sweep(t.Context(), 10); err != nil {
					t.Fatal(err)
				}
				return s.allotted(t, "bad")+s.allotted(t, "beside")+s.allotted(t, "elsewhere") == 0
			})
			s.sound(t)
		})
	}
}

func lockBadBucket(t *testing.T, s *env) func() {
	return s.lockRows(t, "SELECT 1 FROM dblock_stock WHERE sku = 'bad' AND bucket = 1048580 FOR UPDATE")
}

func lockBadLease(t *testing.T, s *env) func() {
	return s.lockRows(t, "SELECT 1 FROM dblock_lease WHERE lease_key = 'dblock allotment 4' FOR UPDATE")
}

func refuseBad(t *testing.T, s *env) func() {
	if s.e.Kind == devdb.Postgres {
		s.exec(t, "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''frozen''; END'")
		s.exec(t, "CREATE TRIGGER refuse AFTER UPDATE ON dblock_stock FOR EACH ROW WHEN (new.sku = 'bad') EXECUTE FUNCTION refuse()")
		return func() { s.exec(t, "DROP TRIGGER refuse ON dblock_stock") }
	}
	s.exec(t, "CREATE TRIGGER refuse BEFORE UPDATE ON dblock_stock FOR EACH ROW IF new.sku = 'bad' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'frozen'; END IF")
	return func() { s.exec(t, "DROP TRIGGER refuse") }
}

func hideLeases(t *testing.T, s *env) func() {
	s.exec(t, "ALTER TABLE dblock_lease RENAME TO hidden")
	return func() { s.exec(t, "ALTER TABLE hidden RENAME TO dblock_lease") }
}

// allot sells units of an SKU until the Store has an allotment of it. On a busy machine the first try
// may take too long.
func (s *env) allot(t *testing.T, store *inventory.Store, sku string) {
	t.Helper()
	s.stock(t, sku, 1000)
	n := 0
	suite.Until(t, "it has an allotment", func() bool {
		n++
		if _, err := store.Reserve(t.Context(), order(fmt.Sprint(sku, " ", n), sku, 1)); err != nil {
			t.Fatal(err)
		}
		return s.allotted(t, sku) > 0
	})
}

// closesBesideALockedSKU closes a Store with allotments of three SKUs, the first of which is locked:
// the others are given back, and the error names the one.
func closesBesideALockedSKU(t *testing.T, s *env) {
	store := s.open(t, inventory.Options{Allotment: 5, Timeout: frozenTimeout})
	skus := named("sale", 3)
	for _, sku := range skus {
		s.allot(t, store, sku)
	}
	letGo := s.lockSKUs(t, skus[:1])
	err := store.Close(t.Context())
	if !errors.Is(err, dblock.ErrBusy) || !strings.Contains(err.Error(), skus[0]) {
		t.Errorf("Close: %v, want ErrBusy of %s", err, skus[0])
	}
	letGo()
	for i, sku := range skus {
		if n := s.allotted(t, sku); (n > 0) != (i == 0) {
			t.Errorf("%s: %d units are allotted after Close", sku, n)
		}
	}
	s.sound(t)
}

// closesBesideASilentSweep has the network fall silent at each of the first calls of a Store's first
// Sweep, which opens its Locker. Close ends with its context, and the Sweep after Options.Timeout.
func closesBesideASilentSweep(t *testing.T, s *env) {
	const silentCalls = 12
	s.allot(t, s.openClosed(t, inventory.Options{Allotment: 5}), "sale")
	sweep := func(k int) (struck bool) {
		d := &faultconn.Dialer{}
		store, closePool, err := s.e.OpenOn(t.Context(), s.dsn, d, inventory.Options{Timeout: suite.CutTimeout})
		if err != nil {
			t.Error(err)
			return false
		}
		defer closePool()
		defer d.CloseAll() // the pool would wait for the silent ones
		hit, ended := make(chan struct{}), make(chan struct{})
		d.Arm(k, faultconn.HookBefore, func() {
			d.Arm(1, faultconn.Stall, nil)
			close(hit)
		})
		go func() {
			defer close(ended)
			_, _ = store.Sweep(context.Background(), 10)
		}()
		select {
		case <-hit:
			struck = true
		case <-ended:
		}
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			_ = store.Close(ctx)
		}()
		for what, end := range map[string]chan struct{}{"Close": closed, "Sweep": ended} {
			select {
			case <-end:
			case <-time.After(20 * time.Second):
				t.Errorf("silent from call %d on, %s hangs", k, what)
			}
		}
		return struck
	}
	var wave sync.WaitGroup
	var struck atomic.Int64
	for k := range silentCalls { // the calls of the opening are among the first
		wave.Go(func() {
			if sweep(k + 1) {
				struck.Add(1)
			}
		})
	}
	if wave.Wait(); struck.Load() != silentCalls {
		t.Errorf("the network fell silent in %d of %d sweeps", struck.Load(), silentCalls)
	}
}
