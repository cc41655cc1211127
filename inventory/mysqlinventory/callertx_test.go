package mysqlinventory_test

import (
	"context"
	"database/sql"

	inventorysuite "github.com/dblock-go/dblock/internal/conformance/inventory"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/mysqlinventory"
)

// callers are the forms of a caller's transaction.
var callers = map[string]func(context.Context, string, sql.IsolationLevel) (*inventorysuite.CallerTx, error){"sql.Tx": begin}

func begin(ctx context.Context, dsn string, level sql.IsolationLevel) (*inventorysuite.CallerTx, error) {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return nil, err
	}
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
	if err != nil {
		_ = db.Close()
		return nil, err
	}
	return &inventorysuite.CallerTx{
		Reserve: func(ctx context.Context, s *inventory.Store, r inventory.Request) (inventory.Reservation, error) {
			return mysqlinventory.ReserveTx(ctx, s, tx, r)
		},
		ReserveAll: func(ctx context.Context, s *inventory.Store, c inventory.Cart) (inventory.Reservation, error) {
			return mysqlinventory.ReserveAllTx(ctx, s, tx, c)
		},
		Exec: func(ctx context.Context, statement string) error {
			_, err := tx.ExecContext(ctx, statement)
			return err
		},
		Commit:   func(context.Context) error { return tx.Commit() },
		Rollback: func(context.Context) error { return tx.Rollback() },
		Close:    func() { _ = tx.Rollback(); _ = db.Close() },
	}, nil
}
