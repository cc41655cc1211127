package mysql_test

import (
	"slices"
	"testing"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/testdb"
)

// TestInspectTable reads what servers print, under settings that change it.
func TestInspectTable(t *testing.T) {
	each(t, func(t *testing.T, kind devdb.Kind) {
		conn := connect(t, testdb.MySQLOn(t, kind))
		do := func(statement string) {
			t.Helper()
			if _, err := conn.ExecContext(t.Context(), statement); err != nil {
				t.Fatalf("%v in %s", err, statement)
			}
		}
		const long = "body TEXT, `a``b\" c` INT COMMENT 'x\n) ENGINE=MyISAM\n  `no` INT', twice INT AS (`a``b\" c` * 2) VIRTUAL"
		do("CREATE TABLE plain (id BIGINT PRIMARY KEY, " + long + ", KEY other (twice)) COMMENT='x\n) ENGINE=MyISAM\n PARTITION BY x'")
		do("CREATE TABLE parts (id BIGINT PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 2")
		do("CREATE TABLE `odd``name` (id BIGINT PRIMARY KEY) ENGINE=MyISAM")
		do("CREATE VIEW seen AS SELECT id FROM plain")
		do("CREATE TEMPORARY TABLE parts_now (id BIGINT PRIMARY KEY) ENGINE=MEMORY")
		look := func(mode string) {
			t.Helper()
			for from, want := range map[string]mysql.Table{
				"`plain`":      {Engine: "InnoDB", Columns: []string{"id", "a`b\" c", "body"}},
				"`parts`":      {Engine: "InnoDB", Columns: []string{"id"}, Partitioned: true},
				"`odd``name`":  {Engine: "MyISAM", Columns: []string{"id"}},
				"`seen`":       {View: true},
				"`parts_now`":  {Engine: "MEMORY", Columns: []string{"id"}},
				"`mysql`.`db`": {},
			} {
				got, err := mysql.InspectTable(t.Context(), conn, from)
				if from == "`mysql`.`db`" {
					want = got // of a server's own table only the engine is known
					if got.Engine == "" {
						t.Errorf("%s: %s has no engine", mode, from)
					}
				}
				if err != nil || got.Engine != want.Engine || got.View != want.View || got.Partitioned != want.Partitioned ||
					!slices.Equal(got.Columns, want.Columns) {
					t.Errorf("%s: %s is %+v, %v, want %+v", mode, from, got, err, want)
				}
			}
		}
		for _, mode := range []string{"", "ANSI_QUOTES", "NO_BACKSLASH_ESCAPES"} {
			do("SET SESSION sql_mode = '" + mode + "'")
			look(mode)
		}
	})
}
