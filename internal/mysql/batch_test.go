package mysql_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/testdb"
)

// TestBatchesPrepare: every server prepares each query with a marked part for a batch of one and of
// three.
func TestBatchesPrepare(t *testing.T) {
	t.Parallel()
	for _, kind := range testdb.Engines() {
		if kind == devdb.Postgres {
			continue
		}
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			db, marked := testdb.MigratedMySQL(t, kind), 0
			for name, query := range generatedStatements(t) {
				for _, n := range []int{1, 3} {
					expanded, isMarked := mysql.Expanded(query, n)
					if !isMarked {
						assert.NotContains(t, query, "dblock:", name)
						continue
					}
					marked++
					assert.Equal(t, n*strings.Count(part(query), "?"), strings.Count(expanded, "?")-strings.Count(rest(query), "?"), name)
					statement, err := db.PrepareContext(t.Context(), expanded)
					require.NoError(t, err, "%s, %d times:\n%s", name, n, expanded)
					require.NoError(t, statement.Close())
				}
			}
			assert.Greater(t, marked, 2*50)
		})
	}
}

// part is what stands between the markers of a query.
func part(query string) string {
	_, after, _ := strings.Cut(query, "/*dblock:")
	_, after, _ = strings.Cut(after, "*/")
	part, _, _ := strings.Cut(after, "/*dblock:end*/")
	return part
}

// rest is a query without what stands between its markers.
func rest(query string) string { return strings.Replace(query, part(query), "", 1) }
