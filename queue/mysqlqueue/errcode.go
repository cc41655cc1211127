package mysqlqueue

import (
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// Classify tells what an error means.
func (*database) Classify(err error) sqlerr.Class { return mysql.ClassifyOwn(err) }
