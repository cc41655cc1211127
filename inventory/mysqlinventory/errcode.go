package mysqlinventory

import (
	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/internal/mysqlfault"
)

// Fault tells what an error means. Whoever waited too long for the stock tries again: it is the server's bound that
// ended, not the caller's.
func (d *database) Fault(err error) fault.Fault {
	if mysqlfault.IsLocked(err) {
		return fault.Retry
	}
	return mysqlfault.Of(err)
}
