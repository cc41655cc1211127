package pginventory

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/ctxerr"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/internal/driver"
	"github.com/dblock-go/dblock/inventory/internal/link"
	"github.com/dblock-go/dblock/pglock"
)

// ReserveTx is Store.Reserve in a transaction of the caller's, a pgx.Tx or pglock.SQLTx of a
// *sql.Tx: the order is there if and when tx commits. It is never merged, and the stock stays
// locked till tx ends: other orders for that SKU wait, so reserve last, and commit soon. tx has its
// own bounds for waiting (lock_timeout). A refusal leaves it as it was. It waits for no synchronous
// standby: after a failover the order that caused it may be gone.
//
// Begin tx at READ COMMITTED; at REPEATABLE READ and above an SKU that was sold from meanwhile is a
// conflict, and one that was first stocked meanwhile is ErrUnknownSKU. An order that was recorded
// before is answered there with the state that the snapshot of tx has.
//
// Errors: those of Store.Reserve; dblock.ErrUnsupported if the client_encoding of tx is not UTF8,
// and nothing was sent; and dblock.ErrConflict after a deadlock or a failed serialization: roll tx
// back and run it again. Two transactions that reserve several SKUs one by one can deadlock; with
// ReserveAllTx they can't.
func ReserveTx(ctx context.Context, s *inventory.Store, tx pglock.Tx, r inventory.Request) (inventory.Reservation, error) {
	return link.Inventory.ReserveIn(ctx, s, driver.CallerTx{Tx: tx}, r)
}

// ReserveAllTx is ReserveTx for a cart.
func ReserveAllTx(ctx context.Context, s *inventory.Store, tx pglock.Tx, c inventory.Cart) (inventory.Reservation, error) {
	return link.Inventory.ReserveAllIn(ctx, s, driver.CallerTx{Tx: tx}, c)
}

// Tx returns a caller's transaction.
func (d *database) Tx(tx driver.CallerTx) (driver.Tx, bool) {
	caller, ours := tx.Tx.(pglock.Tx)
	if !ours { // a nil one is none, either
		return nil, false
	}
	return callerTx{d, d.OnHost(caller)}, true
}

type callerTx struct {
	d  *database
	on pgdb.DBTX
}

func (t callerTx) Decide(ctx context.Context, ask driver.ReadRequest, decide func(driver.Books) (driver.Plan, bool, error)) error {
	return t.below(ctx, func() error { return t.decide(ctx, ask, decide) })
}

// Due reads below a savepoint: a statement timeout of the caller's must not end the transaction.
func (t callerTx) Due(ctx context.Context, buyers []string, limit int) (due []driver.Due, err error) {
	err = t.below(ctx, func() (err error) {
		due, err = t.d.due(ctx, t.on, buyers, limit)
		return err
	})
	return due, err
}

func (t callerTx) Move(ctx context.Context, fn func(driver.MoveTx) error) error {
	return t.below(ctx, func() error { return sqlerr.Unwritten(fn(&moveTx{send: oneByOne(t.on)})) })
}

// below runs fn below a savepoint. One below another is ended before that, so that the same name
// will do.
func (t callerTx) below(ctx context.Context, fn func() error) error {
	if _, err := t.on.Exec(ctx, "savepoint dblock_reserve"); err != nil {
		if errors.Is(err, pgx.ErrTxClosed) || errors.Is(err, sql.ErrTxDone) || postgres.Code(err) == postgres.CodeNoTransaction {
			return driver.ErrTxEnded
		}
		return sqlerr.Unwritten(err)
	}
	err := fn()
	if err == nil {
		_, err = t.on.Exec(ctx, "release savepoint dblock_reserve")
		return sqlerr.Unwritten(err)
	}
	if postgres.Code(err) == postgres.CodeReadOnlyTransaction {
		err = fmt.Errorf("%w: %w", driver.ErrTxReadOnly, err)
	}
	ending, cancel := postgres.Ending(ctx)
	defer cancel()
	for _, end := range []string{"rollback to savepoint dblock_reserve", "release savepoint dblock_reserve"} {
		if _, failed := t.on.Exec(ending, end); failed != nil {
			if err == errNothing { // the refusal is right, and its transaction is of no use
				err = ctxerr.Of(ctx)
			}
			return errors.Join(err, failed)
		}
	}
	if err == errNothing {
		return nil
	}
	return err
}

// errNothing rolls back what was locked for a plan of nothing.
var errNothing = errors.New("pginventory: there is nothing to write")

func (t callerTx) decide(ctx context.Context, ask driver.ReadRequest, decide func(driver.Books) (driver.Plan, bool, error)) error {
	send := oneByOne(t.on)
	for {
		books, err := t.d.read(ctx, send, t.on, nil, ask)
		if err != nil {
			return sqlerr.Unwritten(err)
		}
		switch plan, again, err := decide(books); {
		case err != nil:
			return err
		case again:
		case len(plan.Insert) == 0:
			if err := t.d.confirm(ctx, t.on, books); err != nil {
				return sqlerr.Unwritten(err)
			}
			return errNothing
		default:
			var trip statements
			trip.addPlan(plan)
			return sqlerr.Unwritten(send(ctx, trip))
		}
	}
}
