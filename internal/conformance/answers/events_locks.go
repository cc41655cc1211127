package answers

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/memlease"
	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// leases is an engine of leases in memory. The classes of its errors are a driver's.
type leases struct {
	*memlease.Engine
	classify func(error) sqlerr.Class
}

func (e leases) Classify(err error) sqlerr.Class { return e.classify(err) }

// Lease returns the error of a lease whose statement fails with err.
func Lease(t *testing.T, classify func(error) sqlerr.Class, err error) error {
	t.Helper()
	e := leases{memlease.NewServer(clock.Real{}).Open(), classify}
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
	var shares lease.Shares[string, leases]
	share, failed := shares.Enter("", mo, func() (leases, func(), error) { return e, func() {}, nil })
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

func (sessionLocks) Most() int { return 10 }

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
