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
	"github.com/dblock-go/dblock/pglock"
)

// Two parts of a report are made by one transaction at a time, and there is no row that stands for
// them.
func ExampleLockTx() {
	ctx := context.Background()
	pool, done := theatre(ctx)
	defer done()

	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		totals, list := pglock.KeyOf("report", "totals"), pglock.KeyOf("report", "list")
		if err := pglock.LockTx(ctx, tx, dblock.WaitAtMost(5*time.Second), totals, list); err != nil {
			return err
		}
		return pgx.BeginFunc(ctx, pool, func(other pgx.Tx) error {
			err := pglock.LockTx(ctx, other, dblock.NoWait(), list)
			fmt.Println("another:", errors.Is(err, dblock.ErrNotAcquired))
			_, err = other.Exec(ctx, "SELECT 1") // its transaction can go on
			return err
		})
	})
	fmt.Println(err)
	// Output:
	// another: true
	// <nil>
}

// A booking of two seats that goes either way, and never deadlocks with one that names them the
// other way round.
func ExampleLockRows() {
	ctx := context.Background()
	pool, done := theatre(ctx)
	defer done()

	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		rows, err := pglock.LockRows(ctx, tx, "seat", "id", []int{3, 1, 99}, dblock.RowLock{Wait: dblock.WaitAtMost(2 * time.Second)})
		if err != nil {
			return err
		}
		fmt.Println("locked:", rows.Locked)
		return pgx.BeginFunc(ctx, pool, func(other pgx.Tx) error {
			err := pglock.LockRow(ctx, other, "seat", "id", 3, dblock.RowLock{Wait: dblock.NoWait()})
			fmt.Println("another:", errors.Is(err, dblock.ErrNotAcquired))
			return nil
		})
	})
	fmt.Println(err)
	// Output:
	// locked: [1 3]
	// another: true
	// <nil>
}

// Any two free seats, now: two concurrent callers get different ones.
func ExampleClaim() {
	ctx := context.Background()
	pool, done := theatre(ctx)
	defer done()

	type seat struct{ ID, Price int }
	const free = "SELECT id, price FROM seat WHERE buyer IS NULL ORDER BY price"
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		seats, err := pglock.Claim(ctx, tx, dblock.RowLock{}, 2, pgx.RowToStructByName[seat], free)
		if err != nil {
			return err
		}
		fmt.Println("mine:", seats)
		for _, s := range seats {
			if _, err := tx.Exec(ctx, "UPDATE seat SET buyer = 'ada' WHERE id = $1", s.ID); err != nil {
				return err
			}
		}
		return pgx.BeginFunc(ctx, pool, func(other pgx.Tx) error {
			seats, err := pglock.Claim(ctx, other, dblock.RowLock{}, 2, pgx.RowToStructByName[seat], free)
			fmt.Println("another's:", seats)
			return err
		})
	})
	fmt.Println(err)
	// Output:
	// mine: [{3 10} {2 20}]
	// another's: [{1 30}]
	// <nil>
}

// theatre is a database of the example's own with three seats.
func theatre(ctx context.Context) (pool *pgxpool.Pool, done func()) {
	url, drop := testdb.ExampleDSN(devdb.Postgres)
	pool, err := pgxpool.New(ctx, url)
	if err == nil {
		_, err = pool.Exec(ctx, `CREATE TABLE seat (id int PRIMARY KEY, price int NOT NULL, buyer text);
			INSERT INTO seat VALUES (1, 30), (2, 20), (3, 10)`)
	}
	if err != nil {
		panic(err)
	}
	return pool, func() {
		pool.Close()
		drop()
	}
}
