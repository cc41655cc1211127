package mysql_test

import (
	"fmt"
	"testing"

	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// FuzzErrorPacket sends error packets by way of the driver. Each has one class, whatever its number
// and its SQLSTATE, and none panics.
func FuzzErrorPacket(f *testing.F) {
	for _, number := range []uint16{
		0, 1, 1020, 1040, 1047, 1053, 1180, 1205, 1213, 1290, 1305, 1317, 1644, 1927, 1969, 2013, 3024, 3058, 3101, 3572, 4031, 65535,
	} {
		f.Add(number, "HY000", "no")
	}
	f.Add(uint16(1180), "HY000", "got error 149 \"deadlock\" during COMMIT")
	f.Add(uint16(1105), "40001", "")
	f.Add(uint16(1105), "", "\x00")
	f.Fuzz(func(t *testing.T, number uint16, state, message string) {
		err := faultconn.MySQLError(number, state, message)
		class, unwritten := mysql.Classify(err), mysql.Classify(sqlerr.Unwritten(err))
		if class < sqlerr.Unclassified || class > sqlerr.NotPermitted || unwritten < sqlerr.Unclassified || unwritten > sqlerr.NotPermitted {
			t.Errorf("%v is of no class: %d, %d", err, class, unwritten)
		}
		if unwritten == sqlerr.Unresolved || mysql.Classify(fmt.Errorf("a service: %w", err)) != class {
			t.Errorf("%v is %v, %v if nothing was written", err, class, unwritten)
		}
		if class == sqlerr.Retryable && !mysql.IsConflict(err) {
			t.Errorf("%v is %v, and no conflict", err, class)
		}
		if mysql.IsLocked(err) && class != sqlerr.Busy && class != sqlerr.Retryable {
			t.Errorf("%v is locked, and %v", err, class)
		}
		if mysql.IsDeadlock(err) && !mysql.IsConflict(err) || mysql.ErrorNumber(err) != number || mysql.NeverSent(err) {
			t.Errorf("%v has the number %d", err, mysql.ErrorNumber(err))
		}
		_ = mysql.IsNoSavepoint(err)
	})
}
