package mysqlqueue

import (
	"errors"

	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// Classify tells what an error means.
func (*database) Classify(err error) sqlerr.Class {
	if errors.Is(err, mysql.ErrTooLong) { // of one row: others are not to blame
		return sqlerr.BadInput
	}
	return mysql.ClassifyOwn(err)
}
