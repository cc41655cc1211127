package lock

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/answers"
)

// RunAnswers replaces the server's answers while rows are locked.
func (e RowLocks) RunAnswers(t *testing.T) {
	answers.Run(t, e.Kind, []answers.User{{Name: "rows", Use: e.use}})
}

func (e RowLocks) use(ctx context.Context, x *answers.Trial) error {
	for _, statement := range []string{
		"CREATE TABLE IF NOT EXISTS seat (id BIGINT PRIMARY KEY, sold INT NOT NULL)", "DELETE FROM seat", "INSERT INTO seat VALUES (1, 0), (2, 0), (3, 0)",
	} {
		if _, err := x.DB.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	begin, closePool, err := e.Open(x.DSN, 4, sql.LevelReadCommitted)
	if err != nil {
		return err
	}
	defer closePool()
	once := func(ctx context.Context, told func(error)) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		tx, err := begin(ctx)
		if err != nil {
			return err // the driver's
		}
		err = tx.LockRow(ctx, "seat", "id", 1, dblock.RowLock{Wait: e.Bound})
		told(err)
		if err == nil {
			_, err = tx.LockRows(ctx, "seat", "id", []int64{1, 2, 3}, dblock.RowLock{Wait: dblock.SkipLocked})
			told(err)
		}
		if err == nil {
			_, err = tx.Claim(ctx, dblock.RowLock{}, 1, "SELECT id FROM seat ORDER BY id")
			told(err)
		}
		if err != nil {
			return errors.Join(err, tx.Rollback(ctx))
		}
		return tx.Commit(ctx)
	}
	for range x.Crowd {
		_ = once(ctx, x.Told)
	}
	x.Heal()
	return x.Again(ctx, "locking rows", func(ctx context.Context) error { return once(ctx, func(error) {}) })
}
