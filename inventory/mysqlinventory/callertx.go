package mysqlinventory

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/ctxerr"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/internal/driver"
	"github.com/dblock-go/dblock/inventory/internal/link"
)

// ReserveTx is Store.Reserve in a transaction of the caller's: the order is there if and when tx
// commits. It is never merged, and the stock stays locked till tx ends, even after a refusal: other
// orders for that SKU wait, so reserve last, and end soon. tx has its own bounds for waiting
// (innodb_lock_wait_timeout). A refusal writes nothing. One goroutine at a time may use tx.
//
// Begin tx at READ COMMITTED. At REPEATABLE READ and above the server also locks gaps between rows:
// orders of other SKUs and buyers may wait until tx ends, even after a refusal. An order that
// another process has recorded since tx first read is dblock.ErrConflict then, as is an SKU that
// was sold from on MariaDB with innodb_snapshot_isolation. An order that was recorded before is
// answered with the state that the snapshot of tx has: a hold that was cancelled since is still
// held there.
//
// Errors: those of Store.Reserve, and dblock.ErrConflict after a deadlock or a failed
// serialization: roll tx back and run it again. Two transactions that reserve several SKUs one by
// one can deadlock; with ReserveAllTx they can't. dblock.ErrTxEnded if a statement or an error that
// was not returned had ended the transaction: the order may be written by itself.
func ReserveTx(ctx context.Context, s *inventory.Store, tx *sql.Tx, r inventory.Request) (inventory.Reservation, error) {
	return link.Inventory.ReserveIn(ctx, s, driver.CallerTx{Tx: tx}, r)
}

// ReserveAllTx is ReserveTx for a cart.
func ReserveAllTx(ctx context.Context, s *inventory.Store, tx *sql.Tx, c inventory.Cart) (inventory.Reservation, error) {
	return link.Inventory.ReserveAllIn(ctx, s, driver.CallerTx{Tx: tx}, c)
}

// Tx returns a caller's transaction.
func (d *database) Tx(tx driver.CallerTx) (driver.Tx, bool) {
	caller, ours := tx.Tx.(*sql.Tx)
	if !ours || caller == nil {
		return nil, false
	}
	return callerTx{d, d.db.OnCaller(caller)}, true
}

type callerTx struct {
	d  *database
	on mysqldb.DBTX
}

// Decide writes below a savepoint.
func (t callerTx) Decide(ctx context.Context, ask driver.ReadRequest, decide func(driver.Books) (driver.Plan, bool, error)) error {
	return t.below(ctx, "dblock_reserve", func() error { return t.decide(ctx, ask, decide) })
}

// Due reads below no savepoint: it writes nothing.
func (t callerTx) Due(ctx context.Context, buyers []string, limit int) ([]driver.Due, error) {
	return t.d.due(ctx, t.on, buyers, limit)
}

func (t callerTx) Move(ctx context.Context, fn func(driver.MoveTx) error) error {
	return t.below(ctx, "dblock_sweep", func() error { return sqlerr.Unwritten(fn(&moveTx{d: t.d, on: t.on})) })
}

// below runs fn below a savepoint. Another one of the same name would replace it. After a deadlock
// the server has rolled back all of the transaction, and there is none.
func (t callerTx) below(ctx context.Context, savepoint string, fn func() error) error {
	if _, err := t.on.ExecContext(ctx, "SAVEPOINT "+savepoint); err != nil {
		if errors.Is(err, sql.ErrTxDone) {
			return driver.ErrTxEnded
		}
		return sqlerr.Unwritten(err)
	}
	err := fn()
	if err == nil {
		if _, err = t.on.ExecContext(ctx, "RELEASE SAVEPOINT "+savepoint); mysql.IsNoSavepoint(err) {
			return errNoTx(err)
		}
		return sqlerr.Unwritten(err)
	}
	if mysql.Classify(err) == sqlerr.Retryable {
		return err
	}
	switch {
	case mysql.IsLocked(err):
		err = &bounded{err}
	case mysql.ErrorNumber(err) == mysql.ReadOnlyTransaction:
		err = fmt.Errorf("%w: %w", driver.ErrTxReadOnly, err)
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if _, failed := t.on.ExecContext(ending, "ROLLBACK TO SAVEPOINT "+savepoint); mysql.IsNoSavepoint(failed) {
		return errNoTx(err)
	} else if failed != nil {
		if err == errNothing { // the refusal is right, and its transaction is of no use
			err = ctxerr.Of(ctx)
		}
		return errors.Join(err, failed)
	}
	if err == errNothing {
		return nil
	}
	return err
}

// errNothing rolls back what was swept for a plan of nothing.
var errNothing = errors.New("mysqlinventory: there is nothing to write")

// errNoTx is for a savepoint that is gone: there was no transaction, so that each statement was
// committed by itself.
func errNoTx(err error) error {
	return fmt.Errorf("%w: the server had ended the transaction, so the order may be written: look it up, and return the errors "+
		"of all statements: %w", dblock.ErrTxEnded, err)
}

func (t callerTx) decide(ctx context.Context, ask driver.ReadRequest, decide func(driver.Books) (driver.Plan, bool, error)) error {
	for {
		books, err := t.d.read(ctx, t.on, ask)
		if err != nil {
			return sqlerr.Unwritten(err)
		}
		books.Skipped = func(string) bool { return false }
		switch plan, again, err := decide(books); {
		case err != nil:
			return err
		case again:
		case len(plan.Insert) == 0:
			if err := t.isNew(ctx, ask.Keys, books); err != nil {
				return sqlerr.Unwritten(err)
			}
			return errNothing
		default:
			return sqlerr.Unwritten(write(ctx, t.on, plan))
		}
	}
}

// isNew fails if a key that is not recorded in the transaction's snapshot has been recorded since.
// The stock is read as it is now: the order would be refused as sold out because of its own units.
func (t callerTx) isNew(ctx context.Context, keys []string, books driver.Books) error {
	keys = slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return books.Recorded[key] != nil })
	now, err := lockReservations(ctx, t.on, mysqldb.LockReservations, keys)
	if err == nil && len(now) > 0 {
		return errKeyTaken
	}
	return err
}
