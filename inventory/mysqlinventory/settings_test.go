package mysqlinventory_test

import (
	"net/url"
	"testing"

	inventorysuite "github.com/dblock-go/dblock/internal/conformance/inventory"
	"github.com/dblock-go/dblock/internal/devdb"
)

// TestNothingDependsOnTheDSN holds what the package's documentation says.
func TestNothingDependsOnTheDSN(t *testing.T) {
	t.Parallel()
	set := func(variable, value string) string { return variable + "=" + url.QueryEscape("'"+value+"'") }
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			settings := map[string]string{
				"parseTime":         "parseTime=true&loc=Local",
				"clientFoundRows":   "clientFoundRows=true",
				"interpolateParams": "interpolateParams=true",
				"multiStatements":   "multiStatements=true",
				"sql_mode":          set("sql_mode", "ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,STRICT_ALL_TABLES"),
				"lax":               set("sql_mode", ""),
				"time_zone":         set("time_zone", "+05:45"),
				"collation":         "collation=latin1_swedish_ci",
				"one second locks":  "innodb_lock_wait_timeout=1",
			}
			if kind == devdb.MariaDB {
				settings["serializable"] = set("tx_isolation", "SERIALIZABLE")
				settings["snapshot isolation"] = "innodb_snapshot_isolation=ON"
				settings["ORACLE"] = set("sql_mode", "ORACLE")
			} else {
				settings["serializable"] = set("transaction_isolation", "SERIALIZABLE")
			}
			inventorysuite.Inventory{Kind: kind, Open: open}.RunWith(t, settings)
		})
	}
}
