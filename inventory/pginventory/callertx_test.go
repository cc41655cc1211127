package pginventory_test

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // a *sql.Tx is one of the forms

	inventorysuite "github.com/dblock-go/dblock/internal/conformance/inventory"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/pginventory"
	"github.com/dblock-go/dblock/pglock"
)

// callers are the forms of a caller's transaction.
var callers = map[string]func(context.Context, string, sql.IsolationLevel) (*inventorysuite.CallerTx, error){
	"pgx.Tx": beginPgx, "sql.Tx": beginSQL,
}

func beginPgx(ctx context.Context, dsn string, level sql.IsolationLevel) (*inventorysuite.CallerTx, error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, err
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: map[sql.IsolationLevel]pgx.TxIsoLevel{
		sql.LevelReadCommitted: pgx.ReadCommitted, sql.LevelRepeatableRead: pgx.RepeatableRead, sql.LevelSerializable: pgx.Serializable,
	}[level]})
	if err != nil {
		return nil, err
	}
	c := callerOf(tx)
	c.Commit, c.Rollback = tx.Commit, tx.Rollback
	c.Close = func() { _ = conn.Close(context.WithoutCancel(ctx)) }
	return c, nil
}

func beginSQL(ctx context.Context, dsn string, level sql.IsolationLevel) (*inventorysuite.CallerTx, error) {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return nil, err
	}
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
	if err != nil {
		_ = db.Close()
		return nil, err
	}
	c := callerOf(pglock.SQLTx(tx))
	c.Commit = func(context.Context) error { return tx.Commit() }
	c.Rollback = func(context.Context) error { return tx.Rollback() }
	c.Close = func() { _ = tx.Rollback(); _ = db.Close() }
	return c, nil
}

func callerOf(tx pglock.Tx) *inventorysuite.CallerTx {
	return &inventorysuite.CallerTx{
		Reserve: func(ctx context.Context, s *inventory.Store, r inventory.Request) (inventory.Reservation, error) {
			return pginventory.ReserveTx(ctx, s, tx, r)
		},
		ReserveAll: func(ctx context.Context, s *inventory.Store, c inventory.Cart) (inventory.Reservation, error) {
			return pginventory.ReserveAllTx(ctx, s, tx, c)
		},
		Exec: func(ctx context.Context, statement string) error {
			_, err := tx.Exec(ctx, statement)
			return err
		},
	}
}
