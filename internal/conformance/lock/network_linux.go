package lock

import (
	"os"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/migrations"
)

func (e Lease) runCut(t *testing.T) { suite.RunCut(t, e.Kind, e.aNetworkFallsSilent) }

// aNetworkFallsSilent: within the TTL another process acquires the lease of a holder that was cut
// off, which does not count on it any more.
func (e Lease) aNetworkFallsSilent(t *testing.T) error {
	near, far := testdb.OwnNear(t, e.Kind)
	v := e.envOn(suite.OpenDB(t, e.Kind, near))
	suite.Must(migrations.Up(t.Context(), v.DB.DB, migrations.Options{}))(t)
	other := v.process(t, LeaseOptions{Poll: 20 * time.Millisecond})
	n := suite.NewSilence(t, func(m *testdb.Far, key string, bound time.Duration) *suite.Child {
		return suite.StartChild(t, e.toHold(m.Command(t.Context(), os.Args[0]), far, key, bound))
	})
	next := <-n.Fall(t, other)
	if !n.Check(t, next.At, dblock.ReasonExpired) {
		n.Far.Mend(t)
		suite.Release(t, next.Lock)
		return n.Late
	}
	suite.IsTaken(t, other, "control")
	n.Far.Mend(t)
	suite.Follows(t, n.Holder, next.Lock)
	return n.Late
}
