package inventory

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/inventory"
)

// controlSellsTwice shows that the cuts find what they are for: the same ones, on code that makes
// up a new key for each attempt and takes an error for "nothing was written".
func controlSellsTwice(t *testing.T, s *env) {
	var twice, falselyNot atomic.Int64
	suite.Everywhere(t, []suite.Cut{{Mode: faultconn.CutBefore}, {Mode: faultconn.CutAfter}, {Mode: faultconn.Late}}, func(c suite.Cut, k int) (bool, error) {
		sku := fmt.Sprintf("%v %d", c, k)
		if _, err := s.Restock(t.Context(), inventory.Adjustment{ID: sku, SKU: sku, Delta: 10}); err != nil {
			return false, err
		}
		var dialer faultconn.Dialer
		db, err := suite.ConnectOn(s.e.Kind, s.dsn, &dialer)
		if err == nil {
			err = db.PingContext(t.Context())
		}
		if err != nil {
			return false, err
		}
		dialer.Arm(k, c.Mode, nil)
		first := naiveSale(t.Context(), db, s.e.Kind, sku)
		struck := dialer.Disarm()
		dialer.Release()
		if first != nil { // the server has ended the transaction when another gets the row
			if err := naiveSale(t.Context(), db, s.e.Kind, sku); err != nil {
				return struck, err
			}
		}
		books, err := s.Audit(t.Context(), sku)
		if closeErr := db.Close(); !struck { // a connection that was struck after the sale can't be closed in peace
			err = errors.Join(err, closeErr)
		}
		if err != nil {
			return struck, err
		}
		if books[0].Sold > 1 {
			twice.Add(1)
			if c.Mode == faultconn.Late {
				falselyNot.Add(1)
			}
		}
		if books[0].Drift() != 0 {
			err = fmt.Errorf("the control is to be wrong in one thing only: %+v", books[0])
		}
		return struck, err
	})
	t.Logf("the control sold %d orders twice, %d of them as the commit came late", twice.Load(), falselyNot.Load())
	if twice.Load() <= falselyNot.Load() || falselyNot.Load() == 0 {
		t.Error("the control has done nothing wrong: the tests of cuts could not fail")
	}
}

// naiveSale is what is so often written by hand.
func naiveSale(ctx context.Context, db *sql.DB, kind devdb.Kind, sku string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, fmt.Sprintf(
		"INSERT INTO dblock_reservation (reservation_key, sku, buyer, qty, state) VALUES ('%s', '%s', '', 1, 2)", rand.Text(), sku)); err != nil {
		return err
	}
	res, err := tx.ExecContext(ctx, fmt.Sprintf(
		"UPDATE dblock_stock SET available = available - 1 WHERE sku = '%s' AND available >= 1", sku))
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n != 1 {
		return errors.Join(fmt.Errorf("%s: %d rows", kind, n), err)
	}
	return tx.Commit()
}
