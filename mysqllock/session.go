package mysqllock

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/schema"
	"github.com/dblock-go/dblock/internal/session"
)

// SessionOptions of a SessionLocker. The zero value is good for use.
type SessionOptions struct {
	// Namespace keeps the keys of one use of this database from those of another. Default: none.
	// See NameOf.
	Namespace string

	// RawNames has keys be the names that GET_LOCK is called with as they are, for locks that are
	// shared with other programs: 1 to 64 printable characters of ASCII, without quotes and
	// backslashes. Names that differ in case alone are one lock on MySQL, and different locks on
	// MariaDB. Blanks at the end count on both. Then there is no Namespace, and the names are those
	// of all databases of the server.
	RawNames bool

	// IdleTimeout is after how long the server ends a connection that is silent, and frees its
	// locks: of a process that is stopped, or can't be reached any more. (One that ends frees them
	// at once.) A third of it after the last statement the connection is pinged. A process trusts
	// its locks for a tenth less. Whole seconds. Default 10 s; 1 s to 24 h.
	IdleTimeout time.Duration

	// MaxConns bounds the connections, which come out of the pool. Locks share them: one carries up
	// to 10,000, and another one is taken when that is reached; a second one when there are a few
	// dozens. Default 4, or fewer if the pool is limited: one connection of the pool stays yours. A
	// MaxConns that leaves none is refused, and so is a pool of 1 connection, or of 2 with
	// ServerQueue.
	MaxConns int

	// Poll is how long a process waits at most until it asks again for a key that it waits for. The
	// server does not notify of releases. So while a call waits, one more connection of the pool
	// has the server look every 2 ms. That needs a pool of 8 connections or more, and covers 100
	// keys. For others a process asks every 5 ms at first, and less often the longer it has waited;
	// 100 times a second at most, over all keys. Default 100 ms; 10 ms to 1 min.
	Poll time.Duration

	// ServerQueue makes calls wait in the server's own queue, which serves them in the order of
	// their arrival, across processes. It costs a connection for each call that waits, and for each
	// lock that was waited for, out of MaxConns.
	ServerQueue bool

	// Schema is the database of dblock's tables, and the one whose keys are kept apart from those
	// of others. Default: that of the connections. The tables are needed only to show keys by their
	// names.
	Schema string

	// MaxQueue bounds how many calls may wait for a statement on a connection; more are refused
	// with dblock.ErrOverloaded. Default 65,536.
	MaxQueue int

	Observer dblock.Observer
	Log      *slog.Logger // connections that are lost; default: nothing
}

// SessionLocker hands out session locks: GET_LOCK on connections that many locks share. They are
// the fastest locks there are, they write nothing, and they need no tables. In return they have no
// token, so no guard can check them; they end with their connection, which a restart or a failover
// of the server ends; and they exclude only within one server. There is no shared mode (a
// LeaseLocker has one). Make it with NewSessionLocker. It is safe for concurrent use.
//
// A connection that ends takes all its locks with it: their contexts end when the next statement or
// ping finds out, and before IdleTimeout has passed in any case. In between another process may
// have the lock: what must not go wrong then needs a LeaseLocker and its guard.
//
// Release waits for the server's answer for a tenth of IdleTimeout at most, but for 1 to 10 s. It
// returns a *dblock.LostError unless the server confirms that the lock was held until then.
type SessionLocker struct{ locker *session.Locker }

var _ dblock.Locker = (*SessionLocker)(nil)

// NewSessionLocker makes a SessionLocker on the server of pool, out of which it takes its
// connections, one at first. They never go back there. It finds out whether session locks exclude
// there.
//
// Errors: dblock.ErrInvalid, dblock.ErrUnavailable, dblock.ErrServerTooOld; dblock.ErrUnsupported
// on clusters and replicas, and on servers whose session locks don't exclude; it says what to use
// instead.
func NewSessionLocker(ctx context.Context, pool *sql.DB, o SessionOptions) (*SessionLocker, error) {
	if pool == nil {
		return nil, &dblock.InvalidError{Field: "pool", Reason: "it is nil"}
	}
	if err := schema.CheckMySQLName(o.Schema); err != nil {
		return nil, &dblock.InvalidError{Field: "SessionOptions.Schema", Reason: err.Error()}
	}
	if err := session.CheckNamespace(o.Namespace, o.RawNames, "RawNames"); err != nil {
		return nil, err
	}
	if o.IdleTimeout%time.Second != 0 {
		return nil, &dblock.InvalidError{Field: "SessionOptions.IdleTimeout", Reason: fmt.Sprintf("%v is not in whole seconds, which is all that the server knows (wait_timeout)", o.IdleTimeout)}
	}
	conns, err := sessionConns(pool, o)
	if err != nil {
		return nil, err
	}
	so, err := session.Options{
		Observer: o.Observer, Log: o.Log, IdleTimeout: o.IdleTimeout, MaxConns: conns, Poll: o.Poll,
		ServerQueue: o.ServerQueue, MaxQueue: o.MaxQueue, Alike: true, OneShows: true,
	}.WithDefaults("SessionOptions", defaultUnnotifiedPoll)
	if err != nil {
		return nil, err
	}
	l, err := session.New(ctx, &sessionDriver{
		pool: pool, namespace: o.Namespace, raw: o.RawNames, schema: o.Schema, idle: so.IdleTimeout, conns: so.MaxConns,
	}, so)
	if err != nil {
		return nil, err
	}
	return &SessionLocker{l}, nil
}

// Acquire waits for the lock of key while ctx lives. See dblock.Locker. WithShared, WithPermits,
// WithMaxHold, WithoutRenewal and WithData are dblock.ErrUnsupported. The label of WithLabel is
// seen in this process alone.
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
