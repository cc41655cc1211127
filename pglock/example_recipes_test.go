package pglock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/pglock"
)

// invoice makes an invoice with the next number. It has the counter until it commits: others wait,
// and a number that was rolled back goes to the next one.
func invoice(ctx context.Context, pool *pgxpool.Pool, customer string) (number int64, err error) {
	err = pglock.RunTx(ctx, pool, pglock.TxOptions{}, func(tx pgx.Tx) error {
		err := pglock.LockRow(ctx, tx, "counter", "name", "invoice", dblock.RowLock{Wait: dblock.WaitAtMost(5 * time.Second)})
		if err != nil {
			return err
		}
		const next = "UPDATE counter SET last = last + 1 WHERE name = 'invoice' RETURNING last"
		if err := tx.QueryRow(ctx, next).Scan(&number); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "INSERT INTO invoice (number, customer) VALUES ($1, $2)", number, customer)
		return err
	})
	return number, err
}

// Numbers without gaps: those of a sequence are not.
func ExampleLockRow_gapless() {
	ctx := context.Background()
	pool, done, err := made("CREATE TABLE counter (name text PRIMARY KEY, last bigint NOT NULL)",
		"INSERT INTO counter VALUES ('invoice', 0)",
		"CREATE TABLE invoice (number bigint PRIMARY KEY, customer text NOT NULL CHECK (customer <> ''))",
		"CREATE TABLE voucher (number bigserial PRIMARY KEY, customer text NOT NULL CHECK (customer <> ''))")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer done()
	for _, customer := range []string{"ann", "", "bob"} {
		number, err := invoice(ctx, pool, customer)
		fmt.Println("invoice", number, err == nil)
		_ = pool.QueryRow(ctx, "INSERT INTO voucher (customer) VALUES ($1) RETURNING number", customer).Scan(&number)
	}
	var vouchers []int64
	err = pool.QueryRow(ctx, "SELECT array_agg(number ORDER BY number) FROM voucher").Scan(&vouchers)
	fmt.Println("vouchers", vouchers, err)
	// Output:
	// invoice 1 true
	// invoice 2 false
	// invoice 2 true
	// vouchers [1 3] <nil>
}

var errTeamIsFull = errors.New("the team is full")

// join has at most three in a team. Without the lock two could count two each, and both join.
func join(ctx context.Context, pool *pgxpool.Pool, team, name string) error {
	return pglock.RunTx(ctx, pool, pglock.TxOptions{}, func(tx pgx.Tx) error { // READ COMMITTED: what is counted is of now
		if err := pglock.LockTx(ctx, tx, dblock.WaitAtMost(5*time.Second), pglock.KeyOf("team", team)); err != nil {
			return err
		}
		var members int
		if err := tx.QueryRow(ctx, "SELECT count(*) FROM member WHERE team = $1", team).Scan(&members); err != nil {
			return err
		}
		if members == 3 {
			return errTeamIsFull
		}
		_, err := tx.Exec(ctx, "INSERT INTO member (team, name) VALUES ($1, $2)", team, name)
		return err
	})
}

// At most so many rows a group: there is no row to lock before the first one, and so the group's
// name is.
func ExampleLockTx_atMost() {
	ctx := context.Background()
	pool, done, err := made("CREATE TABLE member (team text, name text, PRIMARY KEY (team, name))")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer done()
	var full atomic.Int64
	var callers sync.WaitGroup
	for _, name := range []string{"ann", "bob", "cy", "dan", "eve"} {
		callers.Go(func() {
			if err := join(ctx, pool, "red", name); errors.Is(err, errTeamIsFull) {
				full.Add(1)
			} else if err != nil {
				fmt.Println(err)
			}
		})
	}
	callers.Wait()
	var members int
	err = pool.QueryRow(ctx, "SELECT count(*) FROM member").Scan(&members)
	fmt.Println(members, "joined,", full.Load(), "were refused as full,", err)
	// Output: 3 joined, 2 were refused as full, <nil>
}

// transfer has both accounts before it looks at one. Two that go opposite ways never deadlock.
func transfer(ctx context.Context, pool *pgxpool.Pool, o pglock.TxOptions, from, to, amount int64) error {
	return pglock.RunTx(ctx, pool, o, func(tx pgx.Tx) error {
		rows, err := pglock.LockRows(ctx, tx, "account", "id", []int64{from, to}, dblock.RowLock{Wait: dblock.WaitAtMost(5 * time.Second)})
		if err != nil {
			return err
		}
		if len(rows.Locked) < 2 {
			return fmt.Errorf("of accounts %d and %d there are only %v", from, to, rows.Locked)
		}
		const move = "UPDATE account SET balance = balance + CASE id WHEN $1 THEN -$3::bigint ELSE $3 END WHERE id IN ($1, $2)"
		_, err = tx.Exec(ctx, move, from, to, amount)
		return err
	})
}

// Two accounts, without a deadlock.
func ExampleLockRows_transfer() {
	ctx := context.Background()
	pool, done, err := made("CREATE TABLE account (id bigint PRIMARY KEY, balance bigint NOT NULL)",
		"INSERT INTO account VALUES (3, 500), (7, 500)")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer done()
	var conflicts atomic.Int64
	options := pglock.TxOptions{OnRetry: func(int, error) { conflicts.Add(1) }}
	var callers sync.WaitGroup
	for _, pair := range [][2]int64{{3, 7}, {7, 3}} {
		callers.Go(func() {
			for range 50 {
				if err := transfer(ctx, pool, options, pair[0], pair[1], 1); err != nil {
					fmt.Println(err)
				}
			}
		})
	}
	callers.Wait()
	var sum, first int64
	err = pool.QueryRow(ctx, "SELECT sum(balance)::bigint, min(balance) FROM account").Scan(&sum, &first)
	fmt.Println(sum, first, err, "conflicts:", conflicts.Load())
	// Output: 1000 500 <nil> conflicts: 0
}

// Any two free seats, now. Another caller at the same moment gets two others.
func ExampleClaim_seat() {
	ctx := context.Background()
	pool, done, err := made("CREATE TABLE seat (id bigint PRIMARY KEY, buyer text)",
		"INSERT INTO seat SELECT generate_series(1, 5)")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer done()
	buy := func(buyer string, meanwhile func()) error {
		return pglock.RunTx(ctx, pool, pglock.TxOptions{}, func(tx pgx.Tx) error {
			seats, err := pglock.Claim(ctx, tx, dblock.RowLock{}, 2, pgx.RowTo[int64],
				"SELECT id FROM seat WHERE buyer IS NULL ORDER BY id")
			if err != nil {
				return err
			}
			fmt.Println(buyer, "gets", seats)
			meanwhile()
			_, err = tx.Exec(ctx, "UPDATE seat SET buyer = $1 WHERE id = ANY($2)", buyer, seats)
			return err
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
	pool, done, err := made("CREATE TABLE job (id bigint PRIMARY KEY, due int NOT NULL)",
		"INSERT INTO job SELECT n, 100 - n FROM generate_series(1, 100) n")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer done()
	tx, err := pool.Begin(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = tx.Rollback(ctx) }()
	var first, locks int64
	const hazard = "SELECT id FROM job WHERE pg_try_advisory_xact_lock(id) ORDER BY due LIMIT 1"
	_ = tx.QueryRow(ctx, hazard).Scan(&first)
	err = tx.QueryRow(ctx, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()").Scan(&locks)
	fmt.Println("job", first, "is one of", locks, "that are locked,", err)

	// Instead: a caller that claims one leaves the rest to others.
	one, _ := pglock.Claim(ctx, tx, dblock.RowLock{}, 1, pgx.RowTo[int64], "SELECT id FROM job ORDER BY due")
	err = pglock.RunTx(ctx, pool, pglock.TxOptions{}, func(tx pgx.Tx) error {
		rest, err := pglock.Claim(ctx, tx, dblock.RowLock{}, 100, pgx.RowTo[int64], "SELECT id FROM job ORDER BY due")
		fmt.Println("job", one, "is claimed,", len(rest), "are left,", err)
		return err
	})
	fmt.Println(err)
	// Output:
	// job 100 is one of 100 that are locked, <nil>
	// job [100] is claimed, 99 are left, <nil>
	// <nil>
}

// made is a database of the example's own, after some statements.
func made(statements ...string) (pool *pgxpool.Pool, done func(), err error) {
	ctx := context.Background()
	url, drop := testdb.ExampleDSN(devdb.Postgres) // yours: postgres://app@db.example/shop
	if pool, err = pgxpool.New(ctx, url); err != nil {
		drop()
		return nil, nil, err
	}
	done = func() {
		pool.Close()
		drop()
	}
	for _, statement := range statements {
		if _, err := pool.Exec(ctx, statement); err != nil {
			done()
			return nil, nil, err
		}
	}
	return pool, done, nil
}
