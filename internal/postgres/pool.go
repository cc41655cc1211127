package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/callback"
	"github.com/dblock-go/dblock/internal/schema"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// sessions begin with these parameters. They have the server plan each statement once, by its keys.
// Left to itself it plans anew each time, which costs a single caller more than the rest of the
// statement. It also reads small tables whole, which a plan that is kept must not do as they grow.
// No statement gains by more than READ COMMITTED.
var sessions = map[string]string{
	"default_transaction_isolation": "read committed", "default_transaction_read_only": "off",

	"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off",
	"jit": "off", // the cost of such a plan looks worth compiling: half a second, for one row

	"datestyle": "ISO", "client_encoding": "UTF8", "bytea_output": "hex", "standard_conforming_strings": "on", "array_nulls": "on",
}

// Pool is a pool that counts the connections which were found broken.
type Pool struct {
	*pgxpool.Pool
	broken atomic.Int64
}

// Broken counts the connections that did not end because the pool closed them.
func (p *Pool) Broken() int64 { return p.broken.Load() }

// Open finds dblock's tables on the pool of a host, and opens pools of dblock's own with these
// numbers of connections.
//
// Errors: those of OpenPool and RequireSchema; dblock.ErrUnavailable if the host's pool does not
// answer.
func Open(ctx context.Context, host *pgxpool.Pool, name string, parameters map[string]string, conns ...int32) (*Schema, []*Pool, error) {
	if err := host.Ping(ctx); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", dblock.ErrUnavailable, err)
	}
	var pools []*Pool
	for _, n := range conns {
		pool, err := OpenPool(ctx, host, n, parameters)
		if err != nil {
			closeAll(pools)
			return nil, nil, err
		}
		pools = append(pools, pool)
	}
	s, err := RequireSchema(ctx, pools[0], name)
	if err != nil {
		closeAll(pools)
	}
	return s, pools, err
}

func closeAll(pools []*Pool) {
	for _, p := range pools {
		p.Close()
	}
}

// CheckHost refuses a pool that is nil, and what can't name a schema. field is the option with the
// name.
func CheckHost(pool *pgxpool.Pool, field, name string) error {
	if pool == nil {
		return &dblock.InvalidError{Field: "pool", Reason: "it is nil"}
	}
	if err := schema.CheckPostgresName(name); err != nil {
		return &dblock.InvalidError{Field: field, Reason: err.Error()}
	}
	return nil
}

// OpenPool opens a pool with the host's settings. More are parameters of its sessions besides those
// that all have.
//
// The hooks that a host runs for each of its own calls are left out: PrepareConn, BeforeAcquire and
// AfterRelease. BeforeConnect and AfterConnect run. If one panics, or leaves a transaction open,
// the connection fails.
//
// Errors: dblock.ErrUnavailable, and dblock.ErrUnsupported for connections that are unusable.
func OpenPool(ctx context.Context, host *pgxpool.Pool, conns int32, more map[string]string) (*Pool, error) {
	parameters := maps.Clone(sessions)
	maps.Copy(parameters, more)
	// A request to cancel a statement can come before the statement. With this parameter the server
	// notices that its client has gone. A server on Windows refuses it.
	watched := maps.Clone(parameters)
	watched["client_connection_check_interval"] = "500ms"
	var pool *Pool
	var err error
	// A pooler refuses parameters. To set them later would set them for its other clients.
	for _, p := range []map[string]string{watched, parameters, nil} {
		if pool, err = openPool(ctx, host, conns, p); !RefusesParameters(err) {
			break
		}
	}
	if err != nil && !errors.Is(err, dblock.ErrUnsupported) {
		err = fmt.Errorf("%w: %w", dblock.ErrUnavailable, err)
	}
	return pool, err
}

func openPool(ctx context.Context, host *pgxpool.Pool, conns int32, parameters map[string]string) (*Pool, error) {
	var pool Pool
	cfg := host.Config()
	cfg.MaxConns, cfg.MinConns, cfg.MinIdleConns = conns, 0, 0
	cfg.PrepareConn, cfg.AfterRelease = nil, nil
	cfg.BeforeAcquire = nil //lint:ignore SA1019 a host may still set it
	cfg.BeforeConnect = safe("BeforeConnect", cfg.BeforeConnect)
	cfg.AfterConnect = clean(safe("AfterConnect", cfg.AfterConnect))
	cfg.BeforeClose = pool.counting(cfg.BeforeClose)
	if cfg.ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeDescribeExec {
		// It describes and runs a statement in two round trips. A pooler may run another client's
		// statement in the second.
		cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	own := cfg.ConnConfig.RuntimeParams
	maps.DeleteFunc(own, func(name, _ string) bool { return parameters[strings.ToLower(name)] != "" })
	maps.Copy(own, parameters)
	var err error
	if pool.Pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, err
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return &pool, nil
}

// counting returns the host's BeforeClose, which counts the broken connections.
func (p *Pool) counting(host func(*pgx.Conn)) func(*pgx.Conn) {
	return func(conn *pgx.Conn) {
		if conn.IsClosed() {
			p.broken.Add(1)
		}
		if host != nil {
			host(conn)
		}
	}
}

// Connect opens one connection as the host's pool does, after change has changed its settings.
//
// Errors: those of CheckSearchPath, and pgx's.
func Connect(ctx context.Context, host *pgxpool.Pool, change func(*pgx.ConnConfig)) (*pgx.Conn, error) {
	cfg := host.Config()
	if before := safe("BeforeConnect", cfg.BeforeConnect); before != nil {
		if err := before(ctx, cfg.ConnConfig); err != nil {
			return nil, err
		}
	}
	change(cfg.ConnConfig)
	conn, err := pgx.ConnectConfig(ctx, cfg.ConnConfig)
	if err != nil {
		return nil, err
	}
	if err := CheckConnPath(ctx, conn.PgConn()); err != nil {
		_ = conn.Close(ctx)
		return nil, err
	}
	return conn, nil
}

// safe returns a hook that fails if the host's panics. It is called on goroutines of dblock's own,
// and the contexts there have none of the host's values. Its errors come before a statement is
// sent.
func safe[T any](name string, hook func(context.Context, T) error) func(context.Context, T) error {
	if hook == nil {
		return nil
	}
	return func(ctx context.Context, conn T) (err error) {
		if failed := callback.Try(func() { err = hook(ctx, conn) }); failed != nil {
			err = fmt.Errorf("the pool's %s for a connection of dblock's own: %w", name, failed)
		}
		return sqlerr.Unwritten(err)
	}
}

// clean returns an AfterConnect that fails if the session has what makes statements mean something
// else: from the host's AfterConnect, or as the search_path that it begins with.
func clean(after func(context.Context, *pgx.Conn) error) func(context.Context, *pgx.Conn) error {
	return func(ctx context.Context, conn *pgx.Conn) error {
		if after == nil {
			return CheckConnPath(ctx, conn.PgConn())
		}
		if err := after(ctx, conn); err != nil {
			return err
		}
		if err := CheckUsable(conn.PgConn()); err != nil {
			return fmt.Errorf("after the pool's AfterConnect for a connection of dblock's own: %w", err)
		}
		return CheckConnPath(ctx, conn.PgConn())
	}
}

// CheckUsable refuses a connection with an open transaction or another encoding than UTF8. It does
// not ask the server: the driver knows. What a closed connection was is no matter.
func CheckUsable(conn *pgconn.PgConn) error {
	if conn.IsClosed() {
		return nil
	}
	if conn.TxStatus() != 'I' {
		return &UnusableError{Reason: "an open transaction: have the pool's hooks (AfterConnect, BeforeAcquire, AfterRelease) end theirs"}
	}
	return CheckClientEncoding(conn.ParameterStatus("client_encoding"))
}

// longestClose is for how long a pool's end is waited for: over a network that is silent it takes
// pgx 15 s.
const longestClose = 5 * time.Second

// Close closes the pool. It does not wait for long.
func (p *Pool) Close() {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		p.Pool.Close()
	}()
	select {
	case <-closed:
	case <-time.After(longestClose):
	}
}
