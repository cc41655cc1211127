package pglock

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/migrations"
)

// TestFaultsNoGrantIsAheadOfTheStandby freezes a synchronous standby while a release hands a lock
// over. The waiter reads the grant from the primary alone, and does not get it.
func TestFaultsNoGrantIsAheadOfTheStandby(t *testing.T) {
	t.Parallel()
	primary := testdb.Own(t, devdb.Postgres)
	if primary == nil {
		return
	}
	standby := testdb.Replica(t, primary)
	ctx := t.Context()
	pool, err := pgxpool.New(ctx, primary.AdminDSN())
	require.NoError(t, err)
	defer pool.Close()
	_, err = migrations.Up(ctx, pool, migrations.Options{})
	require.NoError(t, err)
	e := newDriver(postgres.NewSchema(""), &postgres.Pool{Pool: pool}, &postgres.Pool{Pool: pool})
	us := lease.By{Member: member.NewID()}
	require.NoError(t, e.Register(ctx, us.Member, "", time.Hour))
	holder, waiter := []lease.AcquireRequest{{Key: "a", Handle: member.NewID()}}, []lease.AcquireRequest{{Key: "a", Handle: member.NewID()}}
	_, err = e.acquireExclusive(ctx, us, holder)
	require.NoError(t, err)
	tickets, err := e.enqueue(ctx, us, waiter)
	require.NoError(t, err)

	require.NoError(t, standby.Freeze())
	briefly, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err = e.passOn(briefly, []lease.ReleaseRequest{{Key: "a", Handle: holder[0].Handle}})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Eventually(t, func() (is bool) {
		require.NoError(t, pool.QueryRow(ctx, "SELECT handle = $1 FROM dblock_lease", postgres.UUID(waiter[0].Handle)).Scan(&is))
		return is
	}, time.Minute, 10*time.Millisecond, "no grant is visible")
	briefly, cancel = context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err = e.Entry(briefly, "a", waiter[0].Handle, tickets[0].Ticket)
	assert.ErrorIs(t, err, context.DeadlineExceeded)

	require.NoError(t, standby.Thaw())
	turn, err := e.Entry(ctx, "a", waiter[0].Handle, tickets[0].Ticket)
	require.NoError(t, err)
	assert.NotZero(t, turn.Token)
}
