package lock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
)

const crowdTTL = 6 * time.Second // a statement may take half of it, on a machine that is busy with other tests

// crowdSize is how many leases a process holds, or callers wait.
func crowdSize() int {
	if os.Getenv(suite.EnvSoak) != "" {
		return 10_000
	}
	return 2_000
}

// holdCrowd acquires crowdSize leases at once.
func holdCrowd(ctx context.Context, l dblock.Locker) ([]*dblock.Lock, error) {
	locks, errs := make([]*dblock.Lock, crowdSize()), make([]error, crowdSize())
	suite.Crowd(len(locks), func(i int) { locks[i], errs[i] = l.Acquire(ctx, fmt.Sprint("k", i)) })
	return locks, errors.Join(errs...)
}

// holdCrowd is the process that is killed.
func (e Lease) holdCrowd(ctx context.Context, dsn string) error {
	l, _, err := e.Open(ctx, dsn, LeaseOptions{TTL: crowdTTL})
	if err != nil {
		return err
	}
	if _, err := holdCrowd(ctx, l); err != nil {
		return err
	}
	fmt.Println("held")
	suite.WaitToGoOn()
	return nil
}

func takesOverACrowd(t *testing.T, v *env) {
	holder := v.startHolder(t, suite.Soon(t), holdsCrowd)
	holder.Says(t, "held")
	l := v.abandoned(t, &faultconn.Dialer{}, LeaseOptions{})
	holder.Kill()
	suite.Must(holdCrowd(suite.Soon(t), l))(t)
}

// closeFreesACrowd closes a Locker whose users hold thousands of leases and give none back.
func closeFreesACrowd(t *testing.T, v *env) {
	var dialer faultconn.Dialer
	l, next := v.abandoned(t, &dialer, LeaseOptions{TTL: time.Hour}), v.abandoned(t, &faultconn.Dialer{}, LeaseOptions{})
	suite.Must(holdCrowd(suite.Soon(t), l))(t)
	suite.IsTaken(t, next, "k0")
	dialer.Arm(0, 0, nil)
	closeNow(t, l)
	assert.LessOrEqual(t, dialer.Calls(), 50, "calls on the network; a statement is two")
	suite.Must(holdCrowd(suite.Soon(t), next))(t)
}

// abandoned is a process whose users give no lock back.
func (v *env) abandoned(t *testing.T, dialer *faultconn.Dialer, o LeaseOptions) Leases {
	t.Helper()
	l, closePool, err := v.e.OpenOn(t.Context(), v.DSN, dialer, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		closeNow(t, l)
		closePool()
	})
	return l
}

// closeNow does not wait for the callers that hold locks.
func closeNow(t *testing.T, l Leases) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	cancel()
	assert.ErrorIs(t, l.Close(ctx), context.Canceled)
}

// aCrowdCostsOneRow counts the rows that the heartbeats of thousands of leases change.
func aCrowdCostsOneRow(t *testing.T, v *env) {
	l := v.abandoned(t, &faultconn.Dialer{}, LeaseOptions{TTL: crowdTTL})
	locks := suite.Must(holdCrowd(suite.Soon(t), l))(t)
	v.countChanges(t, "dblock_lease", "dblock_member")
	const beat, changes = "SELECT max(beat) FROM dblock_member", "SELECT n FROM changes"
	before := v.Count(t, beat)
	suite.Until(t, "two heartbeats have come", func() bool { return v.Count(t, beat) >= before+2 })
	beats := v.Count(t, beat) - before
	n := v.Count(t, changes)
	assert.Contains(t, []int64{beats, beats + 1}, n, "rows changed; one may have come between the looks")
	suite.Release(t, locks[0])
	assert.Greater(t, v.Count(t, changes), n, "a release changed nothing: this shows nothing")
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

// servesACrowdOnce has thousands of calls wait for one key in one process.
func servesACrowdOnce(t *testing.T, v *env) {
	var dialer faultconn.Dialer
	l := v.processOn(t, &dialer, LeaseOptions{TTL: time.Hour, Poll: time.Minute})
	first := suite.Acquire(t, l, "k")
	var crowd sync.WaitGroup
	for range crowdSize() {
		crowd.Go(func() {
			if lock, err := l.Acquire(suite.Soon(t), "k"); assert.NoError(t, err) {
				suite.Release(t, lock)
			}
		})
	}
	time.Sleep(time.Second) // no table shows a caller that waits in the process; one that comes late sends its own statement
	dialer.Arm(0, 0, nil)
	suite.Release(t, first)
	crowd.Wait()
	assert.LessOrEqual(t, dialer.Writes(), crowdSize()*105/100, "round trips of %d waiters", crowdSize())
}

// costsFewRoundTrips counts what a lone caller's calls send. MySQL has a bound set and set back
// before a row is made.
func costsFewRoundTrips(t *testing.T, v *env) {
	fresh := 2
	if v.Kind == devdb.MySQL {
		fresh = 5
	}
	want := map[string][2]int{"a fresh key": {fresh, 1}, "a known key": {1, 1}}
	v.costs(t, want, func(_ Leases, key string, pair pairCost) {
		pair("a fresh key", key)
		pair("a known key", key)
	})
}

// modesCostFewRoundTrips does the same for readers and permits, without other callers for the key.
func modesCostFewRoundTrips(t *testing.T, v *env) {
	want := map[string][2]int{
		"a first reader": {1, 1}, "a reader": {1, 1}, "a writer after readers": {5, 1}, "a writer": {1, 1},
		"first permits": {4, 1}, "permits": {1, 1},
	}
	if !v.Postgres() { // what takes several statements there is sent step by step
		want["a first reader"], want["a writer after readers"] = [2]int{4, 1}, [2]int{6, 1}
		want["first permits"], want["permits"] = [2]int{6, 2}, [2]int{1, 2}
	}
	if v.Kind == devdb.MySQL {
		want["first permits"], want["a writer after readers"] = [2]int{10, 2}, [2]int{5, 1}
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
	trips := func(call func()) int {
		dialer.Arm(0, 0, nil)
		call()
		return dialer.Writes()
	}
	least := map[string][2]int{}
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		pairs(l, key, func(what, key string, opts ...dblock.Option) {
			var lock *dblock.Lock
			n := [2]int{trips(func() { lock = suite.Acquire(t, l, key, opts...) }),
				trips(func() { suite.Release(t, lock) })}
			if before, ok := least[what]; ok {
				n = [2]int{min(n[0], before[0]), min(n[1], before[1])}
			}
			least[what] = n
		})
	}
	assert.Equal(t, want, least)
}
