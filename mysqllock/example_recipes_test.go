package mysqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/mysqllock"
)

// invoice makes an invoice with the next number. It has the counter until it commits: others wait,
// and a number that was rolled back goes to the next one.
func invoice(ctx context.Context, db *sql.DB, customer string) (number int64, err error) {
	err = mysqllock.RunTx(ctx, db, mysqllock.TxOptions{}, func(tx *sql.Tx) error {
		err := mysqllock.LockRow(ctx, tx, "counter", "name", "invoice", dblock.RowLock{Wait: dblock.WaitAtMost(5 * time.Second)})
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "UPDATE counter SET last = last + 1 WHERE name = 'invoice'"); err != nil {
			return err
		}
		if err := tx.QueryRowContext(ctx, "SELECT last FROM counter WHERE name = 'invoice'").Scan(&number); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO invoice (number, customer) VALUES (?, ?)", number, customer)
		return err
	})
	return number, err
}

// Numbers without gaps: those of AUTO_INCREMENT are not.
func ExampleLockRow_gapless() {
	ctx := context.Background()
	db, done, err := made("CREATE TABLE counter (name varchar(40) PRIMARY KEY, last bigint NOT NULL)",
		"INSERT INTO counter VALUES ('invoice', 0)",
		"CREATE TABLE invoice (number bigint PRIMARY KEY, customer varchar(40) NOT NULL CHECK (customer <> ''))",
		"CREATE TABLE voucher (number bigint AUTO_INCREMENT PRIMARY KEY, customer varchar(40) NOT NULL)")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer done()
	for _, customer := range []string{"ann", "", "bob"} {
		number, err := invoice(ctx, db, customer)
		fmt.Println("invoice", number, err == nil)
		_ = mysqllock.RunTx(ctx, db, mysqllock.TxOptions{}, func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, "INSERT INTO voucher (customer) VALUES (?)", customer); err != nil {
				return err
			}
			return refuse(customer)
		})
	}
	var vouchers string
	err = db.QueryRowContext(ctx, "SELECT group_concat(number ORDER BY number) FROM voucher").Scan(&vouchers)
	fmt.Println("vouchers", vouchers, err)
	// Output:
	// invoice 1 true
	// invoice 2 false
	// invoice 2 true
	// vouchers 1,3 <nil>
}

// refuse has a transaction rolled back after it has taken its number.
func refuse(customer string) error {
	if customer == "" {
		return errors.New("there is no customer")
	}
	return nil
}

var errTeamIsFull = errors.New("the team is full")

// join has at most three in a team. Without the lock two could count two each, and both join.
func join(ctx context.Context, db *sql.DB, team, name string) error {
	return mysqllock.RunTx(ctx, db, mysqllock.TxOptions{}, func(tx *sql.Tx) error { // READ COMMITTED: what is counted is of now
		if err := mysqllock.LockRow(ctx, tx, "team", "name", team, dblock.RowLock{Wait: dblock.WaitAtMost(5 * time.Second)}); err != nil {
			return err
		}
		var members int
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM member WHERE team = ?", team).Scan(&members); err != nil {
			return err
		}
		if members == 3 {
			return errTeamIsFull
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO member (team, name) VALUES (?, ?)", team, name)
		return err
	})
}

// At most so many rows a group: there is no row of it to lock before the first one, and so the
// group's own is.
func ExampleLockRow_atMost() {
	ctx := context.Background()
	db, done, err := made("CREATE TABLE team (name varchar(40) PRIMARY KEY)", "INSERT INTO team VALUES ('red')",
		"CREATE TABLE member (team varchar(40), name varchar(40), PRIMARY KEY (team, name))")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer done()
	var full atomic.Int64
	var callers sync.WaitGroup
	for _, name := range []string{"ann", "bob", "cy", "dan", "eve"} {
		callers.Go(func() {
			if err := join(ctx, db, "red", name); errors.Is(err, errTeamIsFull) {
				full.Add(1)
			} else if err != nil {
				fmt.Println(err)
			}
		})
	}
	callers.Wait()
	var members int
	err = db.QueryRowContext(ctx, "SELECT count(*) FROM member").Scan(&members)
	fmt.Println(members, "joined,", full.Load(), "were refused as full,", err)
	// Output: 3 joined, 2 were refused as full, <nil>
}

// transfer has both accounts before it looks at one. Two that go opposite ways never deadlock.
func transfer(ctx context.Context, db *sql.DB, o mysqllock.TxOptions, from, to, amount int64) error {
	return mysqllock.RunTx(ctx, db, o, func(tx *sql.Tx) error {
		rows, err := mysqllock.LockRows(ctx, tx, "account", "id", []int64{from, to}, dblock.RowLock{Wait: dblock.WaitAtMost(5 * time.Second)})
		if err != nil {
			return err
		}
		if len(rows.Locked) < 2 {
			return fmt.Errorf("of accounts %d and %d there are only %v", from, to, rows.Locked)
		}
		const move = "UPDATE account SET balance = balance + CASE id WHEN ? THEN -? ELSE ? END WHERE id IN (?, ?)"
		_, err = tx.ExecContext(ctx, move, from, amount, amount, from, to)
		return err
	})
}

// Two accounts, without a deadlock.
func ExampleLockRows_transfer() {
	ctx := context.Background()
	db, done, err := made("CREATE TABLE account (id bigint PRIMARY KEY, balance bigint NOT NULL)",
		"INSERT INTO account VALUES (3, 500), (7, 500)")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer done()
	var conflicts atomic.Int64
	options := mysqllock.TxOptions{OnRetry: func(int, error) { conflicts.Add(1) }}
	var callers sync.WaitGroup
	for _, pair := range [][2]int64{{3, 7}, {7, 3}} {
		callers.Go(func() {
			for range 50 {
				if err := transfer(ctx, db, options, pair[0], pair[1], 1); err != nil {
					fmt.Println(err)
				}
			}
		})
	}
	callers.Wait()
	var sum, first int64
	err = db.QueryRowContext(ctx, "SELECT sum(balance), min(balance) FROM account").Scan(&sum, &first)
	fmt.Println(sum, first, err, "conflicts:", conflicts.Load())
	// Output: 1000 500 <nil> conflicts: 0
}

// Any two free seats, now. Another caller at the same moment gets two others.
func ExampleClaim_seat() {
	ctx := context.Background()
	db, done, err := made("CREATE TABLE seat (id bigint PRIMARY KEY, buyer varchar(40), KEY free (buyer, id))",
		"INSERT INTO seat (id) VALUES (1), (2), (3), (4), (5)")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer done()
	buy := func(buyer string, meanwhile func()) error {
		return mysqllock.RunTx(ctx, db, mysqllock.TxOptions{}, func(tx *sql.Tx) error {
			seats, err := mysqllock.Claim(ctx, tx, dblock.RowLock{}, 2, one,
				"SELECT id FROM seat WHERE buyer IS NULL ORDER BY id")
			if err != nil {
				return err
			}
			fmt.Println(buyer, "gets", seats)
			meanwhile()
			for _, seat := range seats {
				if _, err := tx.ExecContext(ctx, "UPDATE seat SET buyer = ? WHERE id = ?", buyer, seat); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err = buy("ann", func() {
		err := buy("bob", func() {})
		fmt.Println(err)
	})
	fmt.Println(err)
	// Output:
	// ann gets [1 2]
	// bob gets [3 4]
	// <nil>
	// <nil>
}

// A function that locks, in the WHERE of a query, is called for rows that the query does not
// return.
func Example_limit() {
	ctx := context.Background()
	db, done, err := made("CREATE TABLE job (id bigint AUTO_INCREMENT PRIMARY KEY, due int NOT NULL)",
		"INSERT INTO job (due) VALUES (8), (7), (6), (5), (4), (3), (2), (1)")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer done()
	conn, err := db.Conn(ctx) // the locks stay with it, also when it is back in the pool
	if err != nil {
		fmt.Println(err)
		return
	}
	var first, locks int
	const hazard = "SELECT id FROM job WHERE GET_LOCK(CONCAT(DATABASE(), id), 0) = 1 ORDER BY due LIMIT 1"
	_ = conn.QueryRowContext(ctx, hazard).Scan(&first)
	const count = "SELECT count(*) FROM job WHERE IS_USED_LOCK(CONCAT(DATABASE(), id)) = CONNECTION_ID()"
	err = conn.QueryRowContext(ctx, count).Scan(&locks)
	fmt.Println("job", first, "is one of", locks, "that are locked,", err)
	_, _ = conn.ExecContext(ctx, "DO RELEASE_ALL_LOCKS()")
	_ = conn.Close()

	// Instead: a caller that claims one leaves the rest to others. If the server would lock more,
	// it gets an error.
	claim := func(n int) func(tx *sql.Tx) error {
		return func(tx *sql.Tx) error {
			jobs, err := mysqllock.Claim(ctx, tx, dblock.RowLock{}, n, one, "SELECT id FROM job ORDER BY due")
			if err == nil {
				fmt.Println("claimed:", jobs)
			}
			return err
		}
	}
	err = mysqllock.RunTx(ctx, db, mysqllock.TxOptions{}, claim(1))
	var scan *mysqllock.ScanError
	if errors.As(err, &scan) {
		fmt.Println("make", scan.Index)
	}
	_, _ = db.ExecContext(ctx, "CREATE INDEX by_due ON job (due)")
	err = mysqllock.RunTx(ctx, db, mysqllock.TxOptions{}, func(tx *sql.Tx) error {
		if err := claim(1)(tx); err != nil {
			return err
		}
		return mysqllock.RunTx(ctx, db, mysqllock.TxOptions{}, claim(100)) // another caller
	})
	fmt.Println(err)
	// Output:
	// job 8 is one of 8 that are locked, <nil>
	// make an index of the columns of its WHERE, followed by those of its ORDER BY
	// claimed: [8]
	// claimed: [7 6 5 4 3 2 1]
	// <nil>
}

// made is a database of the example's own, after some statements.
func made(statements ...string) (db *sql.DB, done func(), err error) {
	ctx := context.Background()
	dsn, drop := testdb.ExampleDSN(family()[0]) // yours: app@tcp(db.example)/shop
	if db, err = sql.Open("mysql", dsn); err != nil {
		drop()
		return nil, nil, err
	}
	done = func() {
		_ = db.Close()
		drop()
	}
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			done()
			return nil, nil, err
		}
	}
	return db, done, nil
}
