package answers

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/memlease"
	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// event is what a server reports, and the public error that every package returns for it.
type event struct {
	name string
	err  error
	want error
}

func postgresEvent(name, code string, want error) event {
	return event{name, faultconn.PostgresError([]byte("SERROR\x00VERROR\x00C" + code + "\x00Mno\x00\x00")), want}
}

func events(kind devdb.Kind) []event {
	if kind == devdb.Postgres {
		return []event{
			postgresEvent("deadlock", "40P01", dblock.ErrConflict),
			postgresEvent("serialization failure", "40001", dblock.ErrConflict),
			postgresEvent("lock timeout", "55P03", dblock.ErrBusy),
			postgresEvent("statement timeout", "57014", dblock.ErrBusy),
			postgresEvent("full lock table", "53200", dblock.ErrOverloaded),
			postgresEvent(missingTable, "42P01", dblock.ErrSchema),
			postgresEvent("read-only server", "25006", dblock.ErrUnavailable),
			postgresEvent("too many connections", "53300", dblock.ErrUnavailable),
		}
	}
	return []event{
		{"deadlock", faultconn.MySQLError(1213, "40001", "Deadlock found"), dblock.ErrConflict},
		{"serialization failure", faultconn.MySQLError(1020, "HY000", "Record has changed"), dblock.ErrConflict},
		{"lock timeout", faultconn.MySQLError(1205, "HY000", "Lock wait timeout exceeded"), dblock.ErrBusy},
		{"NOWAIT", faultconn.MySQLError(3572, "HY000", "Statement aborted"), dblock.ErrBusy},
		{"full lock table", faultconn.MySQLError(1206, "HY000", "The number of locks exceeds the table"), dblock.ErrOverloaded},
		{missingTable, faultconn.MySQLError(1146, "42S02", "Table 'db.dblock_lease' doesn't exist"), dblock.ErrSchema},
		{"read-only server", faultconn.MySQLError(1290, "HY000", "running with the --read-only option"), dblock.ErrUnavailable},
		{"too many connections", faultconn.MySQLError(1040, "08004", "Too many connections"), dblock.ErrUnavailable},
	}
}

const missingTable = "missing table"

// SameEverywhere checks that a package returns the same public error for an event as all others do.
// returned has the package put an error of the driver into its own words.
func SameEverywhere(t *testing.T, kind devdb.Kind, returned func(err error) error) {
	t.Helper()
	sameEverywhere(t, events(kind), returned)
}

// SameOnHostsTables is SameEverywhere for statements on tables of the host's: that one is missing
// says nothing of dblock's schema.
func SameOnHostsTables(t *testing.T, kind devdb.Kind, returned func(err error) error) {
	t.Helper()
	all := events(kind)
	for i := range all {
		if all[i].name == missingTable {
			all[i].want = nil
		}
	}
	sameEverywhere(t, all, returned)
}

func sameEverywhere(t *testing.T, all []event, returned func(err error) error) {
	t.Helper()
	public := []error{
		dblock.ErrConflict, dblock.ErrBusy, dblock.ErrUnavailable, dblock.ErrOutcomeUnknown, dblock.ErrOverloaded, dblock.ErrSchema,
	}
	for _, e := range all {
		got := returned(e.err)
		assert.ErrorIs(t, got, e.err, e.name)
		for _, is := range public {
			assert.Equal(t, is == e.want, errors.Is(got, is), "%s: is it %v? %v", e.name, is, got)
		}
	}
}

// Lease returns the error of a lease whose statement fails with err.
func Lease(t *testing.T, classify func(error) sqlerr.Class, err error) error {
	t.Helper()
	e := memlease.NewServer(clock.Real{}).Open()
	e.Disturb(func(_ context.Context, call string, run func() error) error {
		if call == "Acquire" {
			return err
		}
		return run()
	})
	mo, failed := member.Options{}.WithDefaults("Options")
	require.NoError(t, failed)
	lo, failed := lease.Options{}.WithDefaults("Options", mo.TTL)
	require.NoError(t, failed)
	backend := e.Backend()
	backend.Traits.Classify = classify
	var shares lease.Shares[string, struct{}]
	share, failed := shares.Open("", mo, func() (struct{}, lease.Backend, error) { return struct{}{}, backend, nil })
	require.NoError(t, failed)
	l := lease.New(share, lo)
	_, got := l.TryAcquire(t.Context(), "key")
	assert.NoError(t, errors.Join(l.Close(t.Context()), shares.Leaver("")(t.Context())))
	return got
}

// sessionLocks is an engine of session locks whose statements fail with err.
type sessionLocks struct {
	classify func(error) sqlerr.Class
	err      error
}

func (e sessionLocks) Classify(err error) sqlerr.Class { return e.classify(err) }

func (sessionLocks) ID(key string) (session.ID, error) { return session.ID(key), nil }

func (sessionLocks) MaxLocks() int { return 10 }

func (sessionLocks) Note(context.Context, map[session.ID]string) error { return nil }

func (e sessionLocks) Open(context.Context, func(session.ID)) (session.Conn, error) { return e, nil }

func (e sessionLocks) Run(context.Context, []session.Step) ([]bool, error) { return nil, e.err }

func (sessionLocks) Has(_ context.Context, steps []session.Step) ([]bool, error) {
	return make([]bool, len(steps)), nil
}

func (e sessionLocks) Wait(context.Context, session.ID, bool) error { return e.err }

func (sessionLocks) Ping(context.Context) error { return nil }

func (sessionLocks) Park(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (sessionLocks) Closed() bool { return false }

func (sessionLocks) Close() {}

// SessionLock returns the error of a session lock whose statement fails with err.
func SessionLock(t *testing.T, classify func(error) sqlerr.Class, err error) error {
	t.Helper()
	o, failed := session.Options{MaxConns: 1}.WithDefaults("Options", time.Second)
	require.NoError(t, failed)
	l, failed := session.New(t.Context(), sessionLocks{classify, err}, o)
	require.NoError(t, failed)
	_, got := l.TryAcquire(t.Context(), "key")
	_ = l.Close(t.Context())
	return got
}
