package pglock_test

import (
	"fmt"
	"testing"

	"github.com/dblock-go/dblock/internal/testdb"
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
	if pglock.KeyOf("a\x00b", "c") == pglock.KeyOf("a", "b\x00c") {
		t.Error("two namespaces share a key")
	}
}

// TestNamesDoNotCollide, of which the server's hashtext, of 32 bits, makes the same number many
// times.
func TestNamesDoNotCollide(t *testing.T) {
	t.Parallel()
	const names = 1_000_000
	seen := make(map[pglock.Key]bool, names)
	for n := range names {
		seen[pglock.KeyOf("", fmt.Sprintf("account %d", n))] = true
	}
	if len(seen) != names {
		t.Errorf("%d numbers for %d names", len(seen), names)
	}
	var collide int
	const control = "SELECT count(*) - count(DISTINCT hashtext('account ' || n)) FROM generate_series(1, 1000000) n"
	works(t, testdb.Postgres(t).QueryRow(t.Context(), control).Scan(&collide))
	if collide == 0 {
		t.Error("hashtext would do")
	}
}
