package lock

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
)

const crowdTTL = 15 * time.Second // a statement may take half of it, on a machine that is busy with other tests

// crowdSize is how many leases a process holds, or callers wait.
func crowdSize() int {
	if os.Getenv(suite.EnvSoak) != "" {
		return 10_000
	}
	return 2_000
}

// holdCrowd acquires crowdSize leases at once.
func holdCrowd(t *testing.T, l Leases) []*dblock.Lock {
	t.Helper()
	locks, errs := acquireTogether(t, l, crowdSize(), func(i int) (string, []dblock.Option) { return fmt.Sprint("k", i), nil })
	require.Empty(t, errs)
	return locks
}

// ACrowdOfLeases has processes hold thousands of leases, one after the other. One lock is taken
// away, and is lost alone. A heartbeat changes one row. Close frees all in one statement. All that
// a dead process had is acquired.
func (faultTests) ACrowdOfLeases(t *testing.T, v *env) {
	var dialer faultconn.Dialer
	open := func(dialer *faultconn.Dialer, o LeaseOptions) Leases {
		l, closePool, err := v.e.OpenOn(t.Context(), v.DSN, dialer, o)
		require.NoError(t, err)
		t.Cleanup(func() {
			_ = suite.CloseWithin(l, 0) // its users give nothing back
			closePool()
		})
		return l
	}
	l, next := open(&dialer, LeaseOptions{TTL: crowdTTL}), open(&faultconn.Dialer{}, LeaseOptions{TTL: time.Hour})
	locks := holdCrowd(t, l)
	stolen := locks[len(locks)/2]
	require.NoError(t, next.ForceRelease(t.Context(), stolen.Key(), token(t, stolen)))
	suite.IsLost(t, stolen, dblock.ReasonStolen)
	for _, lock := range locks {
		assert.True(t, lock == stolen || lock.Context().Err() == nil, "%s is lost, too", lock.Key())
	}
	v.countChanges(t, "dblock_lease", "dblock_member")
	const beat, changes = "SELECT max(beat) FROM dblock_member", "SELECT n FROM changes"
	before := v.Count(t, beat)
	suite.Until(t, "two heartbeats have come", func() bool { return v.Count(t, beat) >= before+2 })
	beats := v.Count(t, beat) - before
	n := v.Count(t, changes)
	assert.Contains(t, []int64{beats, beats + 1}, n, "rows changed; one may have come between the looks")
	suite.Release(t, locks[0])
	assert.Greater(t, v.Count(t, changes), n, "a release changed nothing: this shows nothing")

	suite.IsTaken(t, next, locks[1].Key())
	dialer.Arm(0, 0, nil)
	_ = suite.CloseWithin(l, 0)
	assert.LessOrEqual(t, dialer.Calls(), 50, "calls on the network; a statement is two")
	holdCrowd(t, next)
	v.ExpireMembers(t)
	holdCrowd(t, open(&faultconn.Dialer{}, LeaseOptions{TTL: time.Hour}))
}

// countChanges counts every row of these tables that is changed from now on, in a table of its own.
func (v *env) countChanges(t *testing.T, tables ...string) {
	t.Helper()
	v.Exec(t, "CREATE TABLE changes (n BIGINT)")
	v.Exec(t, "INSERT INTO changes VALUES (0)")
	do := "UPDATE changes SET n = n + 1"
	if v.Postgres() {
		v.Exec(t, "CREATE FUNCTION changed() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN "+do+"; RETURN NULL; END'")
		do = "EXECUTE FUNCTION changed()"
	}
	for _, table := range tables {
		for _, event := range []string{"INSERT", "UPDATE", "DELETE"} {
			v.Exec(t, fmt.Sprintf("CREATE TRIGGER %s_%s AFTER %s ON %s FOR EACH ROW %s", table, event, event, table, do))
		}
	}
}

// CostsFewRoundTrips counts what a single caller's calls send. On MySQL it is looked first whether
// a row is missing.
func (leaseTests) CostsFewRoundTrips(t *testing.T, v *env) {
	fresh := 2
	if v.Kind == devdb.MySQL {
		fresh = 3
	}
	want := map[string][2]int{"a fresh key": {fresh, 1}, "a known key": {1, 1}}
	v.costs(t, want, func(_ Leases, key string, pair pairCost) {
		pair("a fresh key", key)
		pair("a known key", key)
	})
}

// ModesCostFewRoundTrips does the same for readers and permits, without other callers for the key.
func (leaseTests) ModesCostFewRoundTrips(t *testing.T, v *env) {
	want := map[string][2]int{
		"a first reader": {1, 1}, "a reader": {1, 1}, "a writer after readers": {5, 1}, "a writer": {1, 1},
		"first permits": {4, 1}, "permits": {1, 1},
	}
	if !v.Postgres() { // what takes several statements there is sent step by step
		want["a first reader"], want["a writer after readers"] = [2]int{4, 1}, [2]int{6, 1}
		want["first permits"], want["permits"] = [2]int{6, 2}, [2]int{1, 2}
	}
	if v.Kind == devdb.MySQL {
		want["a writer after readers"] = [2]int{5, 1}
	}
	v.costs(t, want, func(l Leases, key string, pair pairCost) {
		suite.IsFree(t, l, key)
		pair("a first reader", key, dblock.WithShared())
		pair("a reader", key, dblock.WithShared())
		pair("a writer after readers", key)
		pair("a writer", key)
		pair("first permits", key, dblock.WithPermits(1, 3))
		pair("permits", key, dblock.WithPermits(3, 3))
	})
}

// pairCost counts the round trips of an acquisition and of its release.
type pairCost func(what, key string, opts ...dblock.Option)

// costs compares the round trips of pairs with want. Of several pairs the cheapest counts:
// something may go on beside the others.
func (v *env) costs(t *testing.T, want map[string][2]int, pairs func(l Leases, key string, pair pairCost)) {
	t.Helper()
	var dialer faultconn.Dialer
	l := v.processOn(t, &dialer, LeaseOptions{TTL: time.Hour, Poll: time.Minute})
	for _, key := range []string{"warm", "warm", "other", "other"} { // statements are prepared
		suite.IsFree(t, l, key)
	}
	acquired, trips := suite.LeastTrips(&dialer)
	released, tripsBack := suite.LeastTrips(&dialer)
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		pairs(l, key, func(what, key string, opts ...dblock.Option) {
			var lock *dblock.Lock
			trips(what, func() { lock = suite.Acquire(t, l, key, opts...) })
			tripsBack(what, func() { suite.Release(t, lock) })
		})
	}
	for what, n := range want {
		assert.Equal(t, n, [2]int{acquired[what], released[what]}, what)
	}
}
