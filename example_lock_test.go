package dblock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
)

// One caller at a time runs the function. Locks are not reentrant: the same call can't acquire the
// key again, unless it asks for that. In a service the Locker is one of pglock or mysqllock.
func ExampleDo() {
	ctx := context.Background()
	leases, err := dblocktest.NewServer(nil).NewLeaseLocker(dblocktest.LeaseOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = leases.Close(ctx) }()

	err = dblock.Do(ctx, leases, "nightly-report", func(within context.Context, _ *dblock.Lock) error {
		_, err := leases.TryAcquire(ctx, "nightly-report")
		fmt.Println("another call:", errors.Is(err, dblock.ErrNotAcquired))

		_, err = leases.TryAcquire(within, "nightly-report")
		fmt.Println("the same call:", errors.Is(err, dblock.ErrDeadlock))

		again, err := leases.TryAcquire(within, "nightly-report", dblock.WithReentrant())
		fmt.Println("reentrant:", err)
		return again.Release(within)
	})
	fmt.Println(err)
	// Output:
	// another call: true
	// the same call: true
	// reentrant: <nil>
	// <nil>
}

// The context of a lock ends when the lock is lost, and says why. Release returns the same.
func ExampleLock_Context() {
	ctx := context.Background()
	leases, err := dblocktest.NewServer(nil).NewLeaseLocker(dblocktest.LeaseOptions{})
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

	leases.Lose("invoice-run") // as an operator's `dblock unlock` does
	<-lock.Context().Done()
	var lost *dblock.LostError
	if errors.As(context.Cause(lock.Context()), &lost) {
		fmt.Println(lost.Key, lost.Reason == dblock.ReasonStolen)
	}
	fmt.Println(errors.Is(lock.Release(ctx), dblock.ErrLost))
	// Output:
	// invoice-run true
	// true
}

// The error of a call that did not acquire the lock names its holder.
func ExampleHeldError() {
	ctx := context.Background()
	server := dblocktest.NewServer(nil)
	leases, err := server.NewLeaseLocker(dblocktest.LeaseOptions{Label: "host-7"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = leases.Close(ctx) }()
	others, err := server.NewLeaseLocker(dblocktest.LeaseOptions{}) // another process
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = others.Close(ctx) }()
	lock, err := leases.Acquire(ctx, "nightly")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = lock.Release(ctx) }()

	_, err = others.TryAcquire(ctx, "nightly")
	var held *dblock.HeldError
	if errors.As(err, &held) {
		fmt.Println(held.Key, "is held by", held.Holder.Label)
	}
	// Output: nightly is held by host-7
}
