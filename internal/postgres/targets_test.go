package postgres_test

import (
	"strings"
	"testing"
)

// TestInsertsNameTheirKey: ON CONFLICT without columns also takes a row that a unique index of the
// host's finds for the row of the key, and says nothing.
func TestInsertsNameTheirKey(t *testing.T) {
	t.Parallel()
	for name, statement := range generatedStatements(t) {
		if strings.Contains(statement, "ON CONFLICT DO") {
			t.Errorf("%s does not name the columns of its key", name)
		}
	}
}
