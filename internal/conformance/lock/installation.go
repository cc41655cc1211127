package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/migrations"
)

// RunsWithTheDocumentedGrants makes every call as a user with the rights of docs/grants.md.
func (leaseTests) RunsWithTheDocumentedGrants(t *testing.T, v *env) {
	a, b := v.as(v.ServiceUser(t)).two(t)
	lock := suite.Acquire(t, a, "k")
	assert.NoError(t, v.Check(t.Context(), a, lock))
	waiter := suite.Waiter(t, b, "k")
	suite.Release(t, lock)
	next := waiter()
	assert.NoError(t, next.ExpireIn(t.Context(), time.Hour))
	v.ExpireMembers(t)
	suite.IsFree(t, a, "k")
	assert.NoError(t, suite.Second(a.Sweep(t.Context())))
	assert.NoError(t, suite.Second(a.Held(t.Context())))
	_ = next.Release(t.Context())
}

// OperatorsOfLocksNeedTheirGrants makes the calls of the commands locks, unlock and permits.
func (leaseTests) OperatorsOfLocksNeedTheirGrants(t *testing.T, v *env) {
	service := v.process(t, LeaseOptions{})
	ofLocks := func(table string) bool {
		return !strings.HasPrefix(table, "dblock_queue") && table != "dblock_session_key" && !suite.OfStock(table)
	}
	n := 0
	v.OperatorNeedsEachGrant(t, ofLocks, func(dsn string) func() error {
		operator := v.as(dsn).process(t, LeaseOptions{})
		return func() error {
			n++
			ctx, key := t.Context(), fmt.Sprint(n)
			locks := []*dblock.Lock{
				suite.Acquire(t, service, "one "+key), suite.Acquire(t, service, "readers "+key, dblock.WithShared()),
				suite.Acquire(t, service, "permits "+key, dblock.WithPermits(1, 2)),
			}
			errs := []error{
				suite.Second(operator.Held(ctx)), suite.Second(operator.Holder(ctx, "one "+key)),
				operator.SetPermits(ctx, "permits "+key, 3), operator.SetPermits(ctx, "new permits "+key, 3),
			}
			for _, lock := range locks {
				errs = append(errs, operator.ForceRelease(ctx, lock.Key(), token(t, lock)))
				_ = lock.Release(ctx) // lost, unless the operator was refused
			}
			return errors.Join(errs...)
		}
	})
}

// UsesASchemaOfTheHostsChoice has tables outside the connection's path.
func (leaseTests) UsesASchemaOfTheHostsChoice(t *testing.T, v *env) {
	name := "elsewhere"
	if v.Kind != devdb.Postgres { // databases are the server's
		name = v.Text(t, "SELECT DATABASE()") + "_e"
		v.Exec(t, "CREATE DATABASE "+name)
		t.Cleanup(func() { _, _ = v.ExecContext(context.WithoutCancel(t.Context()), "DROP DATABASE "+name) })
	}
	suite.Must(migrations.Up(t.Context(), v.DB.DB, migrations.Options{Schema: name}))(t)
	l, other := v.process(t, LeaseOptions{Schema: name}), v.process(t, LeaseOptions{})
	lock, there := suite.Acquire(t, l, "k"), suite.Acquire(t, other, "k")
	assert.NoError(t, v.Check(t.Context(), l, lock))
	assert.ErrorIs(t, v.Check(t.Context(), other, lock), dblock.ErrFenced, "a guard in the other schema")
	assert.EqualValues(t, 1, v.Count(t, "SELECT count(*) FROM "+name+".dblock_lease"))
	_, _, err := v.e.Open(t.Context(), v.DSN, LeaseOptions{Schema: "a\x00"})
	assert.ErrorIs(t, err, dblock.ErrInvalid, "a schema with NUL")
	assert.NoError(t, suite.Second(l.Sweep(t.Context())))
	assert.Len(t, suite.Must(l.Held(t.Context()))(t), 1)
	suite.Release(t, lock)
	suite.Release(t, there)
}

// ChecksTheTables opens over whole tables and connections that commit, and over no others.
func (leaseTests) ChecksTheTables(t *testing.T, v *env) {
	open := func(dsn string) error {
		l, closePool, err := v.e.Open(t.Context(), dsn, LeaseOptions{})
		if err == nil {
			err = l.Close(t.Context())
			closePool()
		}
		return err
	}
	assert.NoError(t, suite.RefusesBadSessions(t, v.Kind, v.DSN, open))
	suite.RefusesUnsafeTables(t, v.Kind, "dblock_lease", func(statement string) { t.Helper(); v.Exec(t, statement) },
		func() error { return open(v.DSN) })
	drop := "DROP INDEX dblock_queue_dead_when"
	if v.Kind != devdb.Postgres {
		drop += " ON dblock_queue_dead"
	}
	for _, change := range []struct{ statement, object string }{
		{drop, "dblock_queue_dead.dblock_queue_dead_when"},
		{"ALTER TABLE dblock_lease DROP COLUMN shared", "dblock_lease.shared"},
	} {
		v.Exec(t, change.statement)
		err := open(v.DSN)
		assert.True(t, suite.IsDifferent(err, change.object), "without %s: %v", change.object, err)
	}
}

// RunWith locks over connections with unusual settings. A setting makes a DSN from another one.
func (e Lease) RunWith(t *testing.T, settings map[string]suite.Setting) {
	suite.Each(t, settings, func(t *testing.T, setting suite.Setting) {
		v := e.env(t)
		usual := v.process(t, LeaseOptions{})
		v.locksAsUsual(t, v.as(setting(t, v.DSN)).process(t, LeaseOptions{}), usual)
	})
}

// locksAsUsual makes the calls of a Locker over unusual connections, beside a usual one.
func (v *env) locksAsUsual(t *testing.T, l, usual Leases) {
	v.Exec(t, "CREATE TABLE notes (n INT)")
	for _, key := range []string{"fresh", "fresh", "other", "Fresh", "fresh "} {
		lock := suite.Acquire(t, l, key, dblock.WithLabel("läbel"), dblock.WithData([]byte{0, 1, 0xff}))
		assert.Equal(t, "läbel", suite.IsTaken(t, usual, key).Holder.Label, key)
		assert.NoError(t, v.e.Guarded(t.Context(), l, lock, "INSERT INTO notes VALUES (1)", func() {}), key)
		suite.Release(t, lock)
	}
	assert.EqualValues(t, 5, v.Count(t, "SELECT count(*) FROM notes"))

	lock := suite.Acquire(t, l, "handed to and fro")
	for n := range 10 {
		next := suite.Waiter(t, []Leases{usual, l}[n%2], lock.Key())
		before := token(t, lock)
		suite.Release(t, lock)
		lock = next()
		assert.Greater(t, token(t, lock), before)
	}
	suite.Release(t, lock)

	stolen := suite.Acquire(t, l, "stolen")
	require.NoError(t, usual.ForceRelease(t.Context(), "stolen", token(t, stolen)))
	next := suite.Acquire(t, usual, "stolen")
	err := v.e.Guarded(t.Context(), l, stolen, "INSERT INTO notes VALUES (2)", func() {})
	assert.True(t, isAny(err, dblock.ErrFenced, dblock.ErrLost), "a guarded write without the lock: %v", err)
	assert.Zero(t, v.Count(t, "SELECT count(*) FROM notes WHERE n = 2"))
	_ = stolen.Release(t.Context())
	suite.Release(t, next)
	assert.NoError(t, suite.Second(l.Sweep(t.Context())))
}

// RunReadOnly acquires and keeps locks while the server becomes read-only and back.
func (e Lease) RunReadOnly(t *testing.T) {
	s := suite.NewReadOnlyServer(t, e.Kind)
	if s == nil {
		return
	}
	l := e.envOn(s.DB).process(t, LeaseOptions{TTL: 6 * time.Second})
	kept, released := suite.Acquire(t, l, "kept"), suite.Acquire(t, l, "released")
	s.Become(t, true)
	suite.SaysReadOnly(t, `"free"`, suite.Second(l.TryAcquire(t.Context(), "free")))
	suite.SaysReadOnly(t, `"free"`, suite.Second(l.Acquire(t.Context(), "free")))
	// The release goes on until the lock has ended by itself.
	suite.Release(t, released)
	// Heartbeats fail, so the lock ends before another process may have it.
	suite.IsLost(t, kept, dblock.ReasonExpired)
	s.Become(t, false)
	for _, key := range []string{"free", "released", "kept"} {
		suite.IsFree(t, l, key)
	}
	assert.NoError(t, l.Close(suite.Soon(t)))
}
