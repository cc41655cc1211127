package mysqlinventory_test

import "testing"

// TestReadOnlyServer: stock is sold while super_read_only (on MariaDB read_only) is switched on and
// off.
func TestReadOnlyServer(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			on(kind).RunReadOnly(t)
		})
	}
}
