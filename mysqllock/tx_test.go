package mysqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock"
	optimisticsuite "github.com/dblock-go/dblock/internal/conformance/optimistic"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/mysqllock"
)

func TestRunTx(t *testing.T) {
	eachServer(t, func(t *testing.T, kind devdb.Kind) { optimisticsuite.Tx{Kind: kind, Open: openTx}.Run(t) })
}

func TestRunTxFaults(t *testing.T) {
	eachServer(t, func(t *testing.T, kind devdb.Kind) { optimisticsuite.Tx{Kind: kind, Open: openTx}.RunFaults(t) })
}

func openTx(_ context.Context, dsn string, dialer *faultconn.Dialer, conns int) (p optimisticsuite.TxPool, err error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return p, err
	}
	cfg.DialFunc, cfg.Logger = dialer.DialContext, &mysql.NopLogger{}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return p, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(conns)
	p.Close = func() { _ = db.Close() }
	p.Plain = func(ctx context.Context, fn func(optimisticsuite.Statements) error) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if err := fn(txStatements(ctx, tx)); err != nil {
			return err
		}
		return tx.Commit()
	}
	p.Run = func(ctx context.Context, o optimisticsuite.TxOptions, fn func(optimisticsuite.Statements) error) error {
		var on func(*sql.Tx) error
		if fn != nil {
			on = func(tx *sql.Tx) error { return fn(txStatements(ctx, tx)) }
		}
		return mysqllock.RunTx(ctx, db, mysqllock.TxOptions(o), on)
	}
	return p, nil
}

func txStatements(ctx context.Context, tx *sql.Tx) optimisticsuite.Statements {
	return optimisticsuite.Statements{
		Exec: func(query string) error { _, err := tx.ExecContext(ctx, query); return err },
		Int:  func(query string) (n int, err error) { return n, tx.QueryRowContext(ctx, query).Scan(&n) },
		Lock: func(id int) error { return mysqllock.LockRow(ctx, tx, "t", "id", id, dblock.RowLock{}) },
	}
}

// TestRunTxSeesAStatementThatCommits: CREATE TABLE ends a transaction, and commits it.
func TestRunTxSeesAStatementThatCommits(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		db := testdb.MySQLOn(t, kind)
		runs := 0
		err := mysqllock.RunTx(t.Context(), db, mysqllock.TxOptions{}, func(tx *sql.Tx) error {
			runs++
			_, err := tx.ExecContext(t.Context(), "CREATE TABLE t (id int)")
			return err
		})
		if !errors.Is(err, dblock.ErrTxEnded) || runs != 1 {
			t.Errorf("%d runs, %v", runs, err)
		}
		err = mysqllock.RunTx(t.Context(), db, mysqllock.TxOptions{}, func(tx *sql.Tx) error { return tx.Commit() })
		if !errors.Is(err, dblock.ErrTxEnded) {
			t.Errorf("ended through its tx: %v", err)
		}
	}
	if err := mysqllock.RunTx(t.Context(), nil, mysqllock.TxOptions{}, nil); !errors.Is(err, dblock.ErrInvalid) {
		t.Errorf("on nothing: %v", err)
	}
}
