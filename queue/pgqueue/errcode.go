package pgqueue

import (
	"github.com/dblock-go/dblock/internal/pgfault"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// Classify tells what an error means.
func (*database) Classify(err error) sqlerr.Class { return pgfault.OfOwn(err) }
