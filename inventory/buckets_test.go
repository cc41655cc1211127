package inventory

import (
	"math/rand/v2"
	"testing"

	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// TestTaken: a quantity that is there is taken, in the order of the buckets, and none gives more
// than it has.
func TestTaken(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(4, 2))
	for range 2000 {
		have := make([]driver.Bucket, random.Int32N(5))
		for i := range have {
			have[i] = driver.Bucket{Number: int32(i), Left: random.Int64N(4)}
		}
		left, last := random.Int64N(total(have)+1), int32(-1)
		for _, u := range taken("a", have, left) {
			if u.Bucket <= last || u.Qty < 1 || u.Qty > have[u.Bucket].Left {
				t.Fatalf("from %v, after bucket %d: %+v", have, last, u)
			}
			last = u.Bucket
			left -= u.Qty
		}
		if left != 0 {
			t.Fatalf("%d not taken from %v", left, have)
		}
	}
}
