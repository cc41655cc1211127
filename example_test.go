package dblock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
)

// One of many processes leads, and the others know where it is. In a service the Locker is a
// pglock.LeaseLocker or a mysqllock.LeaseLocker, and the leader writes in its GuardedTx.
func ExampleElector() {
	leases, err := dblocktest.NewServer(nil).NewLeaseLocker(dblocktest.LeaseOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	defer func() { _ = leases.Close(ctx) }()

	candidate, err := dblock.NewElector(leases, "scheduler", dblock.ElectorOptions{Data: []byte("10.0.0.7:8080")})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = candidate.Run(ctx, func(ctx context.Context, term dblock.Fence) error {
		leader, err := candidate.Leader(ctx)
		if err != nil {
			return err
		}
		fmt.Println(string(leader.Data), leader.Fence == term)
		return errors.New("its work is done") // ends Run; to wait for ctx would be to lead on
	})
	fmt.Println(err)
	// Output:
	// 10.0.0.7:8080 true
	// its work is done
}

// Every process may watch the leader.
func ExampleElector_Observe() {
	leases, err := dblocktest.NewServer(nil).NewLeaseLocker(dblocktest.LeaseOptions{Label: "worker 7"})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	defer func() { _ = leases.Close(ctx) }()
	watcher, err := dblock.NewElector(leases, "scheduler", dblock.ElectorOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	lock, err := leases.Acquire(ctx, "scheduler")
	if err != nil {
		fmt.Println(err)
		return
	}
	for leader, err := range watcher.Observe(ctx) {
		switch {
		case err == nil:
			fmt.Println(leader.Holder.Label)
			_ = lock.Release(ctx)
			continue
		case errors.Is(err, dblock.ErrNotHeld):
			fmt.Println("no leader")
		default:
			fmt.Println(err)
		}
		break
	}
	// Output:
	// worker 7
	// no leader
}

// A lock outlives any one of three databases.
func ExampleQuorum() {
	ctx := context.Background()
	var nodes []dblock.Locker
	for range 3 { // in a service: a pglock.LeaseLocker or a mysqllock.LeaseLocker on a server of its own each
		leases, err := dblocktest.NewServer(nil).NewLeaseLocker(dblocktest.LeaseOptions{})
		if err != nil {
			fmt.Println(err)
			return
		}
		defer func() { _ = leases.Close(ctx) }()
		nodes = append(nodes, leases)
	}
	quorum, err := dblock.NewQuorum(nodes, dblock.QuorumOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = quorum.Close(ctx) }()

	nodes[1].(*dblocktest.LeaseLocker).Fail(dblock.ErrUnavailable)
	err = dblock.Do(ctx, quorum, "send-newsletter", func(context.Context, *dblock.Lock) error {
		fmt.Println("sent")
		return nil
	})
	fmt.Println(err)
	// Output:
	// sent
	// <nil>
}
