package mysqllock

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/root"
	"github.com/dblock-go/dblock/internal/schema"
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

	// Schema is the database that holds dblock's tables. Default: the one that a connection of the
	// pool uses when NewLeaseLocker is called. Name it if your code sends USE.
	Schema string

	// Watch is how often the server looks, on behalf of a process, at the keys that it waits for:
	// in one statement that takes up to a second, on a connection that is in use only while a call
	// waits. A release is noticed within that time. At 2 ms this costs the server about a thirtieth
	// of a processor core for each process that waits, and twice that if it waits for 100 keys;
	// longer ones cost less. The 100 keys that were waited for longest are watched; the others are
	// polled for, and all if the pool may open less than 8 connections. Default 2 ms; 1 ms to 1
	// s, negative: never. A readTimeout of the DSN below 2 s comes in its way.
	Watch time.Duration

	// Poll is how often at least a process asks again for a key that it waits for, give or take a
	// half, even if it was not seen free. If it is not watched, the process asks every 5 ms at
	// first, and less often the longer it has waited; 100 times a second at most, over all keys.
	// Default 1 s, and 100 ms if it is not watched; 10 ms to 1 min.
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
	// call has a statement of its own. A statement also has at most 4 MiB, or max_allowed_packet if
	// that is less.
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
	driver *leaseDriver
	guards Guards

	notDurable string // see dblock.Caps
}

var _ dblock.Locker = (*LeaseLocker)(nil)

// By default what is watched is polled for seldom, and the rest so often that it matters little.
const (
	defaultWatch          = 2 * time.Millisecond
	defaultPoll           = time.Second
	defaultUnnotifiedPoll = 100 * time.Millisecond
)

// NewLeaseLocker makes a LeaseLocker in the database of pool, which stays its owner's. It keeps one
// connection of the pool for heartbeats, another one while it watches what it waits for, and uses
// about 6 more at once, for a statement or two each. Those on which locks were acquired stay with
// it for 1 s: 8 at most, and a quarter of the pool at most. It asks the server for its version and
// for that of the tables.
//
// Errors: dblock.ErrInvalid (also if the pool has no more than one connection),
// dblock.ErrSchema, dblock.ErrServerTooOld, dblock.ErrUnavailable.
func NewLeaseLocker(ctx context.Context, pool *sql.DB, o LeaseOptions) (*LeaseLocker, error) {
	if pool == nil {
		return nil, &dblock.InvalidError{Field: "pool", Reason: "it is nil"}
	}
	if pool.Stats().MaxOpenConnections == 1 {
		return nil, &dblock.InvalidError{Field: "pool", Reason: "it may open 1 connection; a heartbeat needs one of its own: allow 2 at least"}
	}
	if err := schema.CheckMySQLName(o.Schema); err != nil {
		return nil, &dblock.InvalidError{Field: "LeaseOptions.Schema", Reason: err.Error()}
	}
	watch := cmp.Or(o.Watch, defaultWatch)
	if watch > 0 && (watch < time.Millisecond || watch > time.Second) {
		return nil, &dblock.InvalidError{Field: "LeaseOptions.Watch", Reason: fmt.Sprintf("%v is not within 1ms to 1s", watch)}
	}
	lo, err := lease.Options{
		UnnotifiedPoll: cmp.Or(o.Poll, defaultUnnotifiedPoll), Label: o.Label, Observer: o.Observer, Log: o.Log, Poll: o.Poll, Fair: o.Fair, MaxQueue: o.MaxQueue, MaxBatch: o.MaxBatch, MaxInFlight: o.MaxInFlight,
	}.WithDefaults("LeaseOptions", defaultPoll)
	if err != nil {
		return nil, err
	}
	m, err := member.Options{TTL: o.TTL, Margin: o.Margin, Label: o.Label}.WithDefaults("LeaseOptions")
	if err != nil {
		return nil, err
	}
	key := shareKey{pool, o.Schema, m.TTL, m.Margin, watch}
	s, err := shares.Open(key, m, func() (*leaseDriver, lease.Backend, error) { return openDriver(ctx, pool, o.Schema, watch) })
	if err != nil {
		return nil, err
	}
	return &LeaseLocker{
		locker: lease.New(s, lo),
		key:    key, leave: shares.Leaver(key), driver: s.Of, guards: Guards{Schema: o.Schema},
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
// Others are the driver's.
func (l *LeaseLocker) Guard(ctx context.Context, tx *sql.Tx, f dblock.Fence) error {
	var err error
	if !l.locker.Holds(f) && l.driver.isLost(ctx, f) {
		err = errFenced(describe(f))
	} else {
		err = l.guards.Guard(ctx, tx, f)
	}
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
// dblock.ErrTxEnded if fn did not return an error for which the server had rolled everything back,
// such as a deadlock: the guard was gone then, and what fn sent after that is written. Others: see
// RunTx.
func (l *LeaseLocker) GuardedTx(ctx context.Context, lock *dblock.Lock, fn func(context.Context, *sql.Tx) error) error {
	if fn == nil {
		return &dblock.InvalidError{Field: "fn", Reason: "it is nil"}
	}
	fences := lock.Fences()
	if len(fences) == 0 {
		return fmt.Errorf("%w: the lock of %q has no token to guard with", dblock.ErrUnsupported, lock.Key())
	}
	return root.RunUnder(ctx, lock, func(ctx context.Context) error {
		var own error
		err := l.guardedTx(ctx, fences, func(ctx context.Context, tx *sql.Tx) error {
			own = fn(ctx, tx)
			return own
		})
		if own == nil && mysql.IsConflict(err) {
			return fmt.Errorf("%w: nothing was written under %q: %w", dblock.ErrConflict, lock.Key(), err)
		}
		return err
	})
}

// guardedTx runs fn in a guarded transaction of a connection that the server ends once it was idle
// for the TTL.
func (l *LeaseLocker) guardedTx(ctx context.Context, fences []dblock.Fence, fn func(context.Context, *sql.Tx) error) error {
	modes, err := TxOptions{}.modes()
	if err != nil {
		return err
	}
	conn, err := l.key.host.Conn(ctx)
	if err != nil {
		return errBegin(ctx, err)
	}
	restore, err := boundIdle(ctx, conn, l.key.ttl)
	if err != nil {
		_ = conn.Close()
		return errBegin(ctx, err)
	}
	tx, err := mysql.BeginOn(ctx, conn, modes)
	if err != nil {
		return errBegin(ctx, err)
	}
	return runOn(ctx, tx, func(tx *sql.Tx) error {
		for _, f := range fences {
			if err := l.Guard(ctx, tx, f); err != nil {
				return errGuard(ctx, err)
			}
		}
		return fn(ctx, tx)
	}, restore)
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

// boundIdle has the server end the session once it was idle for the TTL: a client that hangs would
// hold the lease for hours.
func boundIdle(ctx context.Context, conn *sql.Conn, ttl time.Duration) (restore func(), err error) {
	var before int64
	if err := conn.QueryRowContext(ctx, "SELECT @@SESSION.wait_timeout LIMIT 1").Scan(&before); err != nil {
		return nil, err
	}
	seconds := int64((ttl + time.Second - 1) / time.Second)
	if before <= seconds {
		return func() {}, nil
	}
	if _, err := conn.ExecContext(ctx, fmt.Sprintf("SET SESSION wait_timeout = %d", seconds)); err != nil {
		mysql.Discard(conn)
		return nil, err
	}
	return func() { mysql.Reset(ctx, conn, fmt.Sprintf("SET SESSION wait_timeout = %d", before)) }, nil
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
	host               *sql.DB
	schema             string
	ttl, margin, watch time.Duration
}

var shares lease.Shares[shareKey, *leaseDriver]
