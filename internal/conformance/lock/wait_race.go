package lock

import (
	"context"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// aReleaseBesideAWait has a wait begin while a release is under way: the release does not see the waiter, and commits
// after the waiter has asked. So it wakes no one. The waiter must find out long before its next regular poll.
func aReleaseBesideAWait(t *testing.T, v *env) {
	for name, c := range map[string]struct {
		fair           bool
		held, wanted   []dblock.Option
		release, began string
	}{
		"exclusive": {
			release: "UPDATE dblock_lease SET handle = NULL, member_id = NULL, held_until = NULL",
			began:   "SELECT count(*) FROM dblock_lease_waiter",
		},
		"fair": {
			fair:    true,
			release: "UPDATE dblock_lease SET handle = NULL, member_id = NULL, held_until = NULL",
			began:   "SELECT count(*) FROM dblock_ticket",
		},
		"shared": {
			held:    []dblock.Option{dblock.WithShared()},
			release: "DELETE FROM dblock_reader",
			began:   "SELECT count(*) FROM dblock_lease_waiter",
		},
		"permits": {
			held: []dblock.Option{dblock.WithPermits(1, 1)}, wanted: []dblock.Option{dblock.WithPermits(1, 1)},
			release: "UPDATE dblock_permit SET handle = NULL, together = 0, member_id = NULL, held_until = NULL",
			began:   "SELECT count(*) FROM dblock_lease_waiter",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := v.e.env(t)
			const poll = time.Minute
			a := v.process(t, LeaseOptions{Fair: c.fair, Poll: poll})
			b := v.process(t, LeaseOptions{Fair: c.fair, Poll: poll})
			held := suite.Acquire(t, a, "k", c.held...)
			tx, err := v.db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback() }()
			if _, err := tx.ExecContext(t.Context(), c.release); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), poll/3) // a regular poll comes after half of it at the earliest
			defer cancel()
			got := make(chan error, 1)
			go func() {
				lock, err := b.Acquire(ctx, "k", c.wanted...)
				if err == nil {
					err = lock.Release(context.WithoutCancel(ctx))
				}
				got <- err
			}()
			for v.count(t, c.began) == 0 {
				select {
				case err := <-got:
					t.Fatalf("the wait ended before it was noted: %v", err)
				case <-time.After(time.Millisecond):
				}
			}
			time.Sleep(50 * time.Millisecond) // by then it has asked once more
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			if err := <-got; err != nil {
				t.Errorf("a release that committed beside the begin of a wait: %v", err)
			}
			_ = held.Release(t.Context()) // it knows of nothing
		})
	}
}
