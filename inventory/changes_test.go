package inventory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/sqlerr"

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

// openKeys is a driver that has no reservation. Another transaction writes the keys "open …" until
// closed is set.
type openKeys struct {
	carts
	closed atomic.Bool
}

var errOpen = errors.New("another transaction writes the key")

func (*openKeys) Failure(err error) driver.Failure {
	if errors.Is(err, errOpen) {
		return driver.Failure{Class: sqlerr.Busy}
	}
	return driver.Failure{}
}

func (e *openKeys) Move(_ context.Context, fn func(driver.MoveTx) error) error { return fn(e) }

func (e *openKeys) Write(ctx context.Context, m driver.Moves) error {
	for _, row := range m.Insert {
		if strings.HasPrefix(row.Key, "open") && !e.closed.Load() {
			time.Sleep(driver.LockWaitOf(ctx))
			return errOpen
		}
	}
	return nil
}

// TestOpenKeysDelayOtherKeysLittle: another transaction writes 500 keys, which are cancelled. Then
// an unknown key is cancelled within a fraction of Timeout. When the transaction has ended without
// a commit, the 500 are cancelled, too.
func TestOpenKeysDelayOtherKeysLittle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, err := Options{}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		e := &openKeys{}
		s := newStore(e, o)
		var open sync.WaitGroup
		for i := range 500 {
			open.Go(func() {
				if _, err := s.Cancel(t.Context(), fmt.Sprint("open ", i)); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		for range 3 {
			began := time.Now()
			if _, err := s.Cancel(t.Context(), "unknown"); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took > o.Timeout/5 {
				t.Errorf("an unknown key was cancelled after %v", took)
			}
		}
		e.closed.Store(true)
		open.Wait()
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestOpenKeysAreRemembered: another transaction writes 300 keys. Callers that cancel them after
// others have found them open do not delay the cancellation of an unknown key.
func TestOpenKeysAreRemembered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, err := Options{}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		e := &openKeys{}
		s := newStore(e, o)
		var open sync.WaitGroup
		cancelAll := func() {
			for i := range 300 {
				open.Go(func() {
					if _, err := s.Cancel(t.Context(), fmt.Sprint("open ", i)); err != nil {
						t.Error(err)
					}
				})
			}
			synctest.Wait()
		}
		cancelAll()
		time.Sleep(o.Timeout / 5)
		cancelAll()
		began := time.Now()
		if _, err := s.Cancel(t.Context(), "unknown"); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 20*keyWait {
			t.Errorf("an unknown key was cancelled after %v", took)
		}
		e.closed.Store(true)
		open.Wait()
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// slowMoves is a driver that has no reservation, and takes 10 ms for each statement.
type slowMoves struct{ openKeys }

func (e *slowMoves) Move(ctx context.Context, fn func(driver.MoveTx) error) error {
	time.Sleep(10 * time.Millisecond)
	return e.openKeys.Move(ctx, fn)
}

// TestUnknownKeysAreCancelledTogether: a crowd cancels keys under which nothing is recorded.
func TestUnknownKeysAreCancelledTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, err := Options{}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		s, began := newStore(&slowMoves{}, o), time.Now()
		var all sync.WaitGroup
		for i := range 3000 {
			all.Go(func() {
				if _, err := s.Cancel(t.Context(), fmt.Sprint(i)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took > o.Timeout/20 {
			t.Errorf("they are cancelled after %v", took)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// restocks is a driver that adjusts "locked" when release is closed.
type restocks struct {
	carts
	release chan struct{}
	began   chan string // the SKU of each adjustment
}

func (*restocks) Caps() driver.Caps { return driver.Caps{Connections: 10} }

func (e *restocks) Adjust(_ context.Context, fn func(driver.AdjustTx) (bool, error)) error {
	_, err := fn(adjusts{e: e})
	return err
}

type adjusts struct {
	driver.AdjustTx
	e *restocks
}

func (adjusts) InsertAdjustment(context.Context, driver.Adjustment) error { return nil }

func (t adjusts) AdjustStock(_ context.Context, a driver.Adjustment) (bool, error) {
	t.e.began <- a.SKU
	if a.SKU == "locked" {
		<-t.e.release
	}
	return true, nil
}

// TestRestocksOfALockedSKUTakeOneConnection: the other connections are left to others.
func TestRestocksOfALockedSKUTakeOneConnection(t *testing.T) {
	t.Parallel()
	const n = 20
	o, err := Options{Timeout: time.Minute}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	e := &restocks{release: make(chan struct{}), began: make(chan string, 2*n)}
	s := newStore(e, o)
	var locked sync.WaitGroup
	for i := range n {
		locked.Go(func() {
			if _, err := s.Restock(t.Context(), Adjustment{ID: fmt.Sprint(i), SKU: "locked", Delta: 1}); err != nil {
				t.Error(err)
			}
		})
	}
	<-e.began
	if _, err := s.Restock(t.Context(), Adjustment{ID: "free", SKU: "free", Delta: 1}); err != nil {
		t.Error(err)
	}
	if sku := <-e.began; sku != "free" {
		t.Errorf("%q was adjusted beside itself", sku)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = s.Restock(ctx, Adjustment{ID: "late", SKU: "locked", Delta: 1})
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, dblock.ErrOutcomeUnknown) {
		t.Errorf("a call that ends before its turn: %v", err)
	}
	close(e.release)
	locked.Wait()
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// refuses is a driver that has any number of expired holds and takes no writes.
type refuses struct {
	carts
	sweeps atomic.Int64
}

var errReadOnly = errors.New("read-only")

func (*refuses) Failure(error) driver.Failure { return driver.Failure{Class: sqlerr.Unclassified} }

func (e *refuses) Due(_ context.Context, _ []string, limit int) (due []driver.Due, err error) {
	e.sweeps.Add(1)
	for i := range limit {
		due = append(due, driver.Due{Key: fmt.Sprint(i), Lines: 1})
	}
	return due, nil
}

func (*refuses) Move(context.Context, func(driver.MoveTx) error) error { return errReadOnly }

// TestASweeperThatFailsKeepsToItsInterval: it sweeps once in an hour.
func TestASweeperThatFailsKeepsToItsInterval(t *testing.T) {
	t.Parallel()
	o, err := Options{}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan struct{}, 1)
	o.Log = slog.New(slog.NewTextHandler(writes(func() {
		select {
		case failed <- struct{}{}:
		default:
		}
	}), nil))
	e := &refuses{}
	s := newStore(e, o)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.RunSweeper(ctx, time.Hour) }()
	<-failed
	time.Sleep(50 * time.Millisecond) // not for an event: too short only tests less
	cancel()
	<-ended
	if n := e.sweeps.Load(); n != 1 {
		t.Errorf("%d sweeps", n)
	}
}

// writes is called for each line of a log.
type writes func()

func (w writes) Write(p []byte) (int, error) {
	w()
	return len(p), nil
}

// hooked is a driver whose hooks wait for locks: of each SKU "locked …" the first one without
// success, two others until release is closed.
type hooked struct {
	carts
	release chan struct{}
	waits   sync.WaitGroup // for hooks that wait
	calls   sync.Map       // by SKU
}

func (*hooked) Caps() driver.Caps { return driver.Caps{Hooked: true} }

func (*hooked) Failure(err error) driver.Failure {
	return driver.Failure{Class: sqlerr.Busy, Locked: isHookBusy(err)}
}

func (*hooked) AwaitKeys(context.Context, []driver.Row) error { return nil }

func (e *hooked) Transact(_ context.Context, ask driver.ReadRequest, decide func(driver.Books) driver.Plan) error {
	stock := make(map[string][]driver.Bucket)
	for _, sku := range ask.SKUs {
		stock[sku] = []driver.Bucket{{Left: 100}}
	}
	plan := decide(driver.Books{Stock: stock, Skipped: func(string) bool { return false }})
	for _, row := range plan.Insert {
		if !strings.HasPrefix(row.SKU, "locked") {
			continue
		}
		calls, _ := e.calls.LoadOrStore(row.SKU, new(atomic.Int64))
		n := calls.(*atomic.Int64).Add(1)
		if n == 1 {
			return driver.HookFailed(errLocked, sqlerr.Busy)
		}
		select {
		case <-e.release:
		default:
			e.waits.Done()
			<-e.release
		}
	}
	return nil
}

// TestHooksThatWaitLeaveTheStatementsOfOthers: of as many SKUs as there may be statements the hooks
// wait, for two orders each. An order of another SKU is sold.
func TestHooksThatWaitLeaveTheStatementsOfOthers(t *testing.T) {
	t.Parallel()
	o, err := Options{Timeout: time.Minute}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	e := &hooked{release: make(chan struct{})}
	s := newStore(e, o)
	e.waits.Add(o.MaxInFlight)
	var locked sync.WaitGroup
	order := func(sku string, n int) {
		locked.Go(func() {
			if _, err := s.Reserve(t.Context(), Request{Key: fmt.Sprint(sku, n), SKU: sku, Qty: 1}); err != nil {
				t.Error(err)
			}
		})
	}
	for i := range o.MaxInFlight {
		order(fmt.Sprint("locked ", i), 1)
	}
	e.waits.Wait()
	e.waits.Add(o.MaxInFlight)
	for i := range o.MaxInFlight {
		order(fmt.Sprint("locked ", i), 2)
	}
	e.waits.Wait()
	if _, err := s.Reserve(t.Context(), Request{Key: "free", SKU: "free", Qty: 1}); err != nil {
		t.Error(err)
	}
	close(e.release)
	locked.Wait()
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
