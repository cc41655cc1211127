package lock

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// readersRaiseTogether has two readers raise a fence: both pass, until a writer raises it. Permits can't, as several
// hold them at once.
func readersRaiseTogether(t *testing.T, v *env) {
	a, b := v.process(t, LeaseOptions{}), v.process(t, LeaseOptions{})
	call := func(check func(context.Context, *sql.Tx, dblock.Fence, string) error, lock *dblock.Lock) error {
		return fencedTx(t.Context(), v.db, lock, func(ctx context.Context, tx *sql.Tx, f dblock.Fence, _ string) error {
			return check(ctx, tx, f, "report")
		}, func(*sql.Tx) error { return nil })
	}
	first, second := suite.Acquire(t, a, "k", dblock.WithShared()), suite.Acquire(t, b, "k", dblock.WithShared())
	for range 2 {
		for _, lock := range []*dblock.Lock{first, second} {
			if err := call(v.e.Raise, lock); err != nil {
				t.Error(err)
			}
		}
		for _, lock := range []*dblock.Lock{first, second} {
			if err := call(v.e.CheckRaised, lock); err != nil {
				t.Error(err)
			}
		}
	}
	suite.Release(t, first)
	suite.Release(t, second)
	writes := suite.Acquire(t, a, "k")
	if err := call(v.e.Raise, writes); err != nil {
		t.Error(err)
	}
	if err := call(v.e.CheckRaised, second); !errors.Is(err, dblock.ErrFenced) {
		t.Errorf("a reader after a writer: %v", err)
	}
	if err := call(v.e.CheckRaised, writes); err != nil {
		t.Error(err)
	}
	suite.Release(t, writes)
	permits := suite.Acquire(t, a, "k", dblock.WithPermits(1, 2))
	for _, check := range []func(context.Context, *sql.Tx, dblock.Fence, string) error{v.e.Raise, v.e.CheckRaised} {
		if err := call(check, permits); !errors.Is(err, dblock.ErrUnsupported) {
			t.Errorf("permits: %v", err)
		}
	}
	suite.Release(t, permits)
}
