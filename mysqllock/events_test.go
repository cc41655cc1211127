package mysqllock

import (
	"context"
	"errors"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/answers"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// TestPublicErrors: what a server reports has the same public error as in all other packages.
func TestPublicErrors(t *testing.T) {
	t.Parallel()
	t.Run("lease", func(t *testing.T) {
		answers.SameEverywhere(t, devdb.MySQL, func(err error) error {
			return answers.Lease(t, new(conns).Classify, err)
		})
	})
	t.Run("session lock", func(t *testing.T) {
		answers.SameEverywhere(t, devdb.MySQL, func(err error) error {
			return answers.SessionLock(t, new(sessionDriver).Classify, err)
		})
	})
	t.Run("deadlock of session locks on MySQL", func(t *testing.T) {
		t.Parallel()
		deadlock := faultconn.MySQLError(3058, "HY000", "Deadlock found when trying to get user-level lock")
		err := answers.SessionLock(t, new(sessionDriver).Classify, deadlock)
		if !errors.Is(err, dblock.ErrConflict) {
			t.Errorf("got %v, want ErrConflict", err)
		}
	})
	t.Run("begin of a transaction", func(t *testing.T) {
		answers.SameOnHostsTables(t, devdb.MySQL, func(err error) error { return errBegin(context.Background(), err) })
	})
}
