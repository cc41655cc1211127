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
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// stolenTTL is a TTL of whose third a busy machine has time to read what it holds.
const stolenTTL = 8 * time.Second

// AStolenLockIsLost force-releases what a live process holds, in every mode. Its context ends
// within the TTL while another process holds the key, and its release says so.
func (contract) AStolenLockIsLost(t *testing.T, p Place) {
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
		suite.IsLost(t, lock, dblock.ReasonStolen)
		assert.ErrorIs(t, lock.ExpireIn(t.Context(), time.Hour), dblock.ErrLost, key)
		suite.Release(t, next[key])
	}
	suite.IsFree(t, b, "s1") // the rest of the set was released
	assert.NoError(t, context.Cause(kept.Context()), "another lock of the process")
	suite.Release(t, kept)
}

// AForgottenGrantIsLost takes grants out of the tables, as a failover does to a replica that has
// not received them. The member's row is there, and heartbeats go on.
func (leaseTests) AForgottenGrantIsLost(t *testing.T, v *env) {
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
		suite.IsLost(t, lock, dblock.ReasonStolen)
	}
}

// ASiblingOutlivesAnother closes one of two Lockers that share a pool, and so a heartbeat. The
// other one keeps what it holds, and goes on. What the closed one left is free for other processes.
func (leaseTests) ASiblingOutlivesAnother(t *testing.T, v *env) {
	o := LeaseOptions{TTL: stolenTTL, Poll: 50 * time.Millisecond}
	a, b, closePool, err := v.e.OpenPair(t.Context(), v.DSN, &faultconn.Dialer{}, o, o)
	require.NoError(t, err)
	defer closePool()
	other := v.process(t, LeaseOptions{})
	suite.IsFree(t, other, "joined")
	released, kept := suite.Acquire(t, a, "released"), suite.Acquire(t, b, "kept")
	suite.Release(t, released)
	assert.EqualValues(t, 2, v.Count(t, suite.Members), "members: that of both, and another process's")
	left := suite.Acquire(t, a, "left")
	ended, end := context.WithCancel(t.Context())
	end()
	assert.ErrorIs(t, a.Close(ended), context.Canceled)
	suite.Release(t, suite.Acquire(t, other, "left"))
	_ = left.Release(t.Context())
	assert.NoError(t, errors.Join(a.Close(t.Context()), a.Close(t.Context())))
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

// AForgottenReleaseIsRepeated puts the rows back that releases, and a call that gave up, have
// changed, as a server does that crashed or failed over and has forgotten these commits. They are
// under a member that lives. When its connections have ended, all is free but what it still holds.
func (leaseTests) AForgottenReleaseIsRepeated(t *testing.T, v *env) {
	o, dialer := LeaseOptions{TTL: stolenTTL, Poll: 50 * time.Millisecond}, &faultconn.Dialer{}
	fairly := o
	fairly.Fair = true
	l, fair, closePool, err := v.e.OpenPair(t.Context(), v.DSN, dialer, o, fairly)
	require.NoError(t, err)
	defer closePool()
	other := v.process(t, LeaseOptions{})
	first := suite.Acquire(t, v.process(t, fairly), "ticket")
	all := dblock.WithPermits(2, 2)
	locks := []*dblock.Lock{
		suite.Acquire(t, l, "exclusive"), suite.Acquire(t, fair, "fair"), acquireSet(t, l, []string{"s1", "s2"}),
		suite.Acquire(t, l, "reader", dblock.WithShared()), suite.Acquire(t, l, "permits", all),
	}
	kept := []*dblock.Lock{suite.Acquire(t, l, "kept"), suite.Acquire(t, l, "permit", dblock.WithPermits(1, 2))}
	ctx, giveUp := context.WithCancel(t.Context())
	waiter := startWaiter(ctx, fair, "ticket")
	v.untilTickets(t, 1)
	forget := v.Forgets(t, "dblock_lease", "dblock_reader", "dblock_permit", "dblock_ticket")
	for _, lock := range locks {
		suite.Release(t, lock)
	}
	giveUp()
	<-waiter.done
	v.untilTickets(t, 0)
	forget()
	taken := v.Count(t, "SELECT COUNT(*) FROM was_dblock_lease WHERE handle IS NOT NULL") // processes look by themselves now and then
	assert.EqualValues(t, 6, taken, "what is kept, what another process has, and what was forgotten")
	suite.Release(t, first)
	keys := map[string][]dblock.Option{"exclusive": nil, "fair": nil, "s1": nil, "s2": nil, "reader": nil, "permits": {all}, "ticket": nil}
	dialer.CloseAll()
	for key, opts := range keys {
		suite.Release(t, suite.Acquire(t, other, key, opts...))
	}
	for _, lock := range kept {
		beats(t, lock)
		assert.NoError(t, v.Check(t.Context(), l, lock))
		suite.Release(t, lock)
	}
	assert.NoError(t, errors.Join(l.Close(t.Context()), fair.Close(t.Context())))
}

// ARefusalWritesNothing tries to acquire a held key on a server of its own: the server's log does
// not grow, and no row changes. A server writes a little by itself, so that one of many short
// periods in which it writes nothing is enough.
func (leaseTests) ARefusalWritesNothing(t *testing.T, v *env) {
	own, server := v.onAServerOfItsOwn(t)
	a, b := own.process(t, LeaseOptions{TTL: time.Hour}), own.process(t, LeaseOptions{TTL: time.Hour})
	lock := suite.Acquire(t, a, "k")
	suite.IsFree(t, b, "another key")
	refuse := func() {
		for range 5 {
			suite.IsTaken(t, b, "k")
		}
	}
	least := own.logged(t, refuse)
	for n := 1; least > 0 && n < 500; n++ {
		least = min(least, own.logged(t, refuse))
	}
	if server != nil {
		assert.Zero(t, least, "what refusals wrote to the log")
	}
	assert.NotZero(t, own.logged(t, func() { suite.IsFree(t, b, "another key") }), "the control: what a grant wrote")
	own.countChanges(t, "dblock_lease", "dblock_member", "dblock_lease_waiter")
	refuse()
	assert.Zero(t, own.Count(t, "SELECT n FROM changes"), "rows that refusals changed")
	suite.Release(t, lock)
}

// logged returns by how many bytes the server's log grows while f runs. MySQL, which reports its
// position late, counts writes.
func (v *env) logged(t *testing.T, f func()) int64 {
	t.Helper()
	position := map[devdb.Kind]string{
		devdb.Postgres: "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint",
		devdb.MariaDB: "SELECT variable_value FROM information_schema.global_status " +
			"WHERE variable_name = 'Innodb_lsn_current'",
		devdb.MySQL: "SELECT variable_value FROM performance_schema.global_status " +
			"WHERE variable_name = 'Innodb_log_write_requests'",
	}[v.Kind]
	before := v.Count(t, position)
	f()
	return v.Count(t, position) - before
}

// frozenWithin is how long a call may take while the server is frozen. A call that waits for the
// server's answer waits for half of the TTL.
const frozenWithin = 30 * time.Second

// AFrozenServerHoldsNoCaller freezes the server while locks are held. Each call returns in time.
// All is free soon after the server answers again, and the processes that were closed have left.
func (faultTests) AFrozenServerHoldsNoCaller(t *testing.T, v *env) {
	own, server := v.onAServerOfItsOwn(t)
	if server == nil {
		return // it was given, and may serve others
	}
	const crowd = 50
	closed := make([]Leases, 2)
	for i := range closed {
		l, end, err := own.OpenLeases(t.Context(), LeaseOptions{TTL: time.Hour})
		require.NoError(t, err)
		t.Cleanup(end)
		closed[i] = l
		for k := range 3 {
			suite.Acquire(t, l, fmt.Sprint("closed ", i, k))
		}
	}
	l := own.processOn(t, &faultconn.Dialer{}, LeaseOptions{TTL: 10 * time.Minute})
	locks, errs := acquireTogether(t, l, crowd, func(i int) (string, []dblock.Option) { return fmt.Sprint("key ", i), nil })
	require.Empty(t, errs)
	require.NoError(t, server.Freeze())
	inTime := func(what string, call func(ctx context.Context)) {
		ctx, cancel := context.WithTimeout(t.Context(), suite.FrozenDeadline)
		defer cancel()
		began := time.Now()
		call(ctx)
		assert.LessOrEqual(t, time.Since(began), frozenWithin, what)
	}
	inTime("a release", func(context.Context) { _ = locks[0].Release(t.Context()) })
	inTime("releases", func(context.Context) {
		suite.Crowd(crowd-1, func(i int) { _ = locks[1+i].Release(t.Context()) })
	})
	inTime("TryAcquire", func(ctx context.Context) { assert.Error(t, suite.Second(l.TryAcquire(ctx, "another"))) })
	inTime("Acquire", func(ctx context.Context) { assert.Error(t, suite.Second(l.Acquire(ctx, "another"))) })
	inTime("Close", func(ctx context.Context) { assert.Error(t, closed[0].Close(ctx)) })
	inTime("Close with an ended context", func(ctx context.Context) {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		assert.Error(t, closed[1].Close(ended))
	})
	require.NoError(t, server.Thaw())
	own.Until(t, "SELECT count(*) FROM dblock_lease WHERE handle IS NOT NULL AND lease_key LIKE 'key%'", 0)
	own.Until(t, suite.Members, 1)
	assert.NoError(t, l.Close(suite.Soon(t)))
}
