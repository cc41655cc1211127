package pglock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/migrations"
	"github.com/dblock-go/dblock/pglock"
)

// The data is in another database than the lease. Once the next holder has advanced the fence of
// the resource, the holder before it writes nothing.
func ExampleGuards() {
	ctx := context.Background()
	leases, done, err := shop(pglock.LeaseOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer done()
	url, drop := testdb.ExampleDSN(devdb.Postgres) // the other database, which has dblock's tables, too
	defer drop()
	other, err := pgxpool.New(ctx, url)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer other.Close()
	if _, err := migrations.Up(ctx, other, migrations.Options{}); err != nil {
		fmt.Println(err)
		return
	}

	var guards pglock.Guards
	begin := func() (dblock.Fence, error) { // one holder
		lock, err := leases.Acquire(ctx, "report")
		if err != nil {
			return dblock.Fence{}, err
		}
		defer func() { _ = lock.Release(ctx) }()
		fence, _ := lock.Fence()
		return fence, pgx.BeginFunc(ctx, other, func(tx pgx.Tx) error {
			return guards.AdvanceFence(ctx, tx, fence, "report-2026") // before it reads
		})
	}
	write := func(fence dblock.Fence) error {
		return pgx.BeginFunc(ctx, other, func(tx pgx.Tx) error {
			if err := guards.CheckFence(ctx, tx, fence, "report-2026"); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "SELECT 'what the holder writes'")
			return err
		})
	}
	first, err := begin()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("the holder:", write(first))
	second, err := begin()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("the next one:", write(second))
	fmt.Println("the one before is fenced off:", errors.Is(write(first), dblock.ErrFenced))
	// Output:
	// the holder: <nil>
	// the next one: <nil>
	// the one before is fenced off: true
}

// A transaction of database/sql, and so of GORM, ent or sqlx, is guarded in the same way.
func ExampleSQLTx() {
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
	leases, err := pglock.NewLeaseLocker(ctx, pool, pglock.LeaseOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = leases.Close(ctx) }()
	lock, err := leases.Acquire(ctx, "invoice-run")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = lock.Release(ctx) }()

	db := stdlib.OpenDBFromPool(pool) // both use one pool
	defer func() { _ = db.Close() }()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = tx.Rollback() }()
	fence, _ := lock.Fence()
	if err := leases.Guard(ctx, pglock.SQLTx(tx), fence); err != nil { // first: is the lock still held?
		fmt.Println(err)
		return
	}
	if _, err := tx.ExecContext(ctx, "CREATE TABLE invoice AS SELECT 4711 AS number"); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(tx.Commit())
	// Output: <nil>
}
