package mysqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	_ "github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/migrations"
	"github.com/dblock-go/dblock/mysqllock"
)

func ExampleNewLease() {
	ctx := context.Background()
	dsn, done := testdb.ExampleDSN(family()[0]) // yours: app@tcp(db.example)/shop
	defer done()

	db, err := sql.Open("mysql", dsn)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = db.Close() }()
	if _, err := migrations.Up(ctx, db, migrations.Options{}); err != nil { // or: dblock migrate up
		fmt.Println(err)
		return
	}
	leases, err := mysqllock.NewLease(ctx, db, mysqllock.LeaseOptions{Label: "billing 7"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = leases.Close(ctx) }()

	lock, err := leases.Acquire(ctx, "invoice-run", dblock.WithMaxHold(time.Hour)) // waits while ctx lives
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = lock.Release(ctx) }()

	// Others are refused, and told by whom.
	_, err = leases.TryAcquire(ctx, "invoice-run")
	fmt.Println(errors.Is(err, dblock.ErrNotAcquired))

	// What is written here is written by the holder of the lock, or not at all.
	err = leases.GuardedTx(ctx, lock, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "SELECT 1")
		return err
	})
	fmt.Println(err)
	// Output:
	// true
	// <nil>
}
