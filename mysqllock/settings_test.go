package mysqllock_test

import (
	"context"
	"net/url"
	"testing"

	"github.com/go-sql-driver/mysql"

	locksuite "github.com/dblock-go/dblock/internal/conformance/lock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
)

// TestSettings: nothing depends on the DSN, nor on how many connections the pool has.
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
			"one second locks":  suite.Appended("innodb_lock_wait_timeout=1"),
		}
		if kind == devdb.MariaDB {
			settings["serializable"] = set("tx_isolation", "SERIALIZABLE")
			settings["snapshot isolation"] = suite.Appended("innodb_snapshot_isolation=ON")
		} else {
			settings["serializable"] = set("transaction_isolation", "SERIALIZABLE")
		}
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			e := leases(kind)
			e.RunWith(t, settings)
			e.Open = openTwo
			e.RunWith(t, map[string]func(*testing.T, string) string{"two connections": suite.Appended("")})
		})
	}
}

// openTwo is open with a pool of two connections.
func openTwo(ctx context.Context, dsn string, o locksuite.LeaseOptions) (locksuite.Leases, func(), error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, nil, err
	}
	return leasesOn(ctx, cfg, 2, o)
}
