package dblocktest

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"github.com/dblock-go/dblock"
	locksuite "github.com/dblock-go/dblock/internal/conformance/lock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestLease: the part of the engines' suite that needs no database.
func TestLease(t *testing.T) {
	t.Parallel()
	locksuite.RunLeases(t, func(*testing.T) locksuite.LeasePlace { return inMemory{NewServer(nil)} })
}

// inMemory is a Server as the suite sees it.
type inMemory struct{ *Server }

func (m inMemory) OpenLeases(_ context.Context, o locksuite.LeaseOptions) (locksuite.Leases, func(), error) {
	l, err := m.NewLeaseLocker(LeaseOptions{TTL: o.TTL, Margin: o.Margin, Poll: o.Poll, Label: o.Label, Fair: o.Fair, Observer: o.Observer})
	if err != nil {
		return nil, nil, err
	}
	return l, func() {}, nil
}

func (m inMemory) Check(_ context.Context, _ locksuite.Leases, lock *dblock.Lock) error {
	for _, f := range lock.Fences() {
		if err := m.Server.Check(f); err != nil {
			return err
		}
	}
	return nil
}

func (m inMemory) ForgetMembers(*testing.T)                       { m.rows.Admin().DeleteMembers() }
func (m inMemory) ExpireMembers(*testing.T)                       { m.rows.Admin().ExpireMembers() }
func (m inMemory) AgeLeases(*testing.T)                           { m.rows.Admin().AgeLeases() }
func (m inMemory) Tickets(*testing.T) int                         { return m.rows.Admin().Tickets() }
func (m inMemory) Rows(*testing.T) (members, leases, waiters int) { return m.rows.Admin().Rows() }
