package migrations

import (
	"context"
	"database/sql"
	"errors"
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

// preparing is a locker that does something first with the lock it gets. It remembers what went
// wrong, because goose's errors bury it.
type preparing struct {
	lock.SessionLocker
	prepare            func(context.Context, *sql.Conn) error
	lockErr, unlockErr error
}

func (p *preparing) SessionLock(ctx context.Context, conn *sql.Conn) error {
	p.lockErr = p.SessionLocker.SessionLock(ctx, conn)
	if p.lockErr != nil {
		return p.lockErr
	}
	if err := p.prepare(ctx, conn); err != nil {
		// goose unlocks only what it takes for locked.
		p.lockErr = errors.Join(err, p.SessionLocker.SessionUnlock(ctx, conn))
	}
	return p.lockErr
}

func (p *preparing) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	p.unlockErr = p.SessionLocker.SessionUnlock(ctx, conn)
	return p.unlockErr
}
