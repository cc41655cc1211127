package migrations

import (
	"time"

	"github.com/pressly/goose/v3/lock"

	"github.com/dblock-go/dblock/internal/migratelock"
	"github.com/dblock-go/dblock/internal/postgres"
)

// closeBound bounds the goodbye to a server that may be gone.
const closeBound = time.Second

func newLocker(t *target, timeout time.Duration) lock.SessionLocker {
	if t.engine == Postgres {
		return &migratelock.Postgres{Schema: t.schema, Timeout: timeout, Close: postgres.CloseDriverConn}
	}
	return &migratelock.MySQL{Database: t.schema, Timeout: timeout}
}
