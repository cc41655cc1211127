package inventory

import "github.com/dblock-go/dblock/inventory/internal/engine"

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
