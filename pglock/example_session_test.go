package pglock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/migrations"
	"github.com/dblock-go/dblock/pglock"
)

func ExampleNewSessionLocker() {
	ctx := context.Background()
	pool, done, err := made()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer done()
	sessions, err := pglock.NewSessionLocker(ctx, pool, pglock.SessionOptions{Label: "billing 7"}) // one a process; no tables
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = sessions.Close(ctx) }()

	lock, err := sessions.Acquire(ctx, "rebuild the index") // waits while ctx lives
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = sessions.TryAcquire(ctx, "rebuild the index")
	fmt.Println("another one:", errors.Is(err, dblock.ErrNotAcquired))

	work := lock.Context() // ends when the lock is lost, with the connection
	_, hasToken := lock.Fence()
	fmt.Println(work.Err(), "token:", hasToken) // there is none, and so no guard
	fmt.Println(lock.Release(ctx))

	// Readers together, a writer alone.
	one, err := sessions.Acquire(ctx, "price-list", dblock.WithShared())
	if err != nil {
		fmt.Println(err)
		return
	}
	two, err := sessions.Acquire(ctx, "price-list", dblock.WithShared())
	fmt.Println(err)
	_, err = sessions.TryAcquire(ctx, "price-list")
	fmt.Println("beside readers:", errors.Is(err, dblock.ErrNotAcquired))
	_, _ = one.Release(ctx), two.Release(ctx)
	// Output:
	// another one: true
	// <nil> token: false
	// <nil>
	// <nil>
	// beside readers: true
}

// nightly runs on every host at the same moment, and does its work on one of them. A row has to
// record that it is done: a late host finds the lock free again.
func nightly(ctx context.Context, sessions dblock.Locker, pool *pgxpool.Pool, report func(ctx context.Context) error) (string, error) {
	lock, err := sessions.TryAcquire(ctx, "nightly-report")
	if errors.Is(err, dblock.ErrNotAcquired) {
		return "another process does it", nil
	}
	if err != nil {
		return "", err
	}
	defer func() { _ = lock.Release(ctx) }()
	var done bool
	const look = "SELECT EXISTS (SELECT FROM report_run WHERE day = current_date)"
	if err := pool.QueryRow(ctx, look).Scan(&done); err != nil || done {
		return "it has run", err
	}
	if err := report(lock.Context()); err != nil { // ends when the lock is lost
		return "", err
	}
	_, err = pool.Exec(lock.Context(), "INSERT INTO report_run (day) VALUES (current_date)")
	return "done", err
}

// Run once, on one of many.
func ExampleSessionLocker_TryAcquire() {
	ctx := context.Background()
	pool, done, err := made("CREATE TABLE report_run (day date PRIMARY KEY)")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer done()
	here, err := pglock.NewSessionLocker(ctx, pool, pglock.SessionOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = here.Close(ctx) }()
	there, err := pglock.NewSessionLocker(ctx, pool, pglock.SessionOptions{}) // on another host
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = there.Close(ctx) }()

	fmt.Println(nightly(ctx, here, pool, func(ctx context.Context) error {
		fmt.Println(nightly(ctx, there, pool, nil))
		return nil
	}))
	fmt.Println(nightly(ctx, there, pool, nil))
	// Output:
	// another process does it <nil>
	// done <nil>
	// it has run <nil>
}

// A wait that is cancelled leaves nothing behind.
func ExampleSessionLocker_Acquire() {
	ctx := context.Background()
	pool, done, err := made()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer done()
	sessions, err := pglock.NewSessionLocker(ctx, pool, pglock.SessionOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = sessions.Close(ctx) }()
	lock, err := sessions.Acquire(ctx, "invoice-run")
	if err != nil {
		fmt.Println(err)
		return
	}

	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err = sessions.Acquire(short, "invoice-run")
	fmt.Println(errors.Is(err, dblock.ErrNotAcquired), errors.Is(err, context.DeadlineExceeded))

	_ = lock.Release(ctx)
	again, err := sessions.TryAcquire(ctx, "invoice-run") // a caller that gave up excludes no other
	fmt.Println(err)
	_ = again.Release(ctx)
	// Output:
	// true true
	// <nil>
}

// locker has session locks where the way to the server allows them, and leases where it does not,
// as behind PgBouncer. A lease knows nothing of a session lock: all users of a key have to connect
// the same way. A server that can't be reached is no reason to use another kind of lock.
func locker(ctx context.Context, pool *pgxpool.Pool) (dblock.Locker, error) {
	sessions, err := pglock.NewSessionLocker(ctx, pool, pglock.SessionOptions{})
	if err == nil {
		return sessions, nil
	}
	if !errors.Is(err, dblock.ErrUnsupported) {
		return nil, err
	}
	log.Print("leases in place of session locks: ", err) // says why
	leases, err := pglock.NewLeaseLocker(ctx, pool, pglock.LeaseOptions{})
	if err != nil {
		return nil, err
	}
	return leases, nil
}

// Session locks where there are any. A lease of the same key is another lock.
func Example_degrade() {
	ctx := context.Background()
	pool, done, err := made()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer done()
	if _, err := migrations.Up(ctx, pool, migrations.Options{}); err != nil { // leases need tables
		fmt.Println(err)
		return
	}
	locks, err := locker(ctx, pool)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = locks.Close(ctx) }()
	lock, err := locks.Acquire(ctx, "invoice-run")
	fmt.Printf("%T %v\n", locks, err)

	leases, err := pglock.NewLeaseLocker(ctx, pool, pglock.LeaseOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = leases.Close(ctx) }()
	other, err := leases.TryAcquire(ctx, "invoice-run")
	fmt.Println("beside it:", err)
	_, _ = lock.Release(ctx), other.Release(ctx)
	// Output:
	// *pglock.SessionLocker <nil>
	// beside it: <nil>
}
