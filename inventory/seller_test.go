package inventory

import (
	"testing"

	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// TestHooksLeaveAConnection: however many connections there may be, statements with hooks leave one
// of them for what hooks read by the host's pool. Without a hook they may have all.
func TestHooksLeaveAConnection(t *testing.T) {
	t.Parallel()
	for n := 2; n <= 100; n++ {
		hooked := &seller{caps: driver.Caps{Hooked: true, Connections: n}}
		if used := hooked.inFlight(mergedInFlight) + hooked.waiters(); used >= n {
			t.Errorf("%d of %d connections may be in use by statements with hooks", used, n)
		}
		if without := (&seller{caps: driver.Caps{Connections: n}}).inFlight(mergedInFlight); without != mergedInFlight {
			t.Errorf("%d statements without hooks at once with %d connections, want %d", without, n, mergedInFlight)
		}
	}
}
