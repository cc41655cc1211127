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

func ExampleNewLeaseLocker() {
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
	leases, err := pglock.NewLeaseLocker(ctx, pool, pglock.LeaseOptions{Label: "billing 7"})
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

	// Others are refused, and the error names the holder.
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

// Readers share a price list; a writer has it alone.
func Example_shared() {
	ctx := context.Background()
	leases, done, err := shop(pglock.LeaseOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer done()

	first, err := leases.Acquire(ctx, "price-list", dblock.WithShared())
	if err != nil {
		fmt.Println(err)
		return
	}
	second, err := leases.Acquire(ctx, "price-list", dblock.WithShared())
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = leases.TryAcquire(ctx, "price-list") // without WithShared: to write
	fmt.Println("beside readers:", errors.Is(err, dblock.ErrNotAcquired))

	_ = first.Release(ctx)
	_ = second.Release(ctx)
	writer, err := leases.Acquire(ctx, "price-list")
	fmt.Println("when they have gone:", err)
	_ = writer.Release(ctx)
	// Output:
	// beside readers: true
	// when they have gone: <nil>
}

// At most three calls of an external API are under way at once, of all processes together.
func Example_permits() {
	ctx := context.Background()
	leases, done, err := shop(pglock.LeaseOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer done()

	batch, err := leases.Acquire(ctx, "payment-api", dblock.WithPermits(2, 3)) // two of three, or none
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = leases.TryAcquire(ctx, "payment-api", dblock.WithPermits(2, 3))
	fmt.Println("two more:", errors.Is(err, dblock.ErrNotAcquired))

	_, err = leases.TryAcquire(ctx, "payment-api", dblock.WithPermits(1, 5))
	var limit *dblock.LimitError
	if errors.As(err, &limit) {
		fmt.Println("not", limit.Asked, "but", limit.Stored)
	}
	err = leases.SetPermits(ctx, "payment-api", 5) // what is held stays held
	fmt.Println(err)
	more, err := leases.TryAcquire(ctx, "payment-api", dblock.WithPermits(3, 5))
	fmt.Println(err)
	_ = more.Release(ctx)
	_ = batch.Release(ctx)
	// Output:
	// two more: true
	// not 5 but 3
	// <nil>
	// <nil>
}

// A transfer has both accounts at once, or neither: two that go opposite ways never wait for each
// other.
func ExampleLeaseLocker_AcquireAll() {
	ctx := context.Background()
	leases, done, err := shop(pglock.LeaseOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer done()

	both, err := leases.AcquireAll(ctx, []string{"account-7", "account-3"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(both.Keys())

	_, err = leases.TryAcquireAll(ctx, []string{"account-3", "account-9"})
	var held *dblock.HeldError
	if errors.As(err, &held) {
		fmt.Println("in the way:", held.Key)
	}
	err = leases.GuardedTx(ctx, both, func(context.Context, pgx.Tx) error { return nil }) // checks the fences of both
	fmt.Println(err)
	_ = both.Release(ctx)
	// Output:
	// [account-3 account-7]
	// in the way: account-3
	// <nil>
}

// The caller that has waited longest is next, whatever its process.
func Example_fair() {
	ctx := context.Background()
	leases, done, err := shop(pglock.LeaseOptions{Fair: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer done()

	lock, err := leases.Acquire(ctx, "ticket-office")
	if err != nil {
		fmt.Println(err)
		return
	}
	served := make(chan error)
	go func() {
		served <- dblock.Do(ctx, leases, "ticket-office", func(context.Context, *dblock.Lock) error { return nil })
	}()
	_ = lock.Release(ctx) // passes the key on to the waiter
	fmt.Println(<-served)

	_, err = leases.Acquire(ctx, "ticket-office", dblock.WithShared())
	fmt.Println("readers:", errors.Is(err, dblock.ErrUnsupported))
	// Output:
	// <nil>
	// readers: true
}

// shop is a database of the example's own, with dblock's tables, and a Lease in it.
func shop(o pglock.LeaseOptions) (leases *pglock.LeaseLocker, done func(), err error) {
	ctx := context.Background()
	url, drop := testdb.ExampleDSN(devdb.Postgres)
	pool, err := pgxpool.New(ctx, url)
	if err == nil {
		if _, err = migrations.Up(ctx, pool, migrations.Options{}); err == nil {
			leases, err = pglock.NewLeaseLocker(ctx, pool, o)
		}
	}
	return leases, func() {
		_ = leases.Close(ctx)
		pool.Close()
		drop()
	}, err
}
