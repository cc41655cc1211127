package inventory

import (
	"cmp"
	"slices"

	"github.com/dblock-go/dblock/inventory/internal/engine"
)

func total(buckets []engine.Bucket) (n int64) {
	for _, b := range buckets {
		n += b.Left
	}
	return n
}

// taken takes a quantity that is there from the first buckets that have some.
func taken(sku string, from []engine.Bucket, qty int64) (units []engine.Units) {
	for _, b := range from {
		if n := min(b.Left, qty); n > 0 {
			units = append(units, engine.Units{SKU: sku, Bucket: b.Number, Qty: n})
			qty -= n
		}
	}
	return units
}

// spread adds a quantity evenly to so many buckets, or to all that there are if those are more.
// What does not divide goes to those that have least.
func spread(sku string, over []engine.Bucket, buckets int, qty int64) (units []engine.Units) {
	existing := len(over)
	over = slices.Clone(over)
	for i := existing; i < buckets; i++ {
		over = append(over, engine.Bucket{Number: int32(i)})
	}
	n := int64(len(over))
	slices.SortStableFunc(over, func(a, b engine.Bucket) int { return cmp.Compare(a.Left, b.Left) })
	for i, b := range over {
		share := qty / n
		if int64(i) < qty%n {
			share++
		}
		if share > 0 || int(b.Number) >= existing { // a new one is made even if nothing comes into it
			units = append(units, engine.Units{SKU: sku, Bucket: b.Number, Qty: share})
		}
	}
	slices.SortFunc(units, func(a, b engine.Units) int { return cmp.Compare(a.Bucket, b.Bucket) })
	return units
}
