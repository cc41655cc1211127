package pgqueue

import (
	"github.com/dblock-go/dblock/internal/fault"
	"github.com/dblock-go/dblock/internal/pgfault"
)

// Fault tells what an error means.
func (*database) Fault(err error) fault.Fault { return pgfault.OfOwn(err) }
