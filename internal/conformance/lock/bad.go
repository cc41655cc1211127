package lock

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
)

// aBadRowStopsNoOther has rows that no statement of dblock's writes. They concern calls for their own keys alone, and end no
// call but with an answer.
func aBadRowStopsNoOther(t *testing.T, v *env) {
	l, other := v.process(t, LeaseOptions{}), v.process(t, LeaseOptions{})
	ctx := suite.Soon(t)

	two := dblock.WithPermits(1, 2)
	v.exec(t, "ALTER TABLE dblock_semaphore DROP CONSTRAINT dblock_semaphore_positive") // the rows here are older than it
	v.exec(t, "INSERT INTO dblock_semaphore (lease_key, permits) VALUES ('none', 0)")
	if _, err := l.TryAcquire(ctx, "none", two); !errors.Is(err, dblock.ErrLimit) {
		t.Errorf("a semaphore without permits: %v", err)
	}
	if err := l.SetPermits(ctx, "none", 2); err != nil {
		t.Fatal(err)
	}
	suite.Release(t, suite.Acquire(t, l, "none", two))
	if v.e.Kind != devdb.Postgres {
		return // which alone has times that are not finite
	}
	const long = time.Minute
	locks := []*dblock.Lock{
		suite.Acquire(t, l, "well"), suite.Acquire(t, l, "for ever", dblock.WithoutRenewal(long)), suite.Acquire(t, l, "always", dblock.WithoutRenewal(long)),
		suite.Acquire(t, l, "read", dblock.WithShared(), dblock.WithoutRenewal(long)), suite.Acquire(t, l, "permit", two, dblock.WithoutRenewal(long)),
	}
	for _, table := range []string{"lease", "reader", "permit"} {
		v.exec(t, fmt.Sprintf("ALTER TABLE dblock_%[1]s DROP CONSTRAINT dblock_%[1]s_finite", table))
	}
	v.exec(t, "UPDATE dblock_lease SET held_until = 'infinity' WHERE lease_key = 'for ever'")
	v.exec(t, "UPDATE dblock_lease SET changed_at = '-infinity' WHERE lease_key = 'always'")
	v.exec(t, "UPDATE dblock_reader SET held_until = 'infinity'")
	v.exec(t, "UPDATE dblock_permit SET held_until = 'infinity' WHERE handle IS NOT NULL")
	held, err := l.Held(ctx)
	if err != nil || len(held) != len(locks) {
		t.Errorf("%d of %d locks are listed: %v", len(held), len(locks), err)
	}
	for _, key := range []string{"for ever", "always", "read"} {
		if _, err := other.TryAcquire(ctx, key); !errors.Is(err, dblock.ErrNotAcquired) {
			t.Errorf("%s: %v", key, err)
		}
		if _, err := other.Holder(ctx, key); err != nil && !errors.Is(err, dblock.ErrNotHeld) {
			t.Errorf("the holder of %s: %v", key, err)
		}
	}
	if _, err := other.TryAcquire(ctx, "permit", dblock.WithPermits(2, 2)); !errors.Is(err, dblock.ErrNotAcquired) {
		t.Errorf("permits: %v", err)
	}
}
