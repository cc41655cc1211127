package migrations

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3/lock"

	"github.com/dblock-go/dblock/internal/migratelock"
)

// closeBound bounds the goodbye to a server that may be gone.
const closeBound = time.Second

func newLocker(t *target, timeout time.Duration) lock.SessionLocker {
	if t.engine == Postgres {
		return &migratelock.Postgres{Schema: t.schema, Timeout: timeout, Close: closePgx}
	}
	return &migratelock.MySQL{Database: t.schema, Timeout: timeout}
}

// closePgx closes a connection of pgx itself: one from a pgxpool would go back there when
// database/sql throws it away.
func closePgx(driverConn any) {
	if c, ok := driverConn.(*stdlib.Conn); ok {
		ctx, cancel := context.WithTimeout(context.Background(), closeBound)
		defer cancel()
		_ = c.Conn().Close(ctx) // closed on our side in any case
	}
}
