package programs

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/mysqllock"
	"github.com/dblock-go/dblock/pglock"
)

// leases is what the drivers' Lease is.
type leases interface {
	dblock.Locker
	AcquireAll(ctx context.Context, keys []string, opts ...dblock.Option) (*dblock.Lock, error)
	TryAcquireAll(ctx context.Context, keys []string, opts ...dblock.Option) (*dblock.Lock, error)
	ForceRelease(ctx context.Context, key string, token int64) error
	SetPermits(ctx context.Context, key string, limit int) error
}

// tx is a transaction of the program's own.
type tx interface {
	exec(ctx context.Context, statement string) error
	number(ctx context.Context, query string) (int64, error)
	lockRows(ctx context.Context, ids []int, o dblock.RowLock) (locked []int, err error)
	claim(ctx context.Context, n int, query string) ([]int, error)
	advise(ctx context.Context, wait dblock.TxWait, shared bool, keys []string) error
	fence(ctx context.Context, f dblock.Fence, resource string, raise bool) error
}

// server is what a process opens on a database.
type server interface {
	lease(ctx context.Context, fair bool) (leases, error)
	session(ctx context.Context, line bool) (dblock.Locker, error)
	guarded(ctx context.Context, l dblock.Locker, lock *dblock.Lock, fn func(context.Context, tx) error) error
	run(ctx context.Context, fn func(context.Context, tx) error) error
	close()
}

func openServer(ctx context.Context, kind devdb.Kind, dsn string) (server, error) {
	if kind == devdb.Postgres {
		pool, err := pgxpool.New(ctx, dsn)
		return pgServer{pool}, err
	}
	db, err := openMySQL(dsn)
	return myServer{db}, err
}

// openMySQL opens a pool that does not write down which of its connections were killed.
func openMySQL(dsn string) (*sql.DB, error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	cfg.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(2 * lineConns)
	db.SetMaxIdleConns(10)
	return db, nil
}

// lineConns is enough connections for the calls of a process that wait in the server's queue.
const lineConns = 40

type pgServer struct{ pool *pgxpool.Pool }

func (s pgServer) close() { s.pool.Close() }

func (s pgServer) lease(ctx context.Context, fair bool) (leases, error) {
	return pglock.NewLeaseLocker(ctx, s.pool, pglock.LeaseOptions{TTL: lockTTL, Fair: fair, Poll: 100 * time.Millisecond})
}

func (s pgServer) session(ctx context.Context, line bool) (dblock.Locker, error) {
	o := pglock.SessionOptions{IdleTimeout: sessionTTL, Poll: 20 * time.Millisecond}
	if line {
		o.ServerQueue, o.MaxConns = true, lineConns
	}
	return pglock.NewSessionLocker(ctx, s.pool, o)
}

func (s pgServer) guarded(ctx context.Context, l dblock.Locker, lock *dblock.Lock, fn func(context.Context, tx) error) error {
	return l.(*pglock.LeaseLocker).GuardedTx(ctx, lock, func(ctx context.Context, t pgx.Tx) error { return fn(ctx, pgTx{t}) })
}

func (s pgServer) run(ctx context.Context, fn func(context.Context, tx) error) error {
	return pgx.BeginFunc(ctx, s.pool, func(t pgx.Tx) error { return fn(ctx, pgTx{t}) })
}

type pgTx struct{ tx pgx.Tx }

func (t pgTx) exec(ctx context.Context, statement string) error {
	_, err := t.tx.Exec(ctx, statement)
	return err
}

func (t pgTx) number(ctx context.Context, query string) (n int64, err error) {
	err = t.tx.QueryRow(ctx, query).Scan(&n)
	return n, err
}

func (t pgTx) lockRows(ctx context.Context, ids []int, o dblock.RowLock) ([]int, error) {
	if len(ids) == 1 && o.Wait != dblock.SkipLocked() {
		return ids, pglock.LockRow(ctx, t.tx, "tally", "id", ids[0], o)
	}
	got, err := pglock.LockRows(ctx, t.tx, "tally", "id", ids, o)
	return got.Locked, err
}

func (t pgTx) claim(ctx context.Context, n int, query string) ([]int, error) {
	return pglock.Claim(ctx, t.tx, dblock.RowLock{}, n, pgx.RowTo[int], query)
}

func (t pgTx) advise(ctx context.Context, wait dblock.TxWait, shared bool, names []string) error {
	var keys []pglock.Key
	for _, name := range names {
		keys = append(keys, pglock.KeyOf("", name))
	}
	if shared {
		return pglock.LockTxShared(ctx, t.tx, wait, keys...)
	}
	return pglock.LockTx(ctx, t.tx, wait, keys...)
}

func (t pgTx) fence(ctx context.Context, f dblock.Fence, resource string, raise bool) error {
	if raise {
		return pglock.Guards{}.AdvanceFence(ctx, t.tx, f, resource)
	}
	return pglock.Guards{}.CheckFence(ctx, t.tx, f, resource)
}

type myServer struct{ db *sql.DB }

func (s myServer) close() { _ = s.db.Close() }

func (s myServer) lease(ctx context.Context, fair bool) (leases, error) {
	return mysqllock.NewLeaseLocker(ctx, s.db, mysqllock.LeaseOptions{TTL: lockTTL, Fair: fair, Poll: 100 * time.Millisecond})
}

func (s myServer) session(ctx context.Context, line bool) (dblock.Locker, error) {
	o := mysqllock.SessionOptions{IdleTimeout: sessionTTL, Poll: 20 * time.Millisecond}
	if line {
		o.ServerQueue, o.MaxConns = true, lineConns
	}
	return mysqllock.NewSessionLocker(ctx, s.db, o)
}

func (s myServer) guarded(ctx context.Context, l dblock.Locker, lock *dblock.Lock, fn func(context.Context, tx) error) error {
	return l.(*mysqllock.LeaseLocker).GuardedTx(ctx, lock, func(ctx context.Context, t *sql.Tx) error { return fn(ctx, myTx{t}) })
}

func (s myServer) run(ctx context.Context, fn func(context.Context, tx) error) error {
	t, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	if err := fn(ctx, myTx{t}); err != nil {
		return errors.Join(err, t.Rollback())
	}
	return t.Commit()
}

type myTx struct{ tx *sql.Tx }

func (t myTx) exec(ctx context.Context, statement string) error {
	_, err := t.tx.ExecContext(ctx, statement)
	return err
}

func (t myTx) number(ctx context.Context, query string) (n int64, err error) {
	err = t.tx.QueryRowContext(ctx, query).Scan(&n)
	return n, err
}

func (t myTx) lockRows(ctx context.Context, ids []int, o dblock.RowLock) ([]int, error) {
	switch o.Wait {
	case dblock.TxWait{}, dblock.NoWait(), dblock.SkipLocked():
	default:
		o.Wait = dblock.WaitAtMost(time.Second) // whole seconds
	}
	if len(ids) == 1 && o.Wait != dblock.SkipLocked() {
		return ids, mysqllock.LockRow(ctx, t.tx, "tally", "id", ids[0], o)
	}
	got, err := mysqllock.LockRows(ctx, t.tx, "tally", "id", ids, o)
	return got.Locked, err
}

func (t myTx) claim(ctx context.Context, n int, query string) ([]int, error) {
	return mysqllock.Claim(ctx, t.tx, dblock.RowLock{}, n, func(rows *sql.Rows) (id int, err error) {
		return id, rows.Scan(&id)
	}, query)
}

func (t myTx) advise(context.Context, dblock.TxWait, bool, []string) error {
	return errors.ErrUnsupported
}

func (t myTx) fence(ctx context.Context, f dblock.Fence, resource string, raise bool) error {
	if raise {
		return mysqllock.Guards{}.AdvanceFence(ctx, t.tx, f, resource)
	}
	return mysqllock.Guards{}.CheckFence(ctx, t.tx, f, resource)
}
