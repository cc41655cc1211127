package mysqlqueue

import (
	"errors"

	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/internal/mysqlfault"
	"github.com/dblock-go/dblock/internal/mysqltext"
)

// Fault tells what an error means.
func (*database) Fault(err error) fault.Fault {
	if errors.Is(err, mysqltext.ErrTooLong) { // of one row: others are not to blame
		return fault.Poison
	}
	return mysqlfault.OfOwn(err)
}
