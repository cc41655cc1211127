package pgoptimistic

import (
	"testing"

	"github.com/dblock-go/dblock/internal/conformance/answers"
	"github.com/dblock-go/dblock/internal/devdb"
)

// TestPublicErrors: what a server reports has the same public error as in all other packages.
func TestPublicErrors(t *testing.T) {
	t.Parallel()
	answers.SameOnHostsTables(t, devdb.Postgres, func(err error) error {
		return dialect{}.Wrong(t.Context(), "the update of account 17", true, err)
	})
}
