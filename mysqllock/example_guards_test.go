package mysqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/migrations"
	"github.com/dblock-go/dblock/mysqllock"
)

// The data is in another database than the lease. Once the next holder has advanced the fence of
// the resource, the holder before it writes nothing.
func ExampleGuards() {
	ctx := context.Background()
	leases, done, err := shop(mysqllock.LeaseOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer done()
	dsn, drop := testdb.ExampleDSN(family()[0]) // the other database, which has dblock's tables, too
	defer drop()
	other, err := sql.Open("mysql", dsn)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = other.Close() }()
	if _, err := migrations.Up(ctx, other, migrations.Options{}); err != nil {
		fmt.Println(err)
		return
	}

	var guards mysqllock.Guards
	begin := func() (dblock.Fence, error) { // one holder
		lock, err := leases.Acquire(ctx, "report")
		if err != nil {
			return dblock.Fence{}, err
		}
		defer func() { _ = lock.Release(ctx) }()
		fence, _ := lock.Fence()
		return fence, mysqllock.RunTx(ctx, other, mysqllock.TxOptions{}, func(tx *sql.Tx) error {
			return guards.AdvanceFence(ctx, tx, fence, "report-2026") // before it reads
		})
	}
	write := func(fence dblock.Fence) error {
		return mysqllock.RunTx(ctx, other, mysqllock.TxOptions{}, func(tx *sql.Tx) error {
			if err := guards.CheckFence(ctx, tx, fence, "report-2026"); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, "DO 'what the holder writes'")
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
