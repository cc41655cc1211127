package pgoptimistic

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
	for _, code := range []string{"40001", "40P01", "55P03", "57014", "57P01", "25P02", "25P04", "42P01", "XX000", "X", ""} {
		f.Add([]byte("SERROR\x00VERROR\x00C"+code+"\x00Mno\x00\x00"), true)
		f.Add([]byte("SFATAL\x00VFATAL\x00C"+code+"\x00Mno\x00\x00"), false)
	}
	f.Fuzz(func(t *testing.T, body []byte, wrote bool) {
		err := faultconn.PostgresError(body)
		is, known := dialect{}.Class(t.Context(), wrote, err)
		for what, told := range map[string]error{
			"unwritten":    attempts.Unwritten(t.Context(), err),
			"maybeWritten": attempts.MaybeWritten(t.Context(), err),
			"Wrong":        attempt.Worded(is, known, "a table", err),
		} {
			if told == nil || !errors.Is(told, err) {
				t.Errorf("%s: %q becomes %v", what, body, told)
			}
			if errors.Is(told, dblock.ErrOutcomeUnknown) && (what == "unwritten" || what == "Wrong" && !wrote) {
				t.Errorf("%s: %q is unknown, and nothing was written: %v", what, body, told)
			}
		}
	})
}
