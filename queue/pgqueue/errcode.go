package pgqueue

import (
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// Classify tells what an error means.
func (*database) Classify(err error) sqlerr.Class { return postgres.ClassifyOwn(err) }
