package mysqlqueue_test

import (
	"net/url"
	"testing"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
)

// TestSettings: nothing depends on the DSN.
func TestSettings(t *testing.T) {
	t.Parallel()
	set := func(variable, value string) func(*testing.T, string) string {
		return suite.Appended(variable + "=" + url.QueryEscape("'"+value+"'"))
	}
	for _, kind := range family() {
		settings := map[string]func(*testing.T, string) string{
			"parseTime":         suite.Appended("parseTime=true&loc=Local"),
			"clientFoundRows":   suite.Appended("clientFoundRows=true"),
			"interpolateParams": suite.Appended("interpolateParams=true"),
			"multiStatements":   suite.Appended("multiStatements=true"),
			"sql_mode":          set("sql_mode", "ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,STRICT_ALL_TABLES"),
			"lax":               set("sql_mode", ""),
			"time_zone":         set("time_zone", "+05:45"),
			"collation":         suite.Appended("collation=latin1_swedish_ci"),
		}
		if kind == devdb.MariaDB {
			settings["serializable"] = set("tx_isolation", "SERIALIZABLE")
			settings["snapshot isolation"] = suite.Appended("innodb_snapshot_isolation=ON")
			settings["ORACLE"] = set("sql_mode", "ORACLE")
		} else {
			settings["serializable"] = set("transaction_isolation", "SERIALIZABLE")
		}
		t.Run(string(kind), func(t *testing.T) { on(kind).RunWith(t, settings) })
	}
}
