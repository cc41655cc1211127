package pglock_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/pglock"
)

// TestRunTxWhoseReplicaNeverCame: the server reports success, as the control takes it, with a
// warning.
func TestRunTxWhoseReplicaNeverCame(t *testing.T) {
	t.Parallel()
	server, err := devdb.Start(t.Context(), devdb.Postgres, devdb.Options{})
	if errors.As(err, new(*devdb.NotFoundError)) || err == nil && server.PID() == 0 {
		t.Log("no server of its own: a setting for all sessions can't be tried on one that is shared")
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	dsn, _, err := server.CreateDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	admin, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	for _, query := range []string{
		"CREATE TABLE t (id int)", "ALTER SYSTEM SET synchronous_standby_names = 'nobody'", "SELECT pg_reload_conf()",
	} {
		if _, err := admin.Exec(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	for watched, want := range map[bool]error{true: dblock.ErrOutcomeUnknown, false: nil} {
		if err := insertUnconfirmed(t, admin, dsn, watched); !errors.Is(err, want) {
			t.Errorf("watched %v: %v, want %v", watched, err, want)
		}
	}
	var rows int
	if err := admin.QueryRow(t.Context(), "SELECT count(*) FROM t").Scan(&rows); err != nil || rows < 2 {
		t.Errorf("%d rows, %v", rows, err)
	}
}

// insertUnconfirmed commits a transaction, whose wait for a replica is ended.
func insertUnconfirmed(t *testing.T, admin *pgxpool.Pool, dsn string, watched bool) error {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	notices := 0
	cfg.OnNotice = func(*pgconn.PgConn, *pgconn.Notice) { notices++ }
	if watched {
		pglock.WatchCommits(cfg)
	}
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var ended int64
	for ended == 0 { // the server may not have read its settings yet, and commit at once
		done := make(chan error, 1)
		go func() {
			done <- pglock.RunTx(t.Context(), conn, pglock.TxOptions{}, func(tx pgx.Tx) error {
				_, err := tx.Exec(t.Context(), "SET LOCAL synchronous_commit = on; INSERT INTO t VALUES (1)")
				return err
			})
		}()
		if ended, err = endWaits(t, admin, done); ended > 0 {
			err = <-done
		}
	}
	if notices != 1 {
		t.Errorf("the handler that was there before was told of %d notices, want 1", notices)
	}
	return err
}

// endWaits ends the sessions that wait for a replica, unless the commit is done before one waits.
func endWaits(t *testing.T, admin *pgxpool.Pool, done <-chan error) (ended int64, err error) {
	for ended == 0 {
		select {
		case err := <-done:
			return 0, err
		default:
		}
		tag, err := admin.Exec(t.Context(), "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
		if err != nil {
			t.Fatal(err)
		}
		ended = tag.RowsAffected()
	}
	return ended, nil
}

// TestRunTxOnAStandby: it refuses to write there, and reads.
func TestRunTxOnAStandby(t *testing.T) {
	t.Parallel()
	primary := testdb.Own(t, devdb.Postgres)
	if primary == nil {
		return
	}
	pool, err := pgxpool.New(t.Context(), testdb.Standby(t, primary).AdminDSN())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for _, o := range []pglock.TxOptions{{}, {Isolation: pgx.RepeatableRead}, {Isolation: pgx.Serializable}, {Isolation: pgx.Serializable, ReadOnly: true}} {
		err := pglock.RunTx(t.Context(), pool, o, func(pgx.Tx) error { return errors.New("it began") })
		if !errors.Is(err, dblock.ErrUnavailable) || !strings.Contains(err.Error(), "standby") {
			t.Errorf("%+v: %v, want it unavailable", o, err)
		}
	}
	if err := pglock.RunTx(t.Context(), pool, pglock.TxOptions{ReadOnly: true}, func(pgx.Tx) error { return nil }); err != nil {
		t.Error(err)
	}
}
