package pglock_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	optimisticsuite "github.com/dblock-go/dblock/internal/conformance/optimistic"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/pglock"
)

func TestRunTx(t *testing.T) {
	t.Parallel()
	optimisticsuite.Tx{Kind: devdb.Postgres, Open: openTx}.Run(t)
}

func TestRunTxFaults(t *testing.T) {
	t.Parallel()
	optimisticsuite.Tx{Kind: devdb.Postgres, Open: openTx}.RunFaults(t)
}

func openTx(ctx context.Context, dsn string, dialer *faultconn.Dialer, conns int) (p optimisticsuite.TxPool, err error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return p, err
	}
	cfg.ConnConfig.DialFunc, cfg.MaxConns = dialer.DialContext, int32(conns)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return p, err
	}
	isolation := map[sql.IsolationLevel]pgx.TxIsoLevel{
		sql.LevelReadCommitted: pgx.ReadCommitted, sql.LevelRepeatableRead: pgx.RepeatableRead, sql.LevelSerializable: pgx.Serializable,
		sql.LevelLinearizable: "linearizable",
	}
	p.Close = pool.Close
	p.Plain = func(ctx context.Context, fn func(optimisticsuite.Statements) error) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return fn(txStatements(ctx, tx)) })
	}
	p.Run = func(ctx context.Context, o optimisticsuite.TxOptions, fn func(optimisticsuite.Statements) error) error {
		var on func(pgx.Tx) error
		if fn != nil {
			on = func(tx pgx.Tx) error { return fn(txStatements(ctx, tx)) }
		}
		return pglock.RunTx(ctx, pool, pglock.TxOptions{
			Isolation: isolation[o.Isolation], ReadOnly: o.ReadOnly, Attempts: o.Attempts, OnRetry: o.OnRetry,
		}, on)
	}
	return p, nil
}

func txStatements(ctx context.Context, tx pgx.Tx) optimisticsuite.Statements {
	return optimisticsuite.Statements{
		Exec: func(query string) error { _, err := tx.Exec(ctx, query); return err },
		Int:  func(query string) (n int, err error) { return n, tx.QueryRow(ctx, query).Scan(&n) },
		Lock: func(id int) error { return pglock.LockRow(ctx, tx, "t", "id", id, dblock.RowLock{}) },
		Named: func(key string) error {
			if err := pglock.LockTx(ctx, tx, dblock.NoWait(), pglock.KeyOf("try", key)); err != nil {
				return err
			}
			return pglock.LockTx(ctx, tx, dblock.WaitAtMost(time.Second), pglock.KeyOf("", key))
		},
	}
}

// TestRunTxOfAFailedStatement: Postgres takes COMMIT for ROLLBACK then, and says so.
func TestRunTxOfAFailedStatement(t *testing.T) {
	t.Parallel()
	pool := testdb.Postgres(t)
	err := pglock.RunTx(t.Context(), pool, pglock.TxOptions{}, func(tx pgx.Tx) error {
		_, _ = tx.Exec(t.Context(), "SELECT 1/0")
		return nil
	})
	if !errors.Is(err, dblock.ErrTxEnded) || !errors.Is(err, pgx.ErrTxCommitRollback) {
		t.Errorf("got %v", err)
	}
}

// TestRunTxBegunAnew: the transaction that is there at the end is not the one that was begun.
func TestRunTxBegunAnew(t *testing.T) {
	t.Parallel()
	pool := testdb.Postgres(t)
	if _, err := pool.Exec(t.Context(), "CREATE TABLE t (name text)"); err != nil {
		t.Fatal(err)
	}
	for _, anew := range []string{"ROLLBACK AND CHAIN", "COMMIT AND CHAIN", "ROLLBACK; BEGIN"} {
		err := pglock.RunTx(t.Context(), pool, pglock.TxOptions{}, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), anew); err != nil {
				return err
			}
			_, err := tx.Exec(t.Context(), "INSERT INTO t VALUES ($1)", anew)
			return err
		})
		if !errors.Is(err, dblock.ErrTxEnded) {
			t.Errorf("%s: %v", anew, err)
		}
	}
	var rows int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM t").Scan(&rows); err != nil || rows != 0 {
		t.Errorf("%d rows, %v", rows, err)
	}
	for _, o := range []pglock.TxOptions{{Isolation: pgx.Serializable, ReadOnly: true, Deferrable: true}, {Isolation: pgx.RepeatableRead}} {
		err := pglock.RunTx(t.Context(), pool, o, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), "SET TRANSACTION READ ONLY; SELECT 1")
			return err
		})
		if err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// TestRunTxEndedThroughItsTx: its Commit and Rollback are RunTx's.
func TestRunTxEndedThroughItsTx(t *testing.T) {
	t.Parallel()
	pool := testdb.Postgres(t)
	for name, end := range map[string]func(pgx.Tx) error{
		"Commit":   func(tx pgx.Tx) error { return tx.Commit(t.Context()) },
		"Rollback": func(tx pgx.Tx) error { return tx.Rollback(t.Context()) },
	} {
		if err := pglock.RunTx(t.Context(), pool, pglock.TxOptions{}, end); !errors.Is(err, dblock.ErrTxEnded) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRunTxOfADeferredConstraint: what a COMMIT is refused for comes as it is.
func TestRunTxOfADeferredConstraint(t *testing.T) {
	t.Parallel()
	pool := testdb.Postgres(t)
	err := pglock.RunTx(t.Context(), pool, pglock.TxOptions{}, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "CREATE TABLE t (id int UNIQUE DEFERRABLE INITIALLY DEFERRED); INSERT INTO t VALUES (1), (1)")
		return err
	})
	var server *pgconn.PgError
	if !errors.As(err, &server) || server.Code != "23505" || errors.Is(err, dblock.ErrOutcomeUnknown) {
		t.Errorf("got %v", err)
	}
}

// TestRunTxOnAConnection: one that is in a transaction would commit that.
func TestRunTxOnAConnection(t *testing.T) {
	t.Parallel()
	conn, err := pgx.Connect(t.Context(), testdb.PostgresURL(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	report := pglock.TxOptions{Isolation: pgx.Serializable, ReadOnly: true, Deferrable: true}
	err = pglock.RunTx(t.Context(), conn, report, func(tx pgx.Tx) error {
		var deferrable string
		if err := tx.QueryRow(t.Context(), "SHOW transaction_deferrable").Scan(&deferrable); err != nil || deferrable != "on" {
			t.Errorf("deferrable is %q, %v", deferrable, err)
		}
		err := pglock.RunTx(t.Context(), conn, pglock.TxOptions{}, func(pgx.Tx) error { return nil })
		if !errors.Is(err, dblock.ErrInvalid) {
			t.Errorf("within a transaction: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	for _, o := range []pglock.TxOptions{
		{Deferrable: true}, {Deferrable: true, ReadOnly: true}, {Deferrable: true, Isolation: pgx.Serializable},
	} {
		if err := pglock.RunTx(t.Context(), conn, o, func(pgx.Tx) error { return nil }); !errors.Is(err, dblock.ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	for _, nothing := range []pglock.TxBeginner{nil, (*pgx.Conn)(nil), (*pgxpool.Pool)(nil), (*pgxpool.Conn)(nil)} {
		err := pglock.RunTx(t.Context(), nothing, pglock.TxOptions{}, func(pgx.Tx) error { return nil })
		if !errors.Is(err, dblock.ErrInvalid) {
			t.Errorf("on %T: %v", nothing, err)
		}
	}
}

// TestRunTxOnAPoolsConnection: a transaction that the host has begun stays open, and is not
// committed.
func TestRunTxOnAPoolsConnection(t *testing.T) {
	t.Parallel()
	pool := testdb.Postgres(t)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	none := func(pgx.Tx) error { return nil }
	if err := pglock.RunTx(t.Context(), conn, pglock.TxOptions{}, none); err != nil {
		t.Errorf("outside of a transaction: %v", err)
	}
	execute(t, pool, "CREATE TABLE written (n INT)")
	if _, err := conn.Exec(t.Context(), "BEGIN; INSERT INTO written VALUES (1)", pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	if err := pglock.RunTx(t.Context(), conn, pglock.TxOptions{}, none); !errors.Is(err, dblock.ErrInvalid) {
		t.Errorf("within a transaction: %v", err)
	}
	if _, err := conn.Exec(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	var rows int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM written").Scan(&rows); err != nil || rows != 0 {
		t.Errorf("%d rows were committed, %v", rows, err)
	}
}
