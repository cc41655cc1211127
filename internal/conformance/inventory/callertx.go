package inventory

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/inventory"
)

// callers begin transactions of one form.
type callers struct {
	*env
	t  *testing.T
	of Begin
}

// begin begins a transaction at READ COMMITTED.
func (s *callers) begin() *callerTx { return s.beginAt(sql.LevelReadCommitted) }

func (s *callers) beginAt(level sql.IsolationLevel) *callerTx {
	s.t.Helper()
	tx := suite.Must(s.of(s.t.Context(), s.DSN, level))(s.t)
	s.t.Cleanup(tx.Close)
	return &callerTx{tx, s}
}

// callerTx reserves in a caller's transaction.
type callerTx struct {
	*CallerTx
	s *callers
}

func (tx *callerTx) order(r inventory.Request) (inventory.Reservation, error) {
	return tx.Reserve(tx.s.t.Context(), tx.s.Store, r)
}

func (tx *callerTx) cart(c inventory.Cart) (inventory.Reservation, error) {
	return tx.ReserveAll(tx.s.t.Context(), tx.s.Store, c)
}

// sells fails unless the order is new, and sold or held.
func (tx *callerTx) sells(r inventory.Request) {
	tx.s.t.Helper()
	res, err := tx.order(r)
	assert.True(tx.s.t, err == nil && !res.Replayed, "%s: %+v, %v", r.Key, res, err)
}

// refuses fails unless the order is refused with an error.
func (tx *callerTx) refuses(r inventory.Request, want error) {
	tx.s.t.Helper()
	assert.ErrorIs(tx.s.t, suite.Second(tx.order(r)), want, r.Key)
}

func (tx *callerTx) exec(statement string) {
	tx.s.t.Helper()
	require.NoError(tx.s.t, tx.Exec(tx.s.t.Context(), statement), statement)
}

func (tx *callerTx) commit() { tx.s.t.Helper(); require.NoError(tx.s.t, tx.Commit(tx.s.t.Context())) }

func (tx *callerTx) rollback() {
	tx.s.t.Helper()
	require.NoError(tx.s.t, tx.Rollback(tx.s.t.Context()))
}

// ACallersTxOutlivesARefusal has orders refused in every way: the transaction commits.
func (callerTests) ACallersTxOutlivesARefusal(t *testing.T, s *callers) {
	s.stock(t, "sale", 5)
	s.sells(t, order("before", "sale", 1))
	require.NoError(t, suite.Second(s.Cancel(t.Context(), "cancelled")))
	tx := s.begin()
	for i, c := range []struct {
		r    inventory.Request
		want error
	}{
		{order("big", "sale", 5), inventory.ErrSoldOut},
		{order("unknown", "nonsense", 1), inventory.ErrUnknownSKU},
		{inventory.Request{Key: "limited", SKU: "sale", Buyer: "ann", Qty: 2, Limit: 1}, inventory.ErrLimitExceeded},
		{order("before", "sale", 3), inventory.ErrKeyReused},
		{order("", "sale", 1), dblock.ErrInvalid},
		{order("cancelled", "sale", 1), inventory.ErrCancelled},
	} {
		tx.refuses(c.r, c.want)
		if i%2 == 0 {
			tx.sells(order(fmt.Sprintf("after %d", i), "sale", 1))
		}
	}
	assert.ErrorIs(t, suite.Second(tx.cart(inventory.Cart{Key: "cart"})), dblock.ErrInvalid)
	r, err := tx.order(order("before", "sale", 1))
	assert.True(t, err == nil && r.Replayed, "what was sold before: %+v, %v", r, err)
	tx.commit()
	s.wantsBooks(t, "sale", 1, 0, 4)
	s.sound(t)
}

// ACallersTxMeetsOthers has a transaction wait longer than it may for another one, for the stock
// and for a limit. It gets ErrBusy, and goes on.
func (callerTests) ACallersTxMeetsOthers(t *testing.T, s *callers) {
	s.stock(t, "sale", 6)
	bound := "SET innodb_lock_wait_timeout = 1"
	if s.Postgres() {
		bound = "SET LOCAL lock_timeout = '100ms'"
	}
	for what, r := range map[string]inventory.Request{
		"stock": {SKU: "sale", Buyer: "bob", Qty: 1},
		"limit": {SKU: "gift", Buyer: "ann", Qty: 1, Limit: 5, Unstocked: true},
	} {
		first, second := s.begin(), s.begin()
		named := func(key string) inventory.Request { r.Key = what + " " + key; return r }
		s.sells(t, named("before"))
		first.sells(named("first"))
		second.exec(bound)
		second.refuses(named("second"), dblock.ErrBusy)
		first.rollback()
		second.sells(named("second"))
		second.commit()
	}
	s.sound(t)
}

// ACallersTxNeverSellsOnWhatItSawFirst has a transaction read before others sell, at every level:
// its order meets a conflict, or gets the answer that is right by then.
func (callerTests) ACallersTxNeverSellsOnWhatItSawFirst(t *testing.T, s *callers) {
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		for _, meanwhile := range []string{"the order itself", "another one", "nothing"} {
			sku := fmt.Sprintf("%v, %s", level, meanwhile)
			s.stock(t, sku, 1)
			tx := s.beginAt(level)
			if level != sql.LevelSerializable || s.Postgres() { // elsewhere this would lock what it reads
				tx.exec("SELECT count(*) FROM dblock_reservation")
			} else {
				tx.exec("DO 1")
			}
			r := order("of "+sku, sku, 1)
			switch meanwhile {
			case "the order itself":
				s.sells(t, r)
			case "another one":
				s.sells(t, order("another of "+sku, sku, 1))
			}
			res, err := tx.order(r)
			switch conflict := errors.Is(err, dblock.ErrConflict); {
			case conflict && level != sql.LevelReadCommitted && meanwhile != "nothing":
			case meanwhile == "another one":
				assert.ErrorIs(t, err, inventory.ErrSoldOut, sku)
			default:
				assert.NoError(t, err, sku)
				assert.Equal(t, meanwhile == "the order itself", res.Replayed, sku)
			}
			if err != nil {
				tx.rollback()
			} else {
				tx.commit()
			}
			s.wantsBooks(t, sku, 0, 0, 1)
		}
	}
	s.sound(t)
}

// ACallersTxThatIsNone has ended or is read-only, or its Store is closed: nothing is sold.
func (callerTests) ACallersTxThatIsNone(t *testing.T, s *callers) {
	s.stock(t, "sale", 5)
	s.stock(t, "by a statement", 5) // where the server commits each statement by itself then, one is sold
	ended := func(tx *callerTx, how string) {
		sku := "sale"
		if how == "by a statement" {
			sku = how
		}
		res, err := tx.order(order(how, sku, 1))
		var invalid *dblock.InvalidError
		is := errors.As(err, &invalid) && invalid.Field == "tx" || how == sku && errors.Is(err, dblock.ErrTxEnded)
		assert.True(t, is, "%s: %+v, %v", how, res, err)
	}
	tx := s.begin()
	tx.commit()
	ended(tx, "committed")
	tx = s.begin()
	tx.rollback()
	ended(tx, "rolled back")
	tx = s.begin()
	tx.exec("ROLLBACK") // which the driver does not know
	ended(tx, "by a statement")
	_ = tx.Rollback(t.Context())

	reader := s.begin()
	if s.Postgres() {
		reader.exec("SET TRANSACTION READ ONLY")
	} else {
		reader.exec("COMMIT")
		reader.exec("START TRANSACTION READ ONLY")
	}
	reader.refuses(order("read-only", "sale", 1), dblock.ErrInvalid)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.Error(t, suite.Second(s.begin().Reserve(ctx, s.Store, order("given up", "sale", 1))))
	store := s.open(t, s.o)
	require.NoError(t, store.Close(t.Context()))
	assert.ErrorIs(t, suite.Second(s.begin().Reserve(t.Context(), store, order("closed", "sale", 1))), dblock.ErrClosed)
	s.wantsBooks(t, "sale", 5, 0, 0)
}

// ACallersTxCountsNoExpiredHold has a buyer whose holds have expired order as much again in a
// caller's transaction. What that sweeps comes back if it is rolled back. A hold that another
// transaction has locked can't be swept, and does not refuse the order either.
func (callerTests) ACallersTxCountsNoExpiredHold(t *testing.T, s *callers) {
	s.stock(t, "sale", 100)
	s.stock(t, "other", 100)
	hold := func(key string) inventory.Request {
		r := withLimit(key, "sale")
		r.Buyer = "ann"
		return r
	}
	lines := []inventory.Line{{SKU: "other", Qty: 1}, {SKU: "sale", Qty: 1, Limit: 2}}
	a := inventory.Cart{Key: "a", Buyer: "ann", Hold: time.Hour, Lines: lines}
	require.NoError(t, suite.Second(s.ReserveAll(t.Context(), a)))
	s.sells(t, hold("b"))
	s.isDue(t, "a", "b")
	release := s.Locked(t, "SELECT 1 FROM dblock_reservation WHERE reservation_key = 'b' FOR UPDATE")
	lines = []inventory.Line{{SKU: "sale", Qty: 2, Limit: 2}, {SKU: "gift", Qty: 1, Unstocked: true}}
	cart := inventory.Cart{Key: "cart", Buyer: "ann", Lines: lines}
	tx := s.begin()
	assert.ErrorIs(t, suite.Second(tx.cart(cart)), dblock.ErrBusy, "beside a hold that is locked")
	tx.rollback()
	release()
	for _, name := range []string{"rolled back", "committed"} {
		tx := s.begin()
		tx.sells(hold(name + " c"))
		tx.sells(hold(name + " d"))
		tx.refuses(hold(name+" e"), inventory.ErrLimitExceeded)
		if name == "committed" {
			tx.commit()
			s.wantsBooks(t, "other", 100, 0, 0)
		} else {
			tx.rollback()
			s.wantsBooks(t, "other", 99, 1, 0)
		}
		s.wantsBooks(t, "sale", 98, 2, 0)
	}
	s.isDue(t, "committed c", "committed d")
	tx = s.begin()
	assert.NoError(t, suite.Second(tx.cart(cart)))
	tx.commit()
	s.wantsBooks(t, "sale", 98, 0, 2)
	s.sound(t)
}

// ASweepThatFailsLeavesTheTransaction has the sweep of a buyer's expired hold fail with a lock
// timeout: the order is busy, and the transaction goes on. The control has the sweep pass.
func (callerTests) ASweepThatFailsLeavesTheTransaction(t *testing.T, s *callers) {
	s.stock(t, "sale", 10)
	hold := perBuyer("hold", "sale", "ann", 1)
	hold.Hold = time.Hour
	s.sells(t, hold)
	s.isDue(t, "hold")
	drop := s.Trigger(t, "BEFORE UPDATE", "dblock_reservation", "NEW.sku = 'sale'", suite.LockTimeout(s.Kind))
	tx := s.begin()
	tx.refuses(perBuyer("again", "sale", "ann", 1), dblock.ErrBusy)
	tx.sells(perBuyer("other", "sale", "bob", 1))
	tx.commit()
	drop()
	tx = s.begin()
	tx.sells(perBuyer("again", "sale", "ann", 1))
	tx.commit()
	s.wantsBooks(t, "sale", 8, 0, 2)
	s.sound(t)
}
