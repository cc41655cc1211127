package pginventory_test

import "testing"

// TestNothingDependsOnTheConnectionsSettings holds what the package's documentation says.
func TestNothingDependsOnTheConnectionsSettings(t *testing.T) {
	t.Parallel()
	engine.RunWith(t, map[string]string{
		"serializable":     "default_transaction_isolation=serializable",
		"repeatable read":  "default_transaction_isolation=repeatable%20read",
		"read only":        "default_transaction_read_only=on",
		"not durable":      "synchronous_commit=off",
		"time zone":        "timezone=Asia/Kathmandu",
		"no timeouts":      "lock_timeout=0&statement_timeout=0",
		"simple protocol":  "default_query_exec_mode=simple_protocol",
		"dates":            "default_query_exec_mode=simple_protocol&DateStyle=German",
		"exec":             "default_query_exec_mode=exec",
		"describe exec":    "default_query_exec_mode=describe_exec",
		"cache describe":   "default_query_exec_mode=cache_describe",
		"one connection":   "pool_max_conns=1",
		"odd string style": "standard_conforming_strings=off",
	})
}
