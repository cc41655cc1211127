package pglock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/root"
)

// LeaseOptions of a LeaseLocker. The zero value is good for use.
type LeaseOptions struct {
	// TTL is the time without a heartbeat after which a process counts as dead, and others may
	// acquire its locks. A heartbeat is sent every third of the TTL. Default 10 s; 1 s to 24 h.
	// LeaseLockers of one pool and TTL share their heartbeat.
	TTL time.Duration

	// Margin is how much earlier than the server a process itself counts its locks as lost: for
	// clocks of different speeds, and for delayed threads. Default a tenth of TTL; less than half
	// of TTL.
	Margin time.Duration

	// Label names the holder of this process's locks for people, as WithLabel does for one lock.
	Label string

	// Schema is where dblock's tables are. Default: the first schema on the connections'
	// search_path that has them. NewLeaseLocker looks for it once, and all statements name it.
	Schema string

	// Poll is how often at least a process asks again for a key that it waits for, give or take a
	// half, even if no notification comes. If none can come, behind PgBouncer in transaction mode
	// for example, it asks every 5 ms at first, and less often the longer it has waited; 100 times
	// a second at most, over all keys. Default 1 s; 10 ms to 1 min.
	Poll time.Duration

	// Fair serves callers in the order of their calls, across processes. A caller that has to wait
	// takes a ticket. A release hands the key to the live caller that has waited longest, also
	// before others of its own process. All lockers of a key must be fair: another one may overtake
	// those that wait. WithShared, WithPermits and AcquireAll return dblock.ErrUnsupported.
	Fair bool

	// MaxQueue bounds how many calls may wait for a statement in this process; further calls return
	// dblock.ErrOverloaded. Default 65,536.
	MaxQueue int

	// MaxBatch bounds how many calls share a statement. Default 1,024, at most 8,192; with 1 each
	// call has a statement of its own.
	MaxBatch int

	// MaxInFlight bounds how many statements that acquire, and how many that release, run at once,
	// and with them the connections. Default: one, and a second if the first takes longer than 3
	// ms. At most 1,024. More gain nothing unless MaxBatch is small.
	MaxInFlight int

	Observer dblock.Observer
	Log      *slog.Logger // heartbeats that fail, members that are lost; default: nothing
}

// LeaseLocker acquires lease locks. Make it with NewLeaseLocker. It is safe for concurrent use.
type LeaseLocker struct {
	locker *lease.Locker
	key    shareKey
	leave  func(context.Context) error
	guards Guards

	notDurable string // see dblock.Caps
}

var _ dblock.Locker = (*LeaseLocker)(nil)

// defaultPoll is seldom: notifications come at once.
const defaultPoll = time.Second

// NewLeaseLocker makes a LeaseLocker in the database of pool. Pool stays its owner's and is used
// for GuardedTx alone. Statements go through up to 4 connections of a pool of its own, with the
// settings of pool; one more waits for notifications, and one sends heartbeats. Their sessions are
// READ COMMITTED and plan each statement once, whatever those of pool do, if no pooler forbids it.
// It asks the server for its version and for that of the tables.
//
// Connections of its own call BeforeConnect and AfterConnect of pool, not PrepareConn,
// BeforeAcquire and AfterRelease. Their contexts, which a tracer sees too, have no values of the
// caller's.
//
// Errors: dblock.ErrInvalid, dblock.ErrSchema, dblock.ErrServerTooOld, dblock.ErrUnavailable;
// dblock.ErrUnsupported for a client_encoding other than UTF8, and for a search_path that names
// pg_catalog after another schema.
func NewLeaseLocker(ctx context.Context, pool *pgxpool.Pool, o LeaseOptions) (*LeaseLocker, error) {
	if err := postgres.CheckHost(pool, "LeaseOptions.Schema", o.Schema); err != nil {
		return nil, err
	}
	lo, err := lease.Options{
		Label: o.Label, Observer: o.Observer, Log: o.Log, Poll: o.Poll, Fair: o.Fair, MaxQueue: o.MaxQueue, MaxBatch: o.MaxBatch, MaxInFlight: o.MaxInFlight,
	}.WithDefaults("LeaseOptions", defaultPoll)
	if err != nil {
		return nil, err
	}
	m, err := member.Options{TTL: o.TTL, Margin: o.Margin, Label: o.Label}.WithDefaults("LeaseOptions")
	if err != nil {
		return nil, err
	}
	key := shareKey{pool, o.Schema, m.TTL, m.Margin, int32(max(ownConns, 2*o.MaxInFlight))}
	s, err := shares.Open(key, m, func() (*leaseDriver, lease.Backend, error) { return openDriver(ctx, key) })
	if err != nil {
		return nil, err
	}
	s.Of.quiet.report(s.Member.Warn)
	return &LeaseLocker{
		locker: lease.New(s, lo),
		key:    key, leave: shares.Leaver(key), guards: Guards{home: s.Of.schema, IdleTimeout: m.TTL},
		notDurable: s.Of.notDurable,
	}, nil
}

// Acquire waits for the lock of key while ctx lives. See dblock.Locker.
func (l *LeaseLocker) Acquire(ctx context.Context, key string, opts ...dblock.Option) (*dblock.Lock, error) {
	return l.locker.Acquire(ctx, key, opts...)
}

// TryAcquire never waits for a holder. See dblock.Locker.
func (l *LeaseLocker) TryAcquire(ctx context.Context, key string, opts ...dblock.Option) (*dblock.Lock, error) {
	return l.locker.TryAcquire(ctx, key, opts...)
}

// AcquireAll waits, while ctx lives, until it has all of several keys at once: at most
// dblock.MaxSetKeys, in whatever order, each once. It never has a part of them, so no call waits
// for a waiting call. One Release releases all, at once; if one is lost, all are. Lock.Fences has a
// fence for each key. Sets of this process that wait for the same key ask for it in turn. Among
// other calls a set has no place in a queue: if single keys of it are wanted all the time, it may
// wait for long.
//
// Errors: those of dblock.Locker's Acquire.
func (l *LeaseLocker) AcquireAll(ctx context.Context, keys []string, opts ...dblock.Option) (*dblock.Lock, error) {
	return l.locker.AcquireAll(ctx, keys, opts...)
}

// TryAcquireAll is AcquireAll that never waits for a holder: a *dblock.HeldError names the holder
// of one of the keys.
func (l *LeaseLocker) TryAcquireAll(ctx context.Context, keys []string, opts ...dblock.Option) (*dblock.Lock, error) {
	return l.locker.TryAcquireAll(ctx, keys, opts...)
}

// Caps says what leases promise.
func (l *LeaseLocker) Caps() dblock.Caps {
	caps := l.locker.Caps()
	caps.NotDurable = l.notDurable
	caps.Durable = caps.NotDurable == ""
	return caps
}

// Close ends the contexts of all locks, and waits, while ctx lives, until they are released. What
// is still held when ctx ends is released, too: its owner may still work. With the last LeaseLocker
// of a pool and TTL the heartbeat ends, and all that is left is free in one statement. With another
// LeaseLocker of them the rest is released in the background. If the server does not answer, Close
// returns 1 s after ctx has ended, and the process goes on leaving in the background.
//
// Errors: ctx's, if locks were still in use; dblock.ErrUnavailable, ErrBusy, ErrConflict and
// ErrOutcomeUnknown, if the database was not there to leave: what was still held is free when
// the TTL is over.
func (l *LeaseLocker) Close(ctx context.Context) error {
	return errors.Join(l.locker.Close(ctx), l.leave(ctx))
}

// Guard checks inside tx that the lock of f is still held, and keeps it so until tx ends: no other
// process can acquire it before. It comes first in the transaction that writes what the lease
// protects.
//
// Errors: dblock.ErrFenced if the lock is no longer held: roll back; the lock is lost at once.
// dblock.ErrConflict as for Guards.Guard: the lock is not lost. Others are pgx's.
func (l *LeaseLocker) Guard(ctx context.Context, tx Tx, f dblock.Fence) error {
	err := l.guards.Guard(ctx, tx, f)
	if errors.Is(err, dblock.ErrFenced) {
		l.locker.Fenced(f)
	}
	return err
}

// GuardedTx begins a READ COMMITTED transaction of the pool, guards it with the lock's fences, runs
// fn, and commits. fn runs once: it is not repeated after a conflict. Its context ends when the
// lock is lost, and nothing is written then. No other process gets the key before the transaction
// has ended. The server ends it if it is idle for the TTL. docs/locks.md has a table of the errors.
//
// Errors: fn's own, after a rollback. dblock.ErrLost if the lock was lost or released before the
// commit. dblock.ErrFenced if the guard found that the lock is no longer held. dblock.ErrConflict
// if the guard or the commit gave way to others: the lock is still held. Nothing was written in
// these cases. dblock.ErrOutcomeUnknown if the connection or the lock was lost during the commit.
// dblock.ErrTxEnded and others: see RunTx.
func (l *LeaseLocker) GuardedTx(ctx context.Context, lock *dblock.Lock, fn func(context.Context, pgx.Tx) error) error {
	if fn == nil {
		return &dblock.InvalidError{Field: "fn", Reason: "it is nil"}
	}
	fences := lock.Fences()
	if len(fences) == 0 {
		return fmt.Errorf("%w: the lock of %q has no token to guard with", dblock.ErrUnsupported, lock.Key())
	}
	modes := pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}
	return root.RunUnder(ctx, lock, func(ctx context.Context) error {
		var own error
		err := runTx(ctx, l.key.host, modes, func(tx pgx.Tx) error {
			for _, f := range fences {
				if err := l.Guard(ctx, tx, f); err != nil {
					return errGuard(ctx, err)
				}
			}
			own = fn(ctx, tx)
			return own
		})
		if own == nil && postgres.IsConflict(err) && !errors.Is(err, dblock.ErrFenced) {
			return fmt.Errorf("%w: nothing was written under %q: %w", dblock.ErrConflict, lock.Key(), err)
		}
		return err
	})
}

// errGuard gives the error of a guard inside GuardedTx its class.
func errGuard(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, dblock.ErrFenced):
		return err
	case ctx.Err() != nil:
		return errNotCommitted(ctx, err)
	default:
		return errUnwritten("the lock could not be checked", err)
	}
}

// Sweep removes rows that were not used for an hour: dead members, free keys. The hour of a shared
// key begins when it was last free; while it has readers it stays. Sweep only saves space; nothing
// waits for it. It returns how many rows it removed.
//
// Errors: dblock.ErrClosed, dblock.ErrUnavailable, dblock.ErrBusy, dblock.ErrConflict,
// dblock.ErrOutcomeUnknown, dblock.ErrSchema.
func (l *LeaseLocker) Sweep(ctx context.Context) (removed int64, err error) {
	return l.locker.Sweep(ctx)
}

// RunSweeper sweeps every so often, at least 1 s, until ctx ends; then it returns the context's
// error. Call it in every process: one of them at a time sweeps, the others stand by. What an hour
// leaves behind is little, so once a minute is plenty.
//
// Errors: the context's; dblock.ErrClosed, dblock.ErrInvalid.
func (l *LeaseLocker) RunSweeper(ctx context.Context, every time.Duration) error {
	return l.locker.RunSweeper(ctx, every)
}

// Held lists the leases that are held now, by all processes, sorted by key.
//
// Errors: ctx's; dblock.ErrClosed, dblock.ErrUnavailable, dblock.ErrBusy, dblock.ErrConflict,
// dblock.ErrOverloaded, dblock.ErrSchema.
func (l *LeaseLocker) Held(ctx context.Context) ([]dblock.HeldLock, error) { return l.locker.List(ctx) }

// Holder reads the holder of a key, with the data of WithData. The exclusive holder comes first, in
// one cheap statement. Of the holders of a shared key, or of a semaphore, it returns any one, with
// its Mode, by a second statement; Held lists all, without their data. With dblock.ErrNotHeld it
// returns the token of the key's last acquisition, by a third statement; 0 if that is not known.
//
// Errors: dblock.ErrNotHeld if no living process holds it; dblock.ErrInvalid,
// dblock.ErrUnavailable, dblock.ErrBusy, dblock.ErrConflict, dblock.ErrOverloaded,
// dblock.ErrSchema, dblock.ErrClosed; ctx's.
func (l *LeaseLocker) Holder(ctx context.Context, key string) (dblock.HeldLock, error) {
	return l.locker.Holder(ctx, key)
}

// ForceRelease releases a lease that another process holds, if the token is right (see Held). It is
// for operators. The holder's lock is lost when its process next reads what it holds, a third of
// its TTL later at most, or when it guards.
//
// Errors: dblock.ErrNotHeld if the key is not held, or not with that token; dblock.ErrBusy
// while a guarded transaction of the holder is open.
func (l *LeaseLocker) ForceRelease(ctx context.Context, key string, token int64) error {
	return l.locker.ForceRelease(ctx, key, token)
}

// SetPermits gives a semaphore another number of permits, 1 to dblock.MaxPermits, and makes it if
// there is none. Those that are held stay so; none is granted past the new number.
//
// Errors: dblock.ErrInvalid, dblock.ErrUnavailable, dblock.ErrBusy, dblock.ErrConflict,
// dblock.ErrOutcomeUnknown, dblock.ErrSchema, dblock.ErrClosed; ctx's if it has ended before.
func (l *LeaseLocker) SetPermits(ctx context.Context, key string, limit int) error {
	return l.locker.SetPermits(ctx, key, limit)
}

// shareKey names what LeaseLockers have in common.
type shareKey struct {
	host        *pgxpool.Pool
	schema      string
	ttl, margin time.Duration
	conns       int32
}

var shares lease.Shares[shareKey, *leaseDriver]
