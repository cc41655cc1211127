package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/testdb"
)

var (
	aStatement = regexp.MustCompile(`(?s)-- name: (\w+) :\w+\n(.*?);\n`)
	inner      = regexp.MustCompile(`\([^()]*\)`)
	limited    = regexp.MustCompile(`\bLIMIT\b`)
)

// TestEachReadHasALimit: a query without one returns as many rows as the session's
// sql_select_limit, which a host may set on any connection of its pool.
func TestEachReadHasALimit(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../queries/mysql/*.sql")
	require.NoError(t, err)
	reads := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, s := range aStatement.FindAllStringSubmatch(string(text), -1) {
			outer := s[2]
			for inner.MatchString(outer) {
				outer = inner.ReplaceAllString(outer, "")
			}
			if !strings.HasPrefix(s[2], "SELECT") {
				continue
			}
			reads++
			assert.Regexp(t, limited, outer, s[1])
		}
	}
	assert.Greater(t, reads, 100)
}

// TestWhatSelectLimitBounds: it bounds what is sent to the client, and no sub-select.
func TestWhatSelectLimitBounds(t *testing.T) {
	t.Parallel()
	for _, kind := range testdb.Engines() {
		if kind == devdb.Postgres {
			continue
		}
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			db, err := sql.Open("mysql", testdb.DSN(t, kind))
			require.NoError(t, err)
			t.Cleanup(func() { _ = db.Close() })
			db.SetMaxOpenConns(1)
			do := func(statement string) (rows int64) {
				t.Helper()
				result, err := db.ExecContext(ctx, statement)
				require.NoError(t, err)
				rows, err = result.RowsAffected()
				require.NoError(t, err)
				return rows
			}
			do("CREATE TABLE limited (a INT PRIMARY KEY, b INT NOT NULL)")
			do("INSERT INTO limited VALUES (1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (6, 0)")
			const three = "(SELECT a FROM limited WHERE a <= 3) UNION ALL (SELECT a FROM limited WHERE a > 3 ORDER BY a LIMIT 3)"
			for _, limit := range []int{0, 1} {
				do(fmt.Sprintf("SET SESSION sql_select_limit = %d", limit))
				assert.EqualValues(t, limit, rowsOf(ctx, t, db, "SELECT a FROM limited"))
				assert.EqualValues(t, 6, rowsOf(ctx, t, db, "SELECT a FROM limited LIMIT "+mysql.AllRows))
				assert.EqualValues(t, 6, rowsOf(ctx, t, db, "SELECT a FROM limited LIMIT "+mysql.AllRows+" FOR UPDATE"))
				assert.EqualValues(t, 6, rowsOf(ctx, t, db, three+" LIMIT "+mysql.AllRows))
				for _, sub := range []string{
					"SELECT l.a FROM limited l JOIN (SELECT a FROM limited) x ON x.a = l.a LIMIT 9", "SELECT a FROM limited WHERE a IN (SELECT a FROM limited) LIMIT 9",
					"SELECT l.a FROM limited l WHERE EXISTS (SELECT 1 FROM limited x WHERE x.a = l.a) LIMIT 9",
					"SELECT x.a FROM (SELECT a, COUNT(*) FROM limited GROUP BY a) x LIMIT 9", "SELECT x.a FROM (" + three + ") x LIMIT 9",
				} {
					assert.EqualValues(t, 6, rowsOf(ctx, t, db, sub), sub)
				}
				for _, write := range []string{
					"INSERT INTO limited SELECT a + 100, 0 FROM limited", "UPDATE limited l JOIN (SELECT a FROM limited) x ON x.a = l.a SET l.b = l.b + 1 WHERE l.a > 100",
					"DELETE l FROM limited l JOIN (SELECT a FROM limited) x ON x.a = l.a WHERE l.a > 100",
				} {
					assert.EqualValues(t, 6, do(write), write)
				}
			}
		})
	}
}

func rowsOf(ctx context.Context, t *testing.T, db *sql.DB, query string) (n int) {
	t.Helper()
	rows, err := db.QueryContext(ctx, query)
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		n++
	}
	require.NoError(t, rows.Err())
	return n
}
