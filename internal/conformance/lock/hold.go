package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// two opens the Lockers of two processes.
func (p Place) two(t *testing.T) (a, b Leases) {
	t.Helper()
	return p.process(t, LeaseOptions{}), p.process(t, LeaseOptions{})
}

func (v *env) two(t *testing.T) (a, b Leases) {
	t.Helper()
	return Place{LeasePlace: v}.two(t)
}

// isAny reports whether err is any of these.
func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}

func (contract) Excludes(t *testing.T, p Place) {
	a, b := p.two(t)
	first := suite.Acquire(t, a, "k", dblock.WithLabel("nightly run"))
	held := suite.IsTaken(t, b, "k")
	assert.Equal(t, "nightly run", held.Holder.Label)
	assert.Len(t, held.Holder.Member, 32)
	assert.Equal(t, token(t, first), held.Holder.Token)
	for _, d := range []time.Duration{held.Remaining, time.Until(first.ValidUntil())} {
		assert.True(t, 0 < d && d <= time.Minute, "held for another %v", d)
	}
	suite.IsFree(t, b, "another key")
	suite.IsTaken(t, a, "k")
	suite.Release(t, first)
	suite.Release(t, first) // a second release returns what the first one did
	assert.Error(t, first.Context().Err())
	assert.NotErrorIs(t, context.Cause(first.Context()), dblock.ErrLost)
	second := suite.Must(b.TryAcquire(t.Context(), "k"))(t)
	assert.Greater(t, token(t, second), token(t, first))
	suite.Release(t, second)
}

// KeepsWhatIsInUse: the key is held for longer than the TTL.
func (contract) KeepsWhatIsInUse(t *testing.T, p Place) {
	const ttl = 12 * time.Second
	a, b := p.process(t, LeaseOptions{TTL: ttl}), p.process(t, LeaseOptions{})
	lock := suite.Acquire(t, a, "k")
	for end := time.Now().Add(ttl); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		suite.IsTaken(t, b, "k")
	}
	suite.IsTaken(t, b, "k")
	assert.NoError(t, context.Cause(lock.Context()))
	suite.Release(t, lock)
}

func (contract) EndsWhenItsTimeIsUp(t *testing.T, p Place) {
	a, b := p.two(t)
	capped := suite.Acquire(t, a, "capped", dblock.WithMaxHold(300*time.Millisecond))
	bounded := suite.Acquire(t, a, "bounded")
	_ = bounded.ExpireIn(t.Context(), 300*time.Millisecond) // lost, if the server is slow
	long := suite.Acquire(t, a, "long", dblock.WithMaxHold(time.Hour))
	assert.NoError(t, long.ExpireIn(t.Context(), 2*time.Hour))
	assert.LessOrEqual(t, time.Until(long.ValidUntil()), time.Hour, "ExpireIn beyond WithMaxHold")
	if next, err := b.TryAcquire(t.Context(), "capped"); err == nil {
		assert.Error(t, capped.Context().Err(), "acquired by another process")
		suite.Release(t, next)
	}
	for _, lock := range []*dblock.Lock{capped, bounded} {
		next := suite.Acquire(t, b, lock.Key())
		suite.IsLost(t, lock, dblock.ReasonTimeUp)
		suite.Release(t, next)
	}
	endedFor(t, bounded.ExpireIn(t.Context(), time.Hour), dblock.ReasonTimeUp)
	suite.Release(t, long)
}

// endedFor fails unless err says for which reason a lock has ended.
func endedFor(t *testing.T, err error, want dblock.Reason) {
	t.Helper()
	assert.ErrorIs(t, err, dblock.ErrLost)
	assert.Equal(t, want, suite.As[*dblock.LostError](t, err).Reason)
}

func (contract) LastsWithoutItsProcess(t *testing.T, p Place) {
	a, b := p.two(t)
	lock := suite.Acquire(t, a, "k", dblock.WithoutRenewal(1500*time.Millisecond))
	kept := suite.Acquire(t, a, "kept by its process")
	p.ForgetMembers(t) // a is dead, as far as b can see
	suite.IsFree(t, b, "kept by its process")
	if next, err := b.TryAcquire(t.Context(), "k"); err == nil {
		assert.False(t, time.Now().Before(lock.ValidUntil()), "acquired before its end")
		suite.Release(t, next)
	}
	suite.IsFree(t, b, "k")
	suite.IsLost(t, lock, dblock.ReasonTimeUp)
	_ = kept.Release(t.Context())
}

func (contract) TakesOverFromTheDead(t *testing.T, p Place) {
	a, b := p.process(t, LeaseOptions{TTL: 10 * time.Second}), p.process(t, LeaseOptions{})
	lock := suite.Acquire(t, a, "k")
	suite.IsTaken(t, b, "k")
	p.ExpireMembers(t)
	next := suite.Acquire(t, b, "k") // b's member has expired as well: b joins again
	assert.Greater(t, token(t, next), token(t, lock))
	suite.IsLost(t, lock, dblock.ReasonEvicted)
	assert.NoError(t, context.Cause(next.Context()))
	suite.Release(t, next)
}

func (contract) ALostMemberLosesAllAndJoinsAnew(t *testing.T, p Place) {
	l := p.process(t, LeaseOptions{TTL: 12 * time.Second})
	var locks []*dblock.Lock
	for i := range 20 {
		locks = append(locks, suite.Acquire(t, l, fmt.Sprint("k", i)))
	}
	p.ForgetMembers(t)
	for _, lock := range locks {
		suite.IsLost(t, lock, dblock.ReasonEvicted)
	}
	for _, lock := range locks {
		suite.IsFree(t, l, lock.Key())
	}
}

func (contract) CloseGivesBack(t *testing.T, p Place) {
	a, b := p.two(t)
	lock, blocker := suite.Acquire(t, a, "k"), suite.Acquire(t, b, "busy")
	waits := suite.Begin(func() (*dblock.Lock, error) { return a.Acquire(context.Background(), "busy") })
	closed := suite.Beside(func() { assert.NoError(t, a.Close(context.Background())) })
	suite.IsLost(t, lock, dblock.ReasonClosed)
	closed()
	assert.ErrorIs(t, suite.Second(waits()), dblock.ErrClosed, "a call that waited")
	assert.ErrorIs(t, suite.Second(a.TryAcquire(t.Context(), "k")), dblock.ErrClosed)
	suite.IsFree(t, b, "k")
	suite.Release(t, blocker)
	members, _, _ := p.Rows(t)
	assert.Equal(t, 1, members, "members: b's")
}

// ACloseCutAnywhere: Close frees all, whichever of its calls on the network breaks.
func (faultTests) ACloseCutAnywhere(t *testing.T, v *env) {
	for _, mode := range []faultconn.Mode{faultconn.CutBefore, faultconn.CutAfter} {
		for k, struck := 1, true; struck; k++ {
			var dialer faultconn.Dialer
			l := v.processOn(t, &dialer, LeaseOptions{TTL: time.Hour})
			suite.IsFree(t, l, "key")
			dialer.Arm(k, mode, nil)
			require.NoError(t, l.Close(suite.Soon(t)), "%v call %d", mode, k)
			struck = dialer.Disarm()
			assert.Zero(t, v.Count(t, suite.Members), "%v call %d: the process has not left", mode, k)
			v.Exec(t, "DELETE FROM dblock_member")
		}
	}
}

// beats waits until a heartbeat is confirmed to the lock's process, or the lock is lost.
func beats(t *testing.T, lock *dblock.Lock) {
	ctx := suite.Soon(t)
	for before := lock.ValidUntil(); !lock.ValidUntil().After(before); {
		select {
		case <-lock.Context().Done():
			return
		case <-ctx.Done():
			t.Errorf("%q is neither kept nor lost", lock.Key())
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// ExpiresAllOrNothing locks the row of one of two keys: ExpireIn writes nothing then.
func (leaseTests) ExpiresAllOrNothing(t *testing.T, v *env) {
	a, b := v.process(t, LeaseOptions{}), v.process(t, LeaseOptions{})
	lock := acquireSet(t, a, []string{"s1", "s2"})
	unlock := v.Locked(t, "SELECT 1 FROM dblock_lease WHERE lease_key = 's2' FOR UPDATE")
	err := lock.ExpireIn(t.Context(), 3*time.Second)
	assert.True(t, errors.Is(err, dblock.ErrBusy) || errors.Is(err, dblock.ErrLost), err)
	unlock()
	time.Sleep(3 * time.Second)
	if errors.Is(err, dblock.ErrBusy) { // else the server was slow to refuse, and dblock gives the keys back
		suite.IsTaken(t, b, "s1")
		suite.IsTaken(t, b, "s2")
	}
	_ = lock.Release(t.Context())
}

// EndsBeforeTheServer compares the end that a process believes in with the one that the server has,
// in each mode and for each way to set it.
func (leaseTests) EndsBeforeTheServer(t *testing.T, v *env) {
	const d, margin = 30 * time.Second, 2 * time.Second
	l := v.process(t, LeaseOptions{TTL: 2 * time.Minute, Margin: margin})
	left := "EXTRACT(epoch FROM held_until - clock_timestamp()) * 1000"
	if !v.Postgres() {
		left = "TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), held_until) / 1000"
	}
	for table, mode := range map[string]dblock.Option{
		"dblock_lease": dblock.WithLabel(""), "dblock_reader": dblock.WithShared(), "dblock_permit": dblock.WithPermits(1, 2),
	} {
		for how, end := range map[string]dblock.Option{
			"max": dblock.WithMaxHold(d), "detached": dblock.WithoutRenewal(d), "moved": dblock.WithLabel(""),
		} {
			key := strings.TrimPrefix(table, "dblock_") + " " + how
			lock := suite.Acquire(t, l, key, mode, end)
			if how == "moved" {
				require.NoError(t, lock.ExpireIn(t.Context(), d))
			}
			query := "SELECT round(%s) FROM %s WHERE lease_key = '%s' AND handle IS NOT NULL"
			server := v.Count(t, fmt.Sprintf(query, left, table, key))
			own := time.Until(lock.ValidUntil()) // measured later: it only gets less
			assert.GreaterOrEqual(t, time.Duration(server)*time.Millisecond-own, margin-time.Second, key)
			assert.NoError(t, context.Cause(lock.Context()), key)
			suite.Release(t, lock)
		}
	}
}
