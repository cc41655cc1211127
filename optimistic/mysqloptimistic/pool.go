package mysqloptimistic

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/ctxerr"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/mysqllock"
	"github.com/dblock-go/dblock/optimistic/internal/attempt"
	"github.com/dblock-go/dblock/optimistic/internal/driver"
)

// pool is what is known of a *sql.DB whose settings were checked.
type pool struct {
	key      weak.Pointer[sql.DB]
	lockWait time.Duration // the session's innodb_lock_wait_timeout
	leftAt   atomic.Int64  // when a call's context last ended during a statement, in ns since 1970
}

// pools are the checked ones. It keeps none of them alive.
var pools = struct {
	mu sync.RWMutex
	of map[weak.Pointer[sql.DB]]*pool
}{of: make(map[weak.Pointer[sql.DB]]*pool)}

// poolOf checks a pool at its first use. It returns nil for other DBs: they are transactions, or
// connections of the caller's.
func poolOf(ctx context.Context, db DB) (*pool, error) {
	on, ok := db.(*sql.DB)
	if !ok || on == nil {
		return nil, nil
	}
	key := weak.Make(on)
	pools.mu.RLock()
	known := pools.of[key]
	pools.mu.RUnlock()
	if known != nil {
		return known, nil
	}
	p, err := check(ctx, on)
	if err != nil {
		return nil, err
	}
	p.key = key
	pools.mu.Lock()
	defer pools.mu.Unlock()
	if known := pools.of[key]; known != nil {
		return known, nil
	}
	pools.of[key] = p
	runtime.AddCleanup(on, dropPool, key)
	return p, nil
}

func dropPool(key weak.Pointer[sql.DB]) {
	pools.mu.Lock()
	defer pools.mu.Unlock()
	delete(pools.of, key)
}

// check refuses a pool whose connections have autocommit off: a statement on it would be
// acknowledged and never be committed. It also refuses one whose connections have a
// sql_select_limit, and one at READ UNCOMMITTED: a version that is read there may be rolled back,
// and the next writer makes the same one.
func check(ctx context.Context, db *sql.DB) (*pool, error) {
	var on bool
	var limit, completion, isolation string
	var lockWait int64
	if err := db.QueryRowContext(ctx, settings).Scan(&on, &limit, &completion, &isolation, &lockWait); err != nil {
		return nil, sqlerr.Unwritten(err)
	}
	if !on {
		return nil, attempt.Invalid("db", "its connections have autocommit off, so no statement on it would be committed; nothing was written: "+
			"take autocommit=0 out of the DSN and of the server's settings, or use a transaction")
	}
	if limit != mysql.AllRows {
		return nil, attempt.Invalid("db", "its connections have a sql_select_limit, so the server leaves out rows that are read; nothing was written: "+
			"take sql_select_limit out of the DSN and of the server's settings")
	}
	if completion != "NO_CHAIN" {
		return nil, attempt.Invalid("db", "its connections have completion_type = %s, so a transaction follows each one, and later statements on the "+
			"connection are not committed; nothing was written: take completion_type out of the DSN and of the server's settings", completion)
	}
	if isolation == "READ-UNCOMMITTED" {
		return nil, attempt.Invalid("db", "its connections read at READ UNCOMMITTED, so a version that is read may be rolled back, and a write that "+
			"expects it would overwrite another one unseen; nothing was written: take it out of the DSN and of the server's settings, "+
			"and set it for the transactions that want it")
	}
	return &pool{lockWait: time.Duration(lockWait) * time.Second}, nil
}

// settings are those of the session. MySQL and MariaDB have different names for the isolation.
const settings = "SELECT @@autocommit, CAST(@@sql_select_limit AS CHAR), CAST(@@completion_type AS CHAR), " +
	"/*!80000 @@transaction_isolation */ /*M! @@tx_isolation */, @@innodb_lock_wait_timeout LIMIT 1"

// A statement whose context ends goes on at the server. The driver closes its connection, and the
// pool opens another: a row that stays locked would collect sessions, up to max_connections. So
// after the context of a call has ended during a statement, the calls on the pool lock their rows
// first, in a way that leaves no session, until no row was locked for lockFirstFor.
const (
	lockFirstFor = 10 * time.Second
	lockWait     = time.Second // the shortest bound of the servers
	firstPause   = 10 * time.Millisecond
	longestPause = 200 * time.Millisecond
)

// gate names the calls of a process that lock the same row first.
type gate struct {
	pool       weak.Pointer[sql.DB]
	table, row string
}

// locksFirst reports whether a call locks its rows first.
func (p *pool) locksFirst(ctx context.Context) bool {
	return p != nil && ctx.Done() != nil && time.Since(time.Unix(0, p.leftAt.Load())) < lockFirstFor
}

// left notes that the context of a call may have ended during a statement.
func (p *pool) left(ctx context.Context, err error) {
	if p != nil && err != nil && ctx.Err() != nil {
		p.leftAt.Store(time.Now().UnixNano())
	}
}

// underLock runs a write of rows in a transaction that has locked them.
func (p *pool) underLock(ctx context.Context, db *sql.DB, plan *driver.Plan, rows []driver.Row, write func(DB) error) error {
	leave, entered := attempt.Enter(ctx, gate{p.key, plan.From, fmt.Sprint(rows[0].Key)})
	defer leave()
	if !entered {
		return busy(ctx, errors.New("other calls wait for the row, too"))
	}
	end := time.Now().Add(p.lockWait)
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := inTx(ctx, db, func(tx *sql.Tx) error {
			if err := lockFirst(ctx, tx, plan, rows); err != nil {
				return err
			}
			return write(tx)
		})
		if !errors.As(err, new(*dblock.HeldError)) {
			return err
		}
		p.leftAt.Store(time.Now().UnixNano())
		if time.Now().After(end) || pace.Sleep(ctx, pause) != nil {
			return busy(ctx, err)
		}
	}
}

func busy(ctx context.Context, err error) error {
	return fmt.Errorf("%w: nothing was written: %w", dblock.ErrBusy, errors.Join(ctxerr.Of(ctx), err))
}

// lockFirst locks rows, without a statement that still waits when ctx ends.
func lockFirst(ctx context.Context, tx *sql.Tx, plan *driver.Plan, rows []driver.Row) error {
	lock := dblock.RowLock{Wait: dblock.WaitAtMost(lockWait)}
	if deadline, has := ctx.Deadline(); has && time.Until(deadline) < 2*lockWait {
		lock.Wait = dblock.NoWait()
	}
	keys := make([]any, len(rows))
	for i, r := range rows {
		keys[i] = r.Key
	}
	for some := range slices.Chunk(keys, dblock.MaxSetKeys) {
		if _, err := mysqllock.LockRows(ctx, tx, plan.Table, plan.Key, some, lock); err != nil {
			return err
		}
	}
	return nil
}

// inTx runs fn in a transaction of its own. Its error says if nothing was written.
func inTx(ctx context.Context, db *sql.DB, fn func(*sql.Tx) error) error {
	err := mysqllock.RunTx(ctx, db, mysqllock.TxOptions{}, fn)
	switch {
	case err == nil, errors.Is(err, dblock.ErrOutcomeUnknown), errors.Is(err, dblock.ErrTxEnded):
		return err
	case ctx.Err() != nil && mysql.ErrorNumber(err) == 0:
		return busy(ctx, err)
	}
	return sqlerr.Unwritten(err)
}
