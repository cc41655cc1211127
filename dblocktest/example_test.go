package dblocktest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
)

// bill is the service under test: it writes each invoice under one lock, with its fence.
func bill(ctx context.Context, locks dblock.Locker, invoices []string, write func(dblock.Fence, string) error) error {
	return dblock.Do(ctx, locks, "invoice-run", func(ctx context.Context, lock *dblock.Lock) error {
		f, _ := lock.Fence()
		for _, invoice := range invoices {
			if err := write(f, invoice); err != nil {
				return err
			}
		}
		return nil
	})
}

func TestBilling(t *testing.T) {
	locks := dblocktest.New(t)
	written := 0
	err := bill(t.Context(), locks, []string{"A", "B"}, func(dblock.Fence, string) error { written++; return nil })
	if err != nil || written != 2 {
		t.Errorf("%d written, %v", written, err)
	}
}

// A service loses its lock midway. What it writes after that is refused, as a guard in a database
// refuses it.
func Example() {
	server := dblocktest.NewServer(nil)
	locks, err := server.NewLeaseLocker(dblocktest.LeaseOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = locks.Close(context.Background()) }()

	var written []string
	err = bill(context.Background(), locks, []string{"A", "B", "C"}, func(f dblock.Fence, invoice string) error {
		if invoice == "B" {
			locks.Lose("invoice-run")
		}
		if err := server.Check(f); err != nil {
			return err
		}
		written = append(written, invoice)
		return nil
	})
	fmt.Println(written, errors.Is(err, dblock.ErrFenced), errors.Is(err, dblock.ErrLost))
	// Output: [A] true true
}

// A process is paused for longer than its TTL, and another one takes over. The clock decides, and
// the test does not wait.
func ExampleClock() {
	clock := dblocktest.NewClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	server := dblocktest.NewServer(clock)
	a, err := server.NewLeaseLocker(dblocktest.LeaseOptions{TTL: 10 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	b, err := server.NewLeaseLocker(dblocktest.LeaseOptions{TTL: 10 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	defer func() { _ = errors.Join(a.Close(ctx), b.Close(ctx)) }()

	lock, err := a.Acquire(ctx, "invoice-run")
	if err != nil {
		fmt.Println(err)
		return
	}
	clock.Advance(time.Hour) // a's heartbeats are sent on the way
	fmt.Println(lock.Context().Err())

	a.StopHeartbeats()
	clock.Advance(10 * time.Second)
	fmt.Println(context.Cause(lock.Context()))

	next, err := b.TryAcquire(ctx, "invoice-run")
	if err != nil {
		fmt.Println(err)
		return
	}
	f, _ := lock.Fence()
	fmt.Println(errors.Is(server.Check(f), dblock.ErrFenced))
	fmt.Println(errors.Is(lock.Release(ctx), dblock.ErrLost), next.Release(ctx))
	// Output:
	// <nil>
	// dblock: lost "invoice-run": the member expired: no heartbeat was confirmed in time
	// true
	// true <nil>
}

// What can happen to a process.
func ExampleServer() {
	clock := dblocktest.NewClock(time.Now())
	server := dblocktest.NewServer(clock)
	a, err := server.NewLeaseLocker(dblocktest.LeaseOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	defer func() { _ = a.Close(ctx) }()

	lock, err := a.Acquire(ctx, "invoice-run")
	if err != nil {
		fmt.Println(err)
		return
	}
	a.StopHeartbeats()
	clock.Advance(10 * time.Second)
	fmt.Println(errors.Is(lock.Release(ctx), dblock.ErrLost))

	a.ResumeHeartbeats()
	lock, err = a.Acquire(ctx, "invoice-run")
	if err != nil {
		fmt.Println(err)
		return
	}
	fence, _ := lock.Fence()
	a.Lose("invoice-run")
	fmt.Println(errors.Is(server.Check(fence), dblock.ErrFenced), errors.Is(lock.Release(ctx), dblock.ErrLost))

	a.Fail(dblock.ErrOutcomeUnknown)
	_, err = a.Acquire(ctx, "invoice-run")
	fmt.Println(errors.Is(err, dblock.ErrOutcomeUnknown))
	// Output:
	// true
	// true true
	// true
}

// A call fails as calls to a database do.
func ExampleLeaseLocker_Fail() {
	locks, err := dblocktest.NewServer(nil).NewLeaseLocker(dblocktest.LeaseOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = locks.Close(context.Background()) }()

	locks.Fail(dblock.ErrUnavailable)
	err = bill(context.Background(), locks, nil, nil)
	fmt.Println(errors.Is(err, dblock.ErrUnavailable))
	// Output: true
}
