package pglock

import (
	"context"
	"testing"

	"github.com/dblock-go/dblock/internal/conformance/answers"
	"github.com/dblock-go/dblock/internal/devdb"
)

// TestPublicErrors: what a server reports has the same public error as in all other packages.
func TestPublicErrors(t *testing.T) {
	t.Parallel()
	t.Run("lease", func(t *testing.T) {
		answers.SameEverywhere(t, devdb.Postgres, func(err error) error {
			return answers.Lease(t, new(leaseDriver).Classify, err)
		})
	})
	t.Run("session lock", func(t *testing.T) {
		answers.SameEverywhere(t, devdb.Postgres, func(err error) error {
			return answers.SessionLock(t, new(sessionDriver).Classify, err)
		})
	})
	t.Run("begin of a transaction", func(t *testing.T) {
		answers.SameOnHostsTables(t, devdb.Postgres, func(err error) error { return errBegin(context.Background(), err) })
	})
}
