package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/devdb"
)

// openRoundtrip takes the connections out of the pool for good, and hands them round itself.
func openRoundtrip(ctx context.Context, env *Env) (Workload, error) {
	if env.Kind == devdb.Postgres {
		return openSync(ctx, env)
	}
	return openPing(ctx, env)
}

func openSync(ctx context.Context, env *Env) (Workload, error) {
	pool, err := env.Postgres(ctx)
	if err != nil {
		return nil, err
	}
	conns := make(turns[*pgxpool.Conn], env.Conns)
	end := func() error {
		for len(conns) > 0 {
			(<-conns).Release()
		}
		pool.Close()
		return nil
	}
	for range env.Conns {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return nil, errors.Join(err, end())
		}
		conns <- conn
	}
	return calls{func(ctx context.Context) (int, error) {
		conn, err := conns.take(ctx)
		if err != nil {
			return 0, err
		}
		defer func() { conns <- conn }()
		return 1, roundtrip(ctx, conn.Conn().PgConn())
	}, end}, nil
}

// roundtrip sends Sync, which Postgres answers without looking for a statement. It is leaner than
// the empty query of pgx's Ping.
func roundtrip(ctx context.Context, conn *pgconn.PgConn) error {
	conn.Frontend().SendSync(&pgproto3.Sync{})
	if err := conn.Frontend().Flush(); err != nil {
		return err
	}
	for {
		answer, err := conn.ReceiveMessage(ctx)
		if err != nil {
			return err
		}
		switch answer.(type) {
		case *pgproto3.ReadyForQuery:
			return nil
		case *pgproto3.ParameterStatus, *pgproto3.NoticeResponse: // a server sends them when it likes
		default:
			return fmt.Errorf("the server answered Sync with %T", answer)
		}
	}
}

func openPing(ctx context.Context, env *Env) (Workload, error) {
	db, err := env.MySQL(ctx)
	if err != nil {
		return nil, err
	}
	conns := make(turns[*sql.Conn], env.Conns)
	end := func() error {
		var errs []error
		for len(conns) > 0 {
			errs = append(errs, (<-conns).Close())
		}
		return errors.Join(append(errs, db.Close())...)
	}
	for range env.Conns {
		conn, err := db.Conn(ctx)
		if err != nil {
			return nil, errors.Join(err, end())
		}
		conns <- conn
	}
	return calls{func(ctx context.Context) (int, error) {
		conn, err := conns.take(ctx)
		if err != nil {
			return 0, err
		}
		defer func() { conns <- conn }()
		return 1, conn.PingContext(ctx)
	}, end}, nil
}
