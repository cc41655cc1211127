package mysqllock_test

import (
	"testing"

	"github.com/dblock-go/dblock/internal/conformance"
)

func TestRecipes(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			conformance.Recipes{RowLocks: rows(kind)}.Run(t)
		})
	}
}
