package inventory

import (
	"math/rand/v2"
	"testing"

	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// TestSpreadAndTaken: whatever there is, what is spread comes in, what is taken goes out, in the
// order of the buckets.
func TestSpreadAndTaken(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(4, 2))
	for range 2000 {
		var have []engine.Bucket
		for i := range random.Int32N(5) {
			have = append(have, engine.Bucket{Number: i, Left: random.Int64N(4)})
		}
		before, buckets, qty := total(have), 1+random.IntN(6), random.Int64N(20)
		after := map[int32]int64{}
		for _, b := range have {
			after[b.Number] = b.Left
		}
		last := int32(-1)
		for _, u := range spread("a", have, buckets, qty) {
			if u.Bucket <= last || u.Qty < 0 || u.Qty > qty/int64(max(buckets, len(have)))+1 {
				t.Fatalf("%d over %d, to %v: %+v after bucket %d", qty, buckets, have, u, last)
			}
			last = u.Bucket
			after[u.Bucket] += u.Qty
		}
		if len(after) != max(buckets, len(have)) {
			t.Fatalf("%d over %d, to %v: %v", qty, buckets, have, after)
		}
		var full []engine.Bucket
		for i := range int32(len(after)) {
			full = append(full, engine.Bucket{Number: i, Left: after[i]})
		}
		if total(full) != before+qty {
			t.Fatalf("%d over %d, to %v: %v", qty, buckets, have, full)
		}
		out := random.Int64N(total(full) + 1)
		for _, u := range taken("a", full, out) {
			if u.Qty < 1 || u.Qty > after[u.Bucket] {
				t.Fatalf("%d from %v: %+v", out, full, u)
			}
			out -= u.Qty
		}
		if out != 0 {
			t.Fatalf("%d not taken from %v", out, full)
		}
	}
}
