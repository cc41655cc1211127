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
	"github.com/dblock-go/dblock/mysqllock"
)

// A booking of two seats that goes either way, and never deadlocks with one that names them the
// other way round.
func ExampleLockRows() {
	ctx := context.Background()
	begin, done := theatre(ctx)
	defer done()

	tx := begin()
	defer func() { _ = tx.Rollback() }()
	rows, err := mysqllock.LockRows(ctx, tx, "seat", "id", []int{3, 1, 99}, dblock.RowLock{Wait: dblock.WaitAtMost(2 * time.Second)})
	fmt.Println("locked:", rows.Locked, err)

	other := begin()
	defer func() { _ = other.Rollback() }()
	err = mysqllock.LockRow(ctx, other, "seat", "id", 3, dblock.RowLock{Wait: dblock.NoWait()})
	fmt.Println("another:", errors.Is(err, dblock.ErrNotAcquired))

	// No index begins with the buyer: every seat would be locked.
	err = mysqllock.LockRow(ctx, other, "seat", "buyer", "ada", dblock.RowLock{})
	fmt.Println("refused:", errors.As(err, new(*mysqllock.ScanError)))
	// Output:
	// locked: [1 3] <nil>
	// another: true
	// refused: true
}

// Any two free seats, now: two concurrent callers get different ones.
func ExampleClaim() {
	ctx := context.Background()
	begin, done := theatre(ctx)
	defer done()

	type seat struct{ ID, Price int }
	claim := func(tx *sql.Tx) ([]seat, error) {
		read := func(row *sql.Rows) (s seat, err error) {
			err = row.Scan(&s.ID, &s.Price)
			return s, err
		}
		// The index is (sold, price).
		return mysqllock.Claim(ctx, tx, dblock.RowLock{}, 2, read, "SELECT id, price FROM seat WHERE sold = 0 ORDER BY price")
	}
	tx, other := begin(), begin()
	defer func() { _ = tx.Rollback() }()
	defer func() { _ = other.Rollback() }()
	seats, err := claim(tx)
	fmt.Println("mine:", seats, err)
	seats, err = claim(other)
	fmt.Println("another's:", seats, err)
	// Output:
	// mine: [{3 10} {2 20}] <nil>
	// another's: [{1 30}] <nil>
}

// theatre is a database of the example's own with three seats.
func theatre(ctx context.Context) (begin func() *sql.Tx, done func()) {
	dsn, drop := testdb.ExampleDSN(family()[0])
	db, err := sql.Open("mysql", dsn)
	for _, statement := range []string{
		"CREATE TABLE seat (id INT PRIMARY KEY, price INT NOT NULL, sold INT NOT NULL DEFAULT 0, buyer VARCHAR(40), KEY free (sold, price))",
		"INSERT INTO seat (id, price) VALUES (1, 30), (2, 20), (3, 10)",
	} {
		if err == nil {
			_, err = db.ExecContext(ctx, statement)
		}
	}
	if err != nil {
		panic(err)
	}
	return func() *sql.Tx {
			tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
			if err != nil {
				panic(err)
			}
			return tx
		}, func() {
			_ = db.Close()
			drop()
		}
}
