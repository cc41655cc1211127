package pglock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/migrations"
	"github.com/dblock-go/dblock/pglock"
)

func ExampleNewLease() {
	ctx := context.Background()
	url, done := testdb.ExampleDSN(devdb.Postgres) // yours: postgres://app@db.example/shop
	defer done()

	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	if _, err := migrations.Up(ctx, pool, migrations.Options{}); err != nil { // or: dblock migrate up
		fmt.Println(err)
		return
	}
	leases, err := pglock.NewLease(ctx, pool, pglock.LeaseOptions{Label: "billing 7"})
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
	err = leases.GuardedTx(ctx, lock, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "CREATE TABLE invoice AS SELECT 4711 AS number")
		return err
	})
	fmt.Println(err)
	// Output:
	// true
	// <nil>
}
