package mysqllock_test

import (
	"testing"

	locksuite "github.com/dblock-go/dblock/internal/conformance/lock"
)

func TestRecipes(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			locksuite.Recipes{RowLocks: rows(kind)}.Run(t)
		})
	}
}
