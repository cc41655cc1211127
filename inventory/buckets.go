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
	over = shared(over)
	existing := len(over)
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

// fewUnits a bucket are better together.
const fewUnits = 8

// level says what is to be taken from each bucket, or, negative, to be added, so that so many have the same. The first ones have what does
// not divide. Allotments are left alone.
func level(sku string, have []engine.Bucket, buckets int) (units []engine.Units) {
	have = shared(have)
	left := total(have)
	if left < int64(buckets)*fewUnits {
		buckets = 1
	}
	n := int64(buckets)
	for i := range max(buckets, len(have)) {
		var is, should int64
		if i < len(have) {
			is = have[i].Left
		}
		if i < buckets {
			should = left / n
			if int64(i) < left%n {
				should++
			}
		}
		if is != should {
			units = append(units, engine.Units{SKU: sku, Bucket: int32(i), Qty: is - should})
		}
	}
	return units
}

// shared returns a copy of those that are no allotments.
func shared(have []engine.Bucket) []engine.Bucket {
	return slices.DeleteFunc(slices.Clone(have), func(b engine.Bucket) bool { return b.Number >= engine.FirstAllotment })
}
