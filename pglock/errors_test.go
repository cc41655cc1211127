package pglock_test

import (
	"testing"

	"github.com/dblock-go/dblock/internal/conformance/answers"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/pglock"
)

func TestVerdicts(t *testing.T) {
	t.Parallel()
	answers.Verdicts{
		Kind: devdb.Postgres, Retryable: pglock.Retryable, IsLockTimeout: pglock.IsLockTimeout, IsDeadlock: pglock.IsDeadlock,
		Of: postgres.Classify,
	}.Run(t)
}
