package pglock_test

import (
	"testing"

	"github.com/dblock-go/dblock/internal/conformance"
	"github.com/dblock-go/dblock/internal/testdb"
)

func TestSettings(t *testing.T) {
	t.Parallel()
	leases.RunWith(t, map[string]func(*testing.T, string) string{
		"serializable":                  conformance.Appended("default_transaction_isolation=serializable"),
		"repeatable read":               conformance.Appended("default_transaction_isolation=repeatable%20read"),
		"read only":                     conformance.Appended("default_transaction_read_only=on"),
		"not durable":                   conformance.Appended("synchronous_commit=off"),
		"time zone":                     conformance.Appended("timezone=Asia/Kathmandu"),
		"no timeouts":                   conformance.Appended("lock_timeout=0&statement_timeout=0"),
		"simple protocol":               conformance.Appended("default_query_exec_mode=simple_protocol"),
		"exec":                          conformance.Appended("default_query_exec_mode=exec"),
		"describe exec":                 conformance.Appended("default_query_exec_mode=describe_exec"),
		"cache describe":                conformance.Appended("default_query_exec_mode=cache_describe"),
		"one connection":                conformance.Appended("pool_max_conns=1"),
		"two connections":               conformance.Appended("pool_max_conns=2"),
		"odd string style":              conformance.Appended("standard_conforming_strings=off"),
		"PgBouncer in transaction mode": func(t *testing.T, dsn string) string { return testdb.Pooled(t, dsn) },
	})
}
