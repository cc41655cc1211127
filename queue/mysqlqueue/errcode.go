package mysqlqueue

import (
	"errors"

	"github.com/dblock-go/dblock/internal/mysqlfault"
	"github.com/dblock-go/dblock/internal/mysqltext"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// Classify tells what an error means.
func (*database) Classify(err error) sqlerr.Class {
	if errors.Is(err, mysqltext.ErrTooLong) { // of one row: others are not to blame
		return sqlerr.BadInput
	}
	return mysqlfault.OfOwn(err)
}
