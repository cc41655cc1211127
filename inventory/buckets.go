package inventory

import "github.com/dblock-go/dblock/inventory/internal/driver"

func total(buckets []driver.Bucket) (n int64) {
	for _, b := range buckets {
		n += b.Left
	}
	return n
}

// taken takes a quantity that is there from the first buckets that have some.
func taken(sku string, from []driver.Bucket, qty int64) (units []driver.Units) {
	for _, b := range from {
		if n := min(b.Left, qty); n > 0 {
			units = append(units, driver.Units{SKU: sku, Bucket: b.Number, Qty: n})
			qty -= n
		}
	}
	return units
}
