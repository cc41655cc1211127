package mysqloptimistic

import (
	"testing"

	"github.com/dblock-go/dblock/internal/conformance/answers"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/optimistic/internal/attempt"
)

// TestPublicErrors: what a server reports has the same public error as in all other packages.
func TestPublicErrors(t *testing.T) {
	t.Parallel()
	answers.SameOnHostsTables(t, devdb.MySQL, func(err error) error {
		is, known := dialect{}.Class(t.Context(), true, err)
		return attempt.Worded(is, known, "the update of account 17", err)
	})
}
