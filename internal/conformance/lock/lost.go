package lock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// stolenTTL is a TTL of whose third a busy machine has time to read what it holds.
const stolenTTL = 8 * time.Second

// aStolenLockIsLost force-releases what a live process holds, in every mode. Its context ends
// within the TTL while another process holds the key, and its release says so.
func aStolenLockIsLost(t *testing.T, p Place) {
	a, b := p.process(t, LeaseOptions{TTL: stolenTTL}), p.process(t, LeaseOptions{})
	all := dblock.WithPermits(2, 2)
	locks := map[string]*dblock.Lock{
		"exclusive": suite.Acquire(t, a, "exclusive"),
		"reader":    suite.Acquire(t, a, "reader", dblock.WithShared()),
		"permits":   suite.Acquire(t, a, "permits", all),
		"detached":  suite.Acquire(t, a, "detached", dblock.WithoutRenewal(time.Hour)),
		"s2":        suite.Must(a.AcquireAll(suite.Soon(t), []string{"s1", "s2", "s3"}))(t),
	}
	kept := suite.Acquire(t, a, "kept")
	next := map[string]*dblock.Lock{}
	for key, lock := range locks {
		for _, f := range lock.Fences() {
			if f.Key == key {
				require.NoError(t, b.ForceRelease(t.Context(), key, f.Token))
			}
		}
		var opts []dblock.Option
		if key == "permits" {
			opts = []dblock.Option{all}
		}
		next[key] = suite.Acquire(t, b, key, opts...)
	}
	for key, lock := range locks {
		suite.IsLost(t, lock, dblock.Stolen)
		assert.ErrorIs(t, lock.ExpireIn(t.Context(), time.Hour), dblock.ErrLost, key)
		suite.Release(t, next[key])
	}
	suite.IsFree(t, b, "s1") // the rest of the set was released
	assert.NoError(t, context.Cause(kept.Context()), "another lock of the process")
	suite.Release(t, kept)
}

// aForgottenGrantIsLost takes grants out of the tables, as a failover does to a replica that has
// not received them. The member's row is there, and heartbeats go on.
func aForgottenGrantIsLost(t *testing.T, v *env) {
	l := v.process(t, LeaseOptions{TTL: stolenTTL})
	locks := []*dblock.Lock{
		suite.Acquire(t, l, "exclusive"), suite.Acquire(t, l, "reader", dblock.WithShared()),
		suite.Acquire(t, l, "permits", dblock.WithPermits(2, 3)), suite.Acquire(t, l, "row"),
	}
	v.Exec(t, "UPDATE dblock_lease SET handle = NULL, member_id = NULL WHERE lease_key = 'exclusive'")
	v.Exec(t, "DELETE FROM dblock_lease WHERE lease_key = 'row'")
	v.Exec(t, "DELETE FROM dblock_reader")
	v.Exec(t, "UPDATE dblock_permit SET handle = NULL, member_id = NULL WHERE slot = 1")
	for _, lock := range locks {
		suite.IsLost(t, lock, dblock.Stolen)
	}
}

// aCrowdIsVerified holds many keys, one of which is taken away: its lock alone is lost.
func aCrowdIsVerified(t *testing.T, v *env) {
	const sets, size, stolen = 15, 100, 7
	l := v.process(t, LeaseOptions{TTL: stolenTTL})
	var locks []*dblock.Lock
	for i := range sets {
		var keys []string
		for k := range size {
			keys = append(keys, fmt.Sprint("crowd ", i, " ", k))
		}
		locks = append(locks, suite.Must(l.AcquireAll(suite.Soon(t), keys))(t))
	}
	v.Exec(t, "UPDATE dblock_lease SET handle = NULL, member_id = NULL WHERE lease_key = '"+locks[stolen].Keys()[57]+"'")
	suite.IsLost(t, locks[stolen], dblock.Stolen)
	for i, lock := range locks {
		if i != stolen {
			assert.NoError(t, context.Cause(lock.Context()), lock.Key())
			_ = lock.Release(t.Context())
		}
	}
}

// aSiblingOutlivesAnother closes one of two Lockers that share a pool, and so a heartbeat. The
// other one keeps what it holds, and goes on.
func aSiblingOutlivesAnother(t *testing.T, v *env) {
	o := LeaseOptions{TTL: 2 * time.Second, Poll: 50 * time.Millisecond}
	a, b, closePool, err := v.e.OpenPair(t.Context(), v.DSN, &faultconn.Dialer{}, o, o)
	require.NoError(t, err)
	defer closePool()
	other := v.process(t, LeaseOptions{})
	suite.IsFree(t, other, "joined")
	released, kept := suite.Acquire(t, a, "released"), suite.Acquire(t, b, "kept")
	suite.Release(t, released)
	assert.EqualValues(t, 2, v.Count(t, suite.Members), "members: that of both, and another process's")
	for range 3 {
		assert.NoError(t, a.Close(t.Context()))
	}
	beats(t, kept)
	beats(t, kept)
	suite.IsTaken(t, other, "kept")
	suite.IsFree(t, b, "released")
	suite.IsFree(t, b, "new")
	waiter := suite.Waiter(t, other, "kept")
	suite.Release(t, kept)
	suite.Release(t, waiter())
	assert.NoError(t, b.Close(t.Context()))
	assert.EqualValues(t, 1, v.Count(t, suite.Members), "members: another process's")
}

// aReleaseBesideClose closes a Locker while its locks are released. Another Locker of the pool
// keeps the heartbeat alive, so that a key that is not released stays held for an hour.
func aReleaseBesideClose(t *testing.T, v *env) {
	const rounds, locks = 8, 200
	o := LeaseOptions{TTL: time.Hour}
	for range rounds {
		l, other, closePool, err := v.e.OpenPair(t.Context(), v.DSN, &faultconn.Dialer{}, o, o)
		require.NoError(t, err)
		held, errs := acquireTogether(t, l, locks, func(i int) (string, []dblock.Option) {
			return fmt.Sprint("key ", i), nil
		})
		require.Empty(t, errs)
		suite.Crowd(locks+1, func(i int) {
			if i == locks {
				assert.NoError(t, l.Close(t.Context()))
				return
			}
			_ = held[i].Release(t.Context()) // Close may be faster: then it is lost
		})
		require.Empty(t, v.untilNothingHeld(t, leftFree), "after Close")
		require.NoError(t, other.Close(t.Context()))
		closePool()
	}
}

// leftFree bounds how long a busy machine needs to release what a process no longer uses. A lock
// that is forgotten stays for an hour.
const leftFree = 30 * time.Second

// outage is a process that loses its server for longer than its TTL. It holds one key with its
// member, so that it sees when the member is lost.
type outage struct {
	Leases
	dialer faultconn.Dialer
	kept   *dblock.Lock
}

func (v *env) openOutage(t *testing.T) *outage {
	t.Helper()
	o := &outage{}
	o.Leases = v.processOn(t, &o.dialer, LeaseOptions{TTL: time.Second})
	t.Cleanup(o.dialer.Accept)
	o.kept = suite.Acquire(t, o, "kept")
	return o
}

// lose ends all connections until the member is lost.
func (o *outage) lose(t *testing.T) {
	t.Helper()
	o.dialer.Refuse()
	suite.Until(t, "the member is lost", func() bool { return o.kept.Context().Err() != nil })
	_ = o.kept.Release(t.Context())
}

const leftDetached = "SELECT count(*) FROM dblock_lease WHERE lease_key = 'detached' AND handle IS NOT NULL"

// aReleaseInALongOutage releases a lock that no member keeps while the server is away. Afterwards
// the process releases it at the server.
func aReleaseInALongOutage(t *testing.T, v *env) {
	o := v.openOutage(t)
	detached := suite.Acquire(t, o, "detached", dblock.WithoutRenewal(time.Hour))
	o.dialer.Refuse()
	suite.Release(t, detached)
	o.lose(t)
	assert.EqualValues(t, 1, v.Count(t, leftDetached), "the key is free during the outage: this shows nothing")
	o.dialer.Accept()
	v.Until(t, leftDetached, 0)
}

// anAcquireInALongOutage has the server go away between the grant of such a lock and its answer. A
// heartbeat may be struck instead. Then the tables do not hold the key, and the next call is tried.
func anAcquireInALongOutage(t *testing.T, v *env) {
	for k := range 40 {
		o := v.openOutage(t)
		suite.IsFree(t, o, "warm", dblock.WithoutRenewal(time.Hour))
		o.dialer.Arm(1+k%8, faultconn.HookBefore, func() { // before an answer is read, or a request is written
			for began := time.Now(); time.Since(began) < 200*time.Millisecond; time.Sleep(time.Millisecond) {
				var n int
				if err := v.QueryRowContext(context.Background(), leftDetached).Scan(&n); n > 0 || err != nil {
					o.dialer.Refuse()
					return
				}
			}
		})
		lock, err := o.TryAcquire(t.Context(), "detached", dblock.WithoutRenewal(time.Hour))
		o.dialer.Disarm()
		if err == nil {
			_ = lock.Release(t.Context())
			_ = o.kept.Release(t.Context())
			continue
		}
		o.lose(t)
		held := v.Count(t, leftDetached)
		o.dialer.Accept()
		if held == 1 {
			assert.ErrorIs(t, err, dblock.ErrOutcomeUnknown)
			v.Until(t, leftDetached, 0)
			return
		}
	}
	t.Error("no grant was without an answer: this shows nothing")
}

// aSilentWireEndsWaitsAsDocumented: callers wait while connections fall silent, one after the
// other. Only ErrOutcomeUnknown and ErrUnavailable may end a wait before its context does, and a
// repeated call gets the lock.
func aSilentWireEndsWaitsAsDocumented(t *testing.T, v *env) {
	const callers, silences = 8, 3
	dialer := &faultconn.Dialer{}
	l := v.processOn(t, dialer, LeaseOptions{TTL: 2 * time.Second})
	t.Cleanup(dialer.CloseAll)
	lock := suite.Acquire(t, v.process(t, LeaseOptions{}), "key")
	ctx := suite.Soon(t)
	crowd := suite.Beside(func() {
		suite.Crowd(callers, func(int) {
			own, err := l.Acquire(ctx, "key")
			for ; err != nil && ctx.Err() == nil; own, err = l.Acquire(ctx, "key") {
				assert.True(t, isAny(err, dblock.ErrOutcomeUnknown, dblock.ErrUnavailable) &&
					!isAny(err, dblock.ErrBusy, dblock.ErrNotAcquired), "a wait ended before its context: %v", err)
			}
			if assert.NoError(t, err) {
				err = own.Release(ctx)
				assert.True(t, err == nil || errors.Is(err, dblock.ErrLost), "%v", err)
			}
		})
	})
	for range silences {
		dialer.Arm(1, faultconn.Stall, nil)
		suite.Until(t, "a connection falls silent", func() bool { return dialer.Calls() > 0 })
		dialer.Disarm()
	}
	suite.Release(t, lock)
	crowd()
}
