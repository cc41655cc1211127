package bench

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/mysqllock"
	"github.com/dblock-go/dblock/pglock"
)

// sessionConns are as many connections as there may be callers: where each lock has one, all are opened beforehand.
var sessionConns = []int{200}

// sessions are dblock's session locks, beside the usual way: a connection for each lock.
func sessions() []Scenario {
	return append(LockScenarios("session", "dblock's session locks", nil, []int{1}, openSession),
		lockScenario("session/conn", "advisory or named locks by hand, a connection for each; a key for each caller", nil, sessionConns, false, openConns),
		lockScenario("session/merged", "dblock's session locks on a shared connection; a key for each caller", nil, []int{1}, false, openSession),
	)
}

func openSession(ctx context.Context, env *Env) (Locker, error) {
	if env.Kind == devdb.Postgres {
		pool, err := env.Postgres(ctx)
		if err != nil {
			return nil, err
		}
		l, err := pglock.NewSessionLocker(ctx, pool, pglock.SessionOptions{})
		return lockerOn{l, func() error { pool.Close(); return nil }}, err
	}
	db, err := env.MySQL(ctx)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(2 * env.Conns)
	l, err := mysqllock.NewSessionLocker(ctx, db, mysqllock.SessionOptions{})
	return lockerOn{l, db.Close}, err
}

// lockerOn is a dblock.Locker, and the end of the pool that was made for it.
type lockerOn struct {
	dblock.Locker
	closePool func() error
}

func (l lockerOn) Lock(ctx context.Context, key string) (func(context.Context) error, error) {
	lock, err := l.Acquire(ctx, key)
	if err != nil {
		return nil, err
	}
	return lock.Release, nil
}

func (l lockerOn) Close() error {
	return errors.Join(l.Locker.Close(context.Background()), l.closePool())
}

// openConns is the usual way: who wants a lock takes a connection out of a pool, and puts it back with the lock given back.
func openConns(ctx context.Context, env *Env) (Locker, error) {
	if env.Kind == devdb.Postgres {
		pool, err := env.Postgres(ctx)
		return connsPostgres{pool}, err
	}
	db, err := env.MySQL(ctx)
	return connsMySQL{db}, err
}

var errSessionLost = errors.New("the session did not have the lock that it gave back")

type connsPostgres struct{ pool *pgxpool.Pool }

func (l connsPostgres) Lock(ctx context.Context, key string) (func(context.Context) error, error) {
	conn, err := l.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	id := int64(pglock.KeyOf("", key))
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", id); err != nil {
		return nil, errors.Join(err, conn.Hijack().Close(ctx))
	}
	return func(ctx context.Context) error {
		var had bool
		if err := conn.QueryRow(ctx, "SELECT pg_advisory_unlock($1)", id).Scan(&had); err != nil || !had {
			return errors.Join(errSessionLost, err, conn.Hijack().Close(ctx))
		}
		conn.Release()
		return nil
	}, nil
}

func (l connsPostgres) Close() error { l.pool.Close(); return nil }

type connsMySQL struct{ db *sql.DB }

func (l connsMySQL) Lock(ctx context.Context, key string) (func(context.Context) error, error) {
	conn, err := l.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	name := mysqllock.NameOf("", "", key)
	if err := said(conn.QueryRowContext(ctx, "SELECT GET_LOCK('"+name+"', 60)")); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return func(ctx context.Context) error {
		return errors.Join(said(conn.QueryRowContext(ctx, "SELECT RELEASE_LOCK('"+name+"')")), conn.Close())
	}, nil
}

// said is nil where the answer was 1.
func said(row *sql.Row) error {
	var yes sql.NullBool
	if err := row.Scan(&yes); err != nil || !yes.Bool {
		return errors.Join(errSessionLost, err)
	}
	return nil
}

func (l connsMySQL) Close() error { return l.db.Close() }
