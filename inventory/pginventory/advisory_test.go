package pginventory

import "testing"

// TestAdvisoryKey: processes of different versions exclude each other only while this stays as it is.
func TestAdvisoryKey(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		schema, sku string
		want        int64
	}{
		{"", "headphones", -2350435529971460779},
		{"shop", "headphones", -7301964378166248727},
		{"shopheadphones", "", -4442370377142606799},
	} {
		if got := advisoryKey(c.schema, c.sku); got != c.want {
			t.Errorf("%q, %q: %d, want %d", c.schema, c.sku, got, c.want)
		}
	}
}
