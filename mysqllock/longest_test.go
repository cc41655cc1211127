package mysqllock

import (
	"testing"

	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// TestLongestStatement has a batch that is too long for the server: nothing is sent, and the error
// says so, so that the batch can be split.
func TestLongestStatement(t *testing.T) {
	each(t, plain, func(r rig) {
		if r.leaseDriver.db.Longest < 1<<20 {
			r.Fatalf("the server takes %d bytes", r.leaseDriver.db.Longest)
		}
		us := r.join("us")
		r.leaseDriver.db.Longest = 16 << 10
		var asks []lease.AcquireRequest
		for _, key := range []string{"a", "b", "c"} {
			a := ask(key)
			a.Data = make([]byte, 3<<10)
			asks = append(asks, a)
		}
		if _, err := r.leases.acquireExclusive(r.ctx, us, asks); r.Classify(err) != sqlerr.BadInput {
			r.Errorf("a batch that is too long: %v", err)
		}
		var rows int64
		r.ok(r.db.QueryRowContext(r.ctx, "SELECT COUNT(*) FROM dblock_lease").Scan(&rows))
		if rows != 0 {
			r.Errorf("%d rows were written", rows)
		}
		for _, a := range asks {
			r.take(us, a)
		}
	})
}
