package pglock_test

import (
	"testing"

	"github.com/dblock-go/dblock/pglock"
)

// Programs of different versions exclude each other only while these stay as they are.
func TestKeysNeverChange(t *testing.T) {
	t.Parallel()
	for _, v := range []struct {
		namespace, name string
		want            pglock.Key
	}{
		{"", "a", 156053109382756266},
		{"", "orders/42", -217059150214810684},
		{"billing", "orders/42", -4258672315333582114},
		{"", "Grüße 🔒", -2604863910072192837},
	} {
		if got := pglock.KeyOf(v.namespace, v.name); got != v.want {
			t.Errorf("%q, %q: got %d, want %d", v.namespace, v.name, got, v.want)
		}
	}
}
