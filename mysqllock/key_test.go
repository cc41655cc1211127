package mysqllock_test

import (
	"testing"

	"github.com/dblock-go/dblock/mysqllock"
)

// Programs of different versions exclude each other only while these stay as they are.
func TestNamesNeverChange(t *testing.T) {
	t.Parallel()
	for _, v := range []struct{ database, namespace, name, want string }{
		{"app", "", "a", "c73ae21474998f1d870c2dbf1a7b628799cd3ca3943470eb2854ab2130f23ebd"},
		{"app", "", "orders/42", "fa8f1a812d206fe878ff56374d2ed5d00dc9c85104f20087c6ea425ea4188661"},
		{"App", "billing", "orders/42", "275a7e2c493a2105157fabdca9c57fb6d0c25faf3314cde61aa013b8abb4bed5"},
		{"APP", "", "Grüße 🔒", "428c9ce9b5d88dc684d22b9321a757b566ebc25311dc35ae883ae07cebf3bd12"},
	} {
		if got := mysqllock.NameOf(v.database, v.namespace, v.name); got != v.want {
			t.Errorf("%q, %q, %q: got %s, want %s", v.database, v.namespace, v.name, got, v.want)
		}
	}
	if mysqllock.NameOf("app", "a\x00b", "c") == mysqllock.NameOf("app", "a", "b\x00c") {
		t.Error("two namespaces share a name")
	}
}
