package mysqlqueue

import (
	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/internal/mysqlfault"
)

// Fault tells what an error means.
func (*database) Fault(err error) fault.Fault { return mysqlfault.Of(err) }
