package pglock_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/pglock"
)

// TestClaimReadsRows into what pgx can, through database/sql, too; with arguments, and a key that
// others refer to.
func TestClaimReadsRows(t *testing.T) {
	t.Parallel()
	ctx := soon(t)
	url := testdb.PostgresURL(t)
	db, err := sql.Open("pgx", url)
	works(t, err)
	defer func() { _ = db.Close() }()
	for _, statement := range []string{
		"CREATE TABLE seat (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), row text, price int)",
		"CREATE TABLE ticket (seat uuid REFERENCES seat)",
		"INSERT INTO seat (row, price) SELECT 'A', n FROM generate_series(1, 9) n",
	} {
		_, err := db.ExecContext(ctx, statement)
		works(t, err)
	}
	type seat struct {
		ID    string
		Price int
	}
	const query = "SELECT id::text, price FROM seat WHERE row = $1 AND price > $2 ORDER BY price"
	conn, err := pgx.Connect(ctx, url)
	works(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	tx, err := conn.Begin(ctx)
	works(t, err)
	through, err := db.BeginTx(ctx, nil)
	works(t, err)
	defer func() { _ = through.Rollback() }()
	var prices []int
	for _, read := range []pgx.RowToFunc[seat]{pgx.RowToStructByName[seat], pgx.RowToStructByPos[seat]} {
		for _, tx := range []pglock.Tx{tx, pglock.SQLTx(through)} {
			got, err := pglock.Claim(ctx, tx, dblock.RowLock{}, 2, read, query, "A", 1)
			works(t, err)
			for _, s := range got {
				prices = append(prices, s.Price)
			}
		}
	}
	// What a transaction has locked itself it finds again.
	if !slices.Equal(prices, []int{2, 3, 4, 5, 2, 3, 4, 5}) {
		t.Errorf("got %v", prices)
	}
	got, err := pglock.Claim(ctx, pglock.SQLTx(through), dblock.RowLock{}, 1, pgx.RowToMap, "SELECT price FROM seat WHERE price = 9")
	if err != nil || len(got) != 1 || got[0]["price"] != int64(9) {
		t.Errorf("got %v, %v", got, err)
	}
	// A sale of tickets to a claimed seat is excluded by StrengthUpdate only.
	_, err = db.ExecContext(ctx, "SET lock_timeout = '1s'; INSERT INTO ticket SELECT id FROM seat WHERE price = 2")
	works(t, err)
	_, err = pglock.Claim(ctx, tx, dblock.RowLock{}, 1, pgx.RowTo[bool], "SELECT bool_and(true) FROM seat")
	if !errors.Is(err, dblock.ErrUnsupported) {
		t.Errorf("an aggregate: %v", err)
	}
}

// TestReadOnlyTransactionsLockNoRows, and return an error.
func TestReadOnlyTransactionsLockNoRows(t *testing.T) {
	t.Parallel()
	ctx := soon(t)
	pool := testdb.Postgres(t)
	_, err := pool.Exec(ctx, "CREATE TABLE seat AS SELECT 1 AS id")
	works(t, err)
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly})
	works(t, err)
	defer func() { _ = tx.Rollback(ctx) }()
	works(t, pglock.LockTx(ctx, tx, dblock.NoWait(), 1)) // these write nothing
	if err := pglock.LockRow(ctx, tx, "seat", "id", 1, dblock.RowLock{}); !errors.Is(err, dblock.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	says(t, pglock.LockRow(ctx, tx, "seat", "id", 1, dblock.RowLock{}), "an earlier statement")
}

// TestAChangedRowIsAConflict, where the isolation says so.
func TestAChangedRowIsAConflict(t *testing.T) {
	t.Parallel()
	ctx := soon(t)
	pool := testdb.Postgres(t)
	_, err := pool.Exec(ctx, "CREATE TABLE seat AS SELECT 1 AS id, 0 AS sold")
	works(t, err)
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	works(t, err)
	defer func() { _ = tx.Rollback(ctx) }()
	_, err = tx.Exec(ctx, "SELECT FROM seat")
	works(t, err)
	_, err = pool.Exec(ctx, "UPDATE seat SET sold = 1")
	works(t, err)
	err = pglock.LockRow(ctx, tx, "seat", "id", 1, dblock.RowLock{})
	if !errors.Is(err, dblock.ErrConflict) || !pglock.Retryable(err) {
		t.Errorf("got %v", err)
	}
}

// TestAClaimOfAnAlteredTable has the statement prepared, or described, before the table gets a
// column.
func TestAClaimOfAnAlteredTable(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			ctx := soon(t)
			config := testdb.Postgres(t).Config().ConnConfig
			config.DefaultQueryExecMode = mode
			conn, err := pgx.ConnectConfig(ctx, config)
			works(t, err)
			defer func() { _ = conn.Close(ctx) }()
			_, err = conn.Exec(ctx, "CREATE TABLE seat AS SELECT 1 AS id, 2 AS row")
			works(t, err)
			var tries int
			claim := func() error {
				tries = 0
				return pglock.RunTx(ctx, conn, pglock.TxOptions{}, func(tx pgx.Tx) error {
					tries++
					_, err := pglock.Claim(ctx, tx, dblock.RowLock{}, 1, pgx.RowToMap, "SELECT * FROM seat")
					if err != nil && !errors.Is(err, dblock.ErrConflict) {
						t.Error(err)
					}
					return err
				})
			}
			works(t, claim())
			_, err = conn.Exec(ctx, "ALTER TABLE seat ADD sold int")
			works(t, err)
			if works(t, claim()); tries != 2 {
				t.Errorf("it was tried %d times", tries)
			}
		})
	}
}

// TestErrorsOfTheStatementItself are not taken for those of what is no table.
func TestErrorsOfTheStatementItself(t *testing.T) {
	t.Parallel()
	ctx := soon(t)
	pool := testdb.Postgres(t)
	_, err := pool.Exec(ctx, "CREATE TABLE seat AS SELECT 1 AS id, '{}'::json AS j; CREATE SEQUENCE numbers")
	works(t, err)
	claim := func(query string) error {
		return pglock.RunTx(ctx, pool, pglock.TxOptions{}, func(tx pgx.Tx) error {
			_, err := pglock.Claim(ctx, tx, dblock.RowLock{}, 1, pgx.RowTo[int64], query)
			return err
		})
	}
	for query, text := range map[string]string{
		"SELECT currval('numbers') FROM seat": "not yet defined",
		"SELECT missing(id) FROM seat":        "missing(integer) does not exist",
	} {
		err := claim(query)
		if says(t, err, text); errors.Is(err, dblock.ErrUnsupported) || errors.Is(err, dblock.ErrConflict) {
			t.Errorf("%s: %v", query, err)
		}
	}
	err = pglock.RunTx(ctx, pool, pglock.TxOptions{}, func(tx pgx.Tx) error {
		return pglock.LockRow(ctx, tx, "seat", "j", "{}", dblock.RowLock{})
	})
	if !errors.Is(err, dblock.ErrUnsupported) {
		t.Errorf("a column of JSON: %v", err)
	}
}

// TestAKeyThatCannotBeSent leaves neither a setting nor a savepoint in the transaction.
func TestAKeyThatCannotBeSent(t *testing.T) {
	t.Parallel()
	ctx := soon(t)
	pool := testdb.Postgres(t)
	_, err := pool.Exec(ctx, "CREATE TABLE seat AS SELECT 'a'::text AS id")
	works(t, err)
	for _, wait := range []dblock.TxWait{dblock.WaitAtMost(time.Second), dblock.WaitForContext()} {
		tx, err := pool.Begin(ctx)
		works(t, err)
		defer func() { _ = tx.Rollback(ctx) }()
		_, err = tx.Exec(ctx, "SET LOCAL lock_timeout = 7000")
		works(t, err)
		err = pglock.LockRow(ctx, tx, "seat", "id", 7, dblock.RowLock{Wait: wait})
		if says(t, err, "nothing was sent"); !errors.Is(err, dblock.ErrInvalid) {
			t.Errorf("got %v", err)
		}
		var timeout string
		works(t, tx.QueryRow(ctx, "SHOW lock_timeout").Scan(&timeout))
		if timeout != "7s" {
			t.Errorf("lock_timeout is %s afterwards", timeout)
		}
		_, err = tx.Exec(ctx, "RELEASE SAVEPOINT dblock_rows")
		says(t, err, "3B001")
		works(t, tx.Rollback(ctx))
	}
}
