package mysqllock_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing/fstest"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/mysqllock"
)

func ExampleRunTx() {
	ctx := context.Background()
	dsn, done := testdb.ExampleDSN(family()[0]) // yours: app@tcp(db.example)/shop
	defer done()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = db.Close() }()
	for _, query := range []string{"CREATE TABLE on_call (name varchar(9) PRIMARY KEY)", "INSERT INTO on_call VALUES ('ann'), ('bob')"} {
		if _, err := db.ExecContext(ctx, query); err != nil {
			fmt.Println(err)
			return
		}
	}

	// One of the doctors stays, however many go at the same moment.
	options := mysqllock.TxOptions{
		Isolation: sql.LevelSerializable,
		OnRetry:   func(attempt int, err error) { fmt.Println("attempt", attempt, "met a conflict:", err) },
	}
	goHome := func(name string) error {
		return mysqllock.RunTx(ctx, db, options, func(tx *sql.Tx) error {
			var others int
			if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM on_call WHERE name <> ?", name).Scan(&others); err != nil {
				return err
			}
			if others == 0 {
				return fmt.Errorf("%s has to stay", name)
			}
			_, err := tx.ExecContext(ctx, "DELETE FROM on_call WHERE name = ?", name)
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
	dsn, done := testdb.ExampleDSN(family()[0]) // yours: app@tcp(db.example)/shop
	defer done()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = db.Close() }()
	for _, query := range []string{"CREATE TABLE seat (number int PRIMARY KEY)", "INSERT INTO seat VALUES (12)"} {
		if _, err := db.ExecContext(ctx, query); err != nil {
			fmt.Println(err)
			return
		}
	}

	const lock = "SELECT number FROM seat WHERE number = 12 FOR UPDATE NOWAIT"
	err = mysqllock.RunTx(ctx, db, mysqllock.TxOptions{}, func(ann *sql.Tx) error {
		if _, err := ann.ExecContext(ctx, lock); err != nil {
			return err
		}
		err := mysqllock.RunTx(ctx, db, mysqllock.TxOptions{}, func(bob *sql.Tx) error {
			_, err := bob.ExecContext(ctx, lock)
			return err
		})
		fmt.Println("the seat is locked:", mysqllock.IsLockTimeout(err))
		fmt.Println("to run it again at once is right:", mysqllock.Retryable(err))
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
	dsn, done := testdb.ExampleDSN(family()[0]) // yours: app@tcp(db.example)/shop
	defer done()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = db.Close() }()

	files := fstest.MapFS{ // yours: //go:embed *.sql
		"00001_customer.sql": {Data: []byte("-- +goose Up\nCREATE TABLE customer (id bigint PRIMARY KEY);\n")},
	}
	locker, err := mysqllock.NewMigrationLocker(mysqllock.MigrationOptions{Name: "shop", Timeout: 5 * time.Minute})
	if err != nil {
		fmt.Println(err)
		return
	}
	provider, err := goose.NewProvider(goose.DialectMySQL, db, files, goose.WithSessionLocker(locker))
	if err != nil {
		fmt.Println(err)
		return
	}
	// Up itself makes goose's version table before it locks: of processes that start at once on an
	// empty database some would fail.
	if _, err := provider.GetDBVersion(ctx); err != nil {
		fmt.Println(err)
		return
	}
	applied, err := provider.Up(ctx)
	fmt.Println(len(applied), err)
	// Output: 1 <nil>
}
