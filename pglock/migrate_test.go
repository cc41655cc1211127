package pglock_test

import (
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/pglock"
)

func TestMigrationLocker(t *testing.T) {
	t.Parallel()
	conformance.Migrations{Kind: devdb.Postgres, Locker: func(name string, timeout time.Duration) (conformance.SessionLocker, error) {
		return pglock.NewMigrationLocker(pglock.MigrationOptions{Name: name, Timeout: timeout})
	}}.Run(t)
}
