package pglock

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/session"
)

// SessionOptions of a SessionLocker. The zero value is good for use.
type SessionOptions struct {
	// Namespace keeps the keys of one use of this database from those of another. Default: none.
	// See KeyOf.
	Namespace string

	// RawKeys has keys be numbers, in decimal, that Postgres' functions are called with as they
	// are: for locks that are shared with other programs. Then there is no Namespace.
	RawKeys bool

	// IdleTimeout is after how long the server ends a connection that is silent, and frees its
	// locks: of a process that is stopped, or can't be reached any more. (One that ends frees them
	// at once.) A third of it after the last statement the connection is pinged. A process trusts
	// its locks for a tenth less. Default 10 s; 1 s to 24 h.
	IdleTimeout time.Duration

	// MaxConns bounds the connections. Locks share them: a second one is opened for 32 locks, and
	// another one when all carry a fifth of what the server's lock table is made for
	// (max_locks_per_transaction times max_connections), 1,280 by the server's defaults. Default 4.
	MaxConns int

	// Poll is how often a process asks again for a key that it waits for, give or take a half, even
	// without a notification: a release by other means than this package sends none. Default 1 s;
	// 10 ms to 1 min.
	Poll time.Duration

	// ServerQueue makes calls wait in the server's own queue, which serves them in the order of
	// their arrival, across processes, and a writer before readers that come later. It costs a
	// connection for each call that waits, and for each lock that was waited for, out of MaxConns.
	// A waiting call keeps VACUUM from removing rows that were deleted since (backend_xmin).
	ServerQueue bool

	// Label is the application_name of the connections, which shows operators the holder of a lock.
	// Default: that of pool.
	Label string

	// Schema is where dblock's tables are. They are needed only to show keys by their names.
	Schema string

	// MaxQueue bounds how many calls may wait for a statement on a connection; more are refused
	// with dblock.ErrOverloaded. Default 65,536.
	MaxQueue int

	Observer dblock.Observer
	Log      *slog.Logger // connections that are lost; default: nothing
}

// SessionLocker hands out session locks: pg_advisory_lock on connections that many locks share.
// They are the fastest locks there are, they write nothing, and they need no tables. In return they
// have no token, so no guard can check them; they end with their connection, which a restart or a
// failover of the server ends; and they exclude only within one database of one server. Make it
// with NewSessionLocker. It is safe for concurrent use.
//
// A connection that ends takes all its locks with it: their contexts end within milliseconds where
// the server says so, and before IdleTimeout has passed in any case. In between another process may
// have the lock: what must not go wrong then needs a LeaseLocker and its guard.
//
// Release waits for the server's answer for a tenth of IdleTimeout at most, but for 1 to 10 s. It
// returns a *dblock.LostError unless the server confirms that the lock was held until then.
type SessionLocker struct{ locker *session.Locker }

var _ dblock.Locker = (*SessionLocker)(nil)

// NewSessionLocker makes a SessionLocker in the database of pool, of which it uses only the
// settings, for connections of its own. It opens one, and finds out whether session locks exclude
// there.
//
// Errors: dblock.ErrInvalid, dblock.ErrUnavailable, dblock.ErrServerTooOld; dblock.ErrUnsupported
// behind a pooler, on a standby, and on servers whose session locks don't exclude, and for a
// search_path that names pg_catalog after another schema; it says what to use instead.
func NewSessionLocker(ctx context.Context, pool *pgxpool.Pool, o SessionOptions) (*SessionLocker, error) {
	if err := postgres.CheckHost(pool, "SessionOptions.Schema", o.Schema); err != nil {
		return nil, err
	}
	if err := session.CheckNamespace(o.Namespace, o.RawKeys, "RawKeys"); err != nil {
		return nil, err
	}
	so, err := session.Options{
		Label: o.Label, Observer: o.Observer, Log: o.Log, IdleTimeout: o.IdleTimeout, MaxConns: o.MaxConns, Poll: o.Poll,
		ServerQueue: o.ServerQueue, MaxQueue: o.MaxQueue, Shared: true, Notifies: true,
	}.WithDefaults("SessionOptions", defaultPoll)
	if err != nil {
		return nil, err
	}
	l, err := session.New(ctx, &sessionDriver{
		host: pool, namespace: o.Namespace, raw: o.RawKeys, schema: o.Schema, label: o.Label, idle: so.IdleTimeout,
	}, so)
	if err != nil {
		return nil, err
	}
	return &SessionLocker{l}, nil
}

// Acquire waits for the lock of key while ctx lives. See dblock.Locker. WithShared shares it;
// WithPermits, WithMaxHold, WithoutRenewal and WithData are dblock.ErrUnsupported. The label of
// WithLabel is seen in this process alone.
//
// Errors: never dblock.ErrOutcomeUnknown: what may have been granted without an answer ends with
// its connection. dblock.ErrOverloaded also if this process has as many session locks as
// MaxConns connections carry.
func (s *SessionLocker) Acquire(ctx context.Context, key string, opts ...dblock.Option) (*dblock.Lock, error) {
	return s.locker.Acquire(ctx, key, opts...)
}

// TryAcquire never waits for a holder. See Acquire.
func (s *SessionLocker) TryAcquire(ctx context.Context, key string, opts ...dblock.Option) (*dblock.Lock, error) {
	return s.locker.TryAcquire(ctx, key, opts...)
}

// Caps says what session locks promise.
func (s *SessionLocker) Caps() dblock.Caps { return s.locker.Caps() }

// Close ends the contexts of all locks, waits, while ctx lives, until they are released, and closes
// the connections, which frees whatever is left. It closes them if ctx has ended, too; the error
// then says that locks are still in use.
func (s *SessionLocker) Close(ctx context.Context) error { return s.locker.Close(ctx) }
