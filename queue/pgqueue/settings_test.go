package pgqueue_test

import (
	"testing"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/testdb"
)

func TestSettings(t *testing.T) {
	t.Parallel()
	engine.RunWith(t, map[string]func(*testing.T, string) string{
		"serializable":                  suite.Appended("default_transaction_isolation=serializable"),
		"read only":                     suite.Appended("default_transaction_read_only=on"),
		"time zone":                     suite.Appended("timezone=Asia/Kathmandu"),
		"simple protocol":               suite.Appended("default_query_exec_mode=simple_protocol"),
		"dates of another style":        suite.Appended("default_query_exec_mode=simple_protocol&DateStyle=German"),
		"bytes of another style":        suite.Appended("default_query_exec_mode=simple_protocol&bytea_output=escape"),
		"exec":                          suite.Appended("default_query_exec_mode=exec"),
		"no nulls in arrays":            suite.Appended("default_query_exec_mode=exec&array_nulls=off"),
		"describe exec":                 suite.Appended("default_query_exec_mode=describe_exec"),
		"cache describe":                suite.Appended("default_query_exec_mode=cache_describe"),
		"one connection":                suite.Appended("pool_max_conns=1"),
		"PgBouncer in transaction mode": func(t *testing.T, dsn string) string { return testdb.Pooled(t, dsn) },
	})
}
