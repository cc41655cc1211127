package pglock_test

import (
	"context"
	"fmt"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/pglock"
)

func ExampleRunTx() {
	ctx := context.Background()
	url, done := testdb.ExampleDSN(devdb.Postgres) // yours: postgres://app@db.example/shop
	defer done()
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, "CREATE TABLE on_call AS SELECT * FROM (VALUES ('ann'), ('bob')) doctors (name)"); err != nil {
		fmt.Println(err)
		return
	}

	// One of the doctors stays, however many go at the same moment.
	options := pglock.TxOptions{
		Isolation: pgx.Serializable,
		OnRetry:   func(attempt int, err error) { fmt.Println("attempt", attempt, "met a conflict:", err) },
	}
	goHome := func(name string) error {
		return pglock.RunTx(ctx, pool, options, func(tx pgx.Tx) error {
			var others int
			if err := tx.QueryRow(ctx, "SELECT count(*) FROM on_call WHERE name <> $1", name).Scan(&others); err != nil {
				return err
			}
			if others == 0 {
				return fmt.Errorf("%s has to stay", name)
			}
			_, err := tx.Exec(ctx, "DELETE FROM on_call WHERE name = $1", name)
			return err
		})
	}
	fmt.Println(goHome("ann"))
	fmt.Println(goHome("bob"))
	// Output:
	// <nil>
	// bob has to stay
}

func ExampleIsLockTimeout() {
	ctx := context.Background()
	url, done := testdb.ExampleDSN(devdb.Postgres) // yours: postgres://app@db.example/shop
	defer done()
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, "CREATE TABLE seat AS SELECT 12 AS number"); err != nil {
		fmt.Println(err)
		return
	}

	const lock = "SELECT number FROM seat WHERE number = 12 FOR UPDATE NOWAIT"
	err = pglock.RunTx(ctx, pool, pglock.TxOptions{}, func(ann pgx.Tx) error {
		if _, err := ann.Exec(ctx, lock); err != nil {
			return err
		}
		err := pglock.RunTx(ctx, pool, pglock.TxOptions{}, func(bob pgx.Tx) error {
			_, err := bob.Exec(ctx, lock)
			return err
		})
		fmt.Println("the seat is locked:", pglock.IsLockTimeout(err))
		fmt.Println("to run it again at once is right:", pglock.Retryable(err))
		return nil
	})
	fmt.Println(err)
	// Output:
	// the seat is locked: true
	// to run it again at once is right: false
	// <nil>
}

// A service's own migrations, with goose: every process may do this at start, one of them migrates
// and the others wait.
func ExampleNewMigrationLocker() {
	ctx := context.Background()
	url, done := testdb.ExampleDSN(devdb.Postgres) // yours: postgres://app@db.example/shop
	defer done()
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	db := stdlib.OpenDBFromPool(pool)
	defer func() { _ = db.Close() }() // the pool stays open

	files := fstest.MapFS{ // yours: //go:embed *.sql
		"00001_customer.sql": {Data: []byte("-- +goose Up\nCREATE TABLE customer (id bigint PRIMARY KEY);\n")},
	}
	locker, err := pglock.NewMigrationLocker(pglock.MigrationOptions{Name: "shop", Timeout: 5 * time.Minute})
	if err != nil {
		fmt.Println(err)
		return
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithSessionLocker(locker))
	if err != nil {
		fmt.Println(err)
		return
	}
	applied, err := provider.Up(ctx)
	fmt.Println(len(applied), err)
	// Output: 1 <nil>
}
