package mysqllock

import (
	"context"
	"errors"
	"testing"

	"github.com/dblock-go/dblock/db/mysqldb"
)

// TestGrantLeavesNoLevel ends a statement that acquires in each way in which it begins no
// transaction. The host's next transaction on the connection must not see uncommitted rows, and has
// its own bound. The control leaves the level.
func TestGrantLeavesNoLevel(t *testing.T) {
	each(t, plain, func(r rig) {
		r.exec("CREATE TABLE account (n INT)")
		writer, err := openDB(r.T, r.dsn).BeginTx(r.ctx, nil)
		r.ok(err)
		defer func() { _ = writer.Rollback() }()
		_, err = writer.ExecContext(r.ctx, "INSERT INTO account VALUES (1)")
		r.ok(err)
		r.db.SetMaxOpenConns(1)
		left := func() (dirty, wait int64) {
			r.ok(r.db.QueryRowContext(r.ctx, "SELECT COUNT(*), @@SESSION.innodb_lock_wait_timeout FROM account").Scan(&dirty, &wait))
			return dirty, wait
		}
		_, own := left()

		ctx, cancel := context.WithCancel(r.ctx)
		defer cancel()
		ends := map[string]func(context.Context, mysqldb.DBTX) error{
			"refused by the server": func(ctx context.Context, on mysqldb.DBTX) error {
				_, err := on.ExecContext(ctx, "INSERT INTO missing VALUES (1)")
				return err
			},
			"too long": func(context.Context, mysqldb.DBTX) error { return errors.New("nothing was sent") },
			"of an ended context": func(_ context.Context, on mysqldb.DBTX) error {
				cancel()
				_, err := on.ExecContext(ctx, "INSERT INTO account VALUES (2)")
				return err
			},
			"without a transaction": func(ctx context.Context, on mysqldb.DBTX) error {
				_, err := on.ExecContext(ctx, "DO 0")
				return err
			},
		}
		for name, end := range ends {
			within := r.ctx
			if name == "of an ended context" {
				within = ctx
			}
			err := r.grant(within, func(on mysqldb.DBTX) error { return end(within, on) })
			if (err == nil) != (name == "without a transaction") {
				r.Errorf("a statement %s: %v", name, err)
			}
			if dirty, wait := left(); dirty != 0 || wait != own {
				r.Errorf("after a statement %s the host sees %d uncommitted rows, and waits for %d s, not %d", name, dirty, wait, own)
			}
		}
		set, _ := bounds(r.leaseDriver.db)
		r.exec(set)
		if dirty, wait := left(); dirty != 1 || wait != 1 {
			r.Errorf("control: %d uncommitted rows, %d s", dirty, wait)
		}
	})
}
