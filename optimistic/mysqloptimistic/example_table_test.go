package mysqloptimistic_test

import (
	"context"
	"database/sql"
	"fmt"

	_ "github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/optimistic/mysqloptimistic"
)

// seated is a database with the seatings 1 to 3, at version 1.
func seated(ctx context.Context) (*sql.DB, func(), error) {
	dsn, done := testdb.ExampleDSN(family()[0]) // yours: app@tcp(db.example:3306)/shop
	pool, err := sql.Open("mysql", dsn)
	if err != nil {
		done()
		return nil, nil, err
	}
	for _, statement := range []string{
		"CREATE TABLE seating (id INT PRIMARY KEY, guests INT NOT NULL, version BIGINT NOT NULL DEFAULT 1)",
		"INSERT INTO seating (id, guests) VALUES (1, 0), (2, 0), (3, 0)",
	} {
		if _, err := pool.ExecContext(ctx, statement); err != nil {
			_ = pool.Close()
			done()
			return nil, nil, err
		}
	}
	return pool, func() { _ = pool.Close(); done() }, nil
}

// Without generated queries: the statements are the Table's.
func ExampleNewTable() {
	ctx := context.Background()
	pool, done, err := seated(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer done()
	seatings, err := mysqloptimistic.NewTable("seating", "id", optimistic.Int("version")) // once, when the service starts
	if err == nil {
		err = seatings.Check(ctx, pool) // will the table do?
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	version, err := seatings.Update(ctx, pool, 1, 1, optimistic.Set{"guests": 4})
	fmt.Println(version, err)
	version, err = seatings.Update(ctx, pool, 1, 1, optimistic.Set{"guests": 2}) // has not seen the four
	fmt.Println(version, err)
	version, err = seatings.Upsert(ctx, pool, 9, optimistic.Absent[int64](), optimistic.Set{"guests": 1})
	fmt.Println(version, err)
	fmt.Println(seatings.Delete(ctx, pool, 8, 1))
	// Output:
	// 2 <nil>
	// 0 optimistic: seating 1, read at 1, has changed since: it is at 2; nothing was written: read it again and repeat the change
	// 1 <nil>
	// optimistic: seating 8 does not exist (any more); nothing was written
}

// Several rows, each by its version: all of them or none, or a verdict for each.
func ExampleNewTable_updateMany() {
	ctx := context.Background()
	pool, done, err := seated(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer done()
	seatings, err := mysqloptimistic.NewTable("seating", "id", optimistic.Int("version"))
	if err != nil {
		fmt.Println(err)
		return
	}
	changes := []optimistic.Change[int64]{
		{Key: 1, Expected: 1, Set: optimistic.Set{"guests": 2}},
		{Key: 2, Expected: 7, Set: optimistic.Set{"guests": 3}}, // it is at 1
	}
	_, err = seatings.UpdateMany(ctx, pool, changes, optimistic.UpdateAllOrNothing)
	fmt.Println(err)
	outcomes, err := seatings.UpdateMany(ctx, pool, changes, optimistic.UpdateEachRow)
	for _, o := range outcomes {
		fmt.Println(o.Key, o.Verdict, o.Version)
	}
	fmt.Println(err)
	// Output:
	// optimistic: seating 2, read at 7, has changed since: it is at 1; nothing was written: read it again and repeat the change
	// 1 updated 2
	// 2 stale 1
	// <nil>
}

// A version that stands for rows of other tables as well: every change of a guest touches the
// seating first.
func ExampleNewTable_touch() {
	ctx := context.Background()
	pool, done, err := seated(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer done()
	seatings, err := mysqloptimistic.NewTable("seating", "id", optimistic.Int("version"))
	if err == nil {
		_, err = pool.ExecContext(ctx, "CREATE TABLE guest (name VARCHAR(20) PRIMARY KEY, seating INT NOT NULL)")
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	seat := func(name string, seen int64) error {
		return mysqloptimistic.Do(ctx, pool, func(ctx context.Context, tx *sql.Tx, _ int) error {
			if _, err := tx.ExecContext(ctx, "INSERT INTO guest VALUES ('"+name+"', 1)"); err != nil {
				return err
			}
			_, err := seatings.Touch(ctx, tx, 1, seen)
			return err
		}, optimistic.Attempts(1)) // a user that decided by what was shown has to look again
	}
	fmt.Println(seat("Ann", 1))
	fmt.Println(seat("Bob", 1))
	var guests int
	err = pool.QueryRowContext(ctx, "SELECT COUNT(*) FROM guest").Scan(&guests)
	fmt.Println(guests, err)
	// Output:
	// <nil>
	// optimistic: seating 1, read at 1, has changed since: it is at 2; nothing was written: read it again and repeat the change
	// 1 <nil>
}
