package lock

import (
	"context"
	"errors"
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
		suite.IsLost(t, lock, dblock.Stolen)
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
		suite.IsLost(t, lock, dblock.Stolen)
	}
}

// ASiblingOutlivesAnother closes one of two Lockers that share a pool, and so a heartbeat. The
// other one keeps what it holds, and goes on. What the closed one left is free for other processes.
func (leaseTests) ASiblingOutlivesAnother(t *testing.T, v *env) {
	o := LeaseOptions{TTL: 2 * time.Second, Poll: 50 * time.Millisecond}
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

// AForgottenReleaseIsRepeated puts the rows back that releases, and a call that gave up, have changed, as a server does that
// crashed or failed over and has forgotten these commits. They are under a member that lives. When its connections have
// ended, all is free but what it still holds.
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
	suite.Release(t, first)
	keys := map[string][]dblock.Option{"exclusive": nil, "fair": nil, "s1": nil, "s2": nil, "reader": nil, "permits": {all}, "ticket": nil}
	for key, opts := range keys {
		suite.IsTaken(t, other, key, opts...)
	}
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
