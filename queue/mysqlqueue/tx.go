package mysqlqueue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// work is a transaction that a handler works in.
type work struct {
	d  *database
	tx *mysql.Tx
}

var _ driver.Beginner[*sql.Tx] = (*database)(nil)

// Begin records on the connection of the transaction: to wait for another one of the pool, all
// connections of which may be those of handlers, could last for ever.
func (d *database) Begin(ctx context.Context, m member.ID, first *driver.Position) (*sql.Tx, driver.HandlerTx, driver.Beginning, error) {
	got := driver.BeginRecorded
	var recording error
	tx, err := mysql.Begin(ctx, d.db.DB, mysql.ReadCommitted+", READ WRITE", func(conn *sql.Conn) error {
		if first == nil {
			return nil
		}
		var begun, locked []driver.ID
		begun, locked, recording = d.beginJobs(ctx, d.on(conn), m, []driver.Position{*first})
		if got = driver.BeginningOf(begun, locked); recording == nil && got != driver.BeginRecorded {
			return errNotRecorded
		}
		return recording
	})
	switch {
	case recording != nil:
		return nil, nil, got, recording
	case errors.Is(err, errNotRecorded):
		return nil, nil, got, nil
	case err != nil:
		return nil, nil, got, sqlerr.Unwritten(err)
	}
	return tx.Tx, &work{d, tx}, got, nil
}

var errNotRecorded = errors.New("queue: the beginning of the job was not recorded")

// End looks whether the transaction is still the one that was begun: in another one, or in none,
// the end would be written by itself.
func (w *work) End(ctx context.Context, x *driver.SyncBatch) (ours bool, err error) {
	if !w.tx.Keep() {
		return false, errors.New("mysqlqueue: the transaction was rolled back, as the handler's context had ended")
	}
	if err := w.tx.Check(ctx); err != nil {
		return false, ended(err)
	}
	e := &syncTx{d: w.d, ctx: ctx, on: w.d.on(w.tx.Tx), me: x.Member}
	var got driver.SyncResult
	for _, step := range []func(*driver.SyncBatch, *driver.SyncResult) error{e.finish, w.lockKeys(e), e.free} {
		if err := step(x, &got); errors.Is(err, errSomeLost) {
			return false, nil
		} else if err != nil {
			return false, err
		}
	}
	return got.Completed == len(x.Completed), nil
}

// keysMark is a savepoint before the locks of a job's keys.
const keysMark = "dblock_queue_keys"

// lockKeys locks the keys of the job. A statement that does not wait is repeated, as the server
// counts a wait in seconds. A refusal may have rolled back the whole transaction
// (innodb_rollback_on_timeout), so that a savepoint has to show that it stands.
func (w *work) lockKeys(e *syncTx) func(*driver.SyncBatch, *driver.SyncResult) error {
	return func(x *driver.SyncBatch, _ *driver.SyncResult) error {
		keys, groups := e.freed.of()
		if len(keys)+len(groups) == 0 {
			return nil
		}
		if _, err := w.tx.ExecContext(e.ctx, "SAVEPOINT "+keysMark); err != nil {
			return err
		}
		var refused error
		for pause, waited := time.Millisecond, time.Duration(0); ; pause, waited = 2*pause, waited+pause {
			err := lockKeysNow(e.ctx, e.on, keys, groups)
			if err == nil {
				break
			}
			if refused = err; !mysql.IsLocked(err) || pace.Sleep(e.ctx, pause) != nil {
				return err
			}
			if waited >= x.RowWait() {
				if err := w.waitForKeys(e, keys, groups); err != nil {
					return err
				}
				break
			}
		}
		_, err := w.tx.ExecContext(e.ctx, "RELEASE SAVEPOINT "+keysMark)
		if refused != nil && mysql.IsNoSavepoint(err) {
			return refused
		}
		return err
	}
}

// waitForKeys waits for a second, in the server's queue for the rows. Where others wait there all
// the time, a statement that does not wait would always be too late.
func (w *work) waitForKeys(e *syncTx, keys, groups []key) error {
	return mysql.ForASecond(e.ctx, w.tx.Tx, func() error {
		return lockKeysOf(e.ctx, e.on, mysqldb.LockedHolders, mysqldb.LockGroups, keys, groups)
	})
}

// ended says what it means that the savepoint can't be released.
func ended(err error) error {
	switch {
	case errors.Is(err, sql.ErrTxDone):
		return fmt.Errorf("%w: the handler committed it or rolled it back: return nil to have it committed, an error to have it rolled back: %w",
			dblock.ErrTxEnded, err)
	case mysql.IsNoSavepoint(err):
		return fmt.Errorf("%w: the handler did not return an error that rolled it back, or sent a statement that commits: what was sent "+
			"after that is written (what came before a statement that commits, too): return all errors, and keep such statements out: %w",
			dblock.ErrTxEnded, err)
	}
	return err
}

func (w *work) Commit(ctx context.Context) error { return w.tx.Commit(ctx) }

func (w *work) Rollback(context.Context) { w.tx.Return(func() {}) }
