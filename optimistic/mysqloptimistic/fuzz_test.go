package mysqloptimistic

import (
	"errors"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/optimistic/internal/attempt"
)

// FuzzVerdicts: each error of the server is returned as dblock's or as it is, and unknown only
// after a write.
func FuzzVerdicts(f *testing.F) {
	for _, number := range []uint16{0, 1020, 1053, 1146, 1180, 1205, 1213, 1290, 1317, 1927, 3024, 3058, 3572, 4031, 65535} {
		f.Add(number, "HY000", "no", true)
		f.Add(number, "40001", "", false)
	}
	f.Fuzz(func(t *testing.T, number uint16, state, message string, wrote bool) {
		err := faultconn.MySQLError(number, state, message)
		is, known := dialect{}.Class(t.Context(), wrote, err)
		for what, told := range map[string]error{
			"unwritten":    attempts.Unwritten(t.Context(), err),
			"maybeWritten": attempts.MaybeWritten(t.Context(), err),
			"Wrong":        attempt.Worded(is, known, "a table", err),
		} {
			if told == nil || !errors.Is(told, err) {
				t.Errorf("%s: %v becomes %v", what, err, told)
			}
			if errors.Is(told, dblock.ErrOutcomeUnknown) && (what == "unwritten" || what == "Wrong" && !wrote) {
				t.Errorf("%s: %v is unknown, and nothing was written: %v", what, err, told)
			}
		}
	})
}
