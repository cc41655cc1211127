package bench

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/mysqllock"
	"github.com/dblock-go/dblock/pglock"
)

// sessionConns are as many connections as there may be clients: where each lock has one, all are
// opened beforehand.
var sessionConns = []int{200}

// sessions are dblock's session locks, beside the usual way: a connection for each lock.
func sessions() []Scenario {
	return append(LockScenarios("session", "dblock's session locks", nil, []int{1}, openSession),
		lockScenario("session/conn", "advisory or named locks by hand, a connection for each; a key for each client", nil, sessionConns, false, OpenConnectionLocks),
		lockScenario("session/merged", "dblock's session locks on a shared connection; a key for each client", nil, []int{1}, false, openSession),
	)
}

func openSession(ctx context.Context, env *Env) (Locker, error) {
	db, err := env.database(ctx, env.Conns)
	if err != nil {
		return nil, err
	}
	l, err := on(db,
		func(pool *pgxpool.Pool) (dblock.Locker, error) {
			return pglock.NewSessionLocker(ctx, pool, pglock.SessionOptions{})
		},
		func(db *sql.DB) (dblock.Locker, error) {
			db.SetMaxOpenConns(2 * env.Conns)
			return mysqllock.NewSessionLocker(ctx, db, mysqllock.SessionOptions{})
		})
	return lockerOn{l, db}, err
}

// connectionLocks are the server's own locks by hand: each takes a connection out of the pool, and
// puts it back when it is released.
type connectionLocks struct{ *Database }

// OpenConnectionLocks opens a pool of connections, each of which can have an advisory or named
// lock.
func OpenConnectionLocks(ctx context.Context, env *Env) (Locker, error) {
	db, err := env.Database(ctx)
	return connectionLocks{db}, err
}

var errSessionLost = errors.New("the session did not have the lock that it gave back")

func (l connectionLocks) Lock(ctx context.Context, key string) (func(context.Context) error, error) {
	conn, release, err := l.Keep(ctx)
	if err != nil {
		return nil, err
	}
	var name any = mysqllock.NameOf("", "", key)
	if l.pool != nil {
		name = int64(pglock.KeyOf("", key))
	}
	// The server answers, or the connection, which may have the lock, is closed.
	ask := func(ctx context.Context, query string) error {
		var yes sql.NullBool
		if err := conn.Query(ctx, query, name).Scan(&yes); err != nil || !yes.Bool {
			return errors.Join(errSessionLost, err, release(true))
		}
		return nil
	}
	if err := ask(ctx, pick(l.kind, "SELECT true FROM pg_advisory_lock($1)", "SELECT GET_LOCK($1, 60)")); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		if err := ask(ctx, pick(l.kind, "SELECT pg_advisory_unlock($1)", "SELECT RELEASE_LOCK($1)")); err != nil {
			return err
		}
		return release(false)
	}, nil
}
