package lock

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// aLeaseCloseCutAnywhere is the same of a Lease.
func aLeaseCloseCutAnywhere(t *testing.T, v *env) {
	for _, mode := range []faultconn.Mode{faultconn.CutBefore, faultconn.CutAfter} {
		for k, struck := 1, true; struck; k++ {
			dialer := &faultconn.Dialer{}
			l, done, err := v.e.OpenOn(t.Context(), v.dsn, dialer, LeaseOptions{TTL: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			require.NoError(t, suite.Acquire(t, l, "key").Release(t.Context()), "release")
			dialer.Arm(k, mode, nil)
			require.NoError(t, l.Close(suite.Soon(t)), fmt.Sprintf("close, %v call %d", mode, k))
			struck = dialer.Disarm()
			if n := v.count(t, suite.Members); n != 0 {
				t.Errorf("%v call %d: the process has closed its locks and not left", mode, k)
				v.exec(t, "DELETE FROM dblock_member")
			}
			done()
		}
	}
}
