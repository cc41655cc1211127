package mysql

import "strings"

// TableBound follows the verb of a statement, and bounds its wait for a table. ALTER TABLE locks a
// table, also while it waits behind a long SELECT, and so do LOCK TABLES and FLUSH TABLES WITH READ
// LOCK. By default MySQL waits a year, and goes on when the client has left. A second is the least
// that it takes. Replicas ignore the hint. MariaDB ends the wait when the client leaves.
const (
	TableBound = "/*+ " + tableBound + " */ "
	tableBound = "SET_VAR(lock_wait_timeout = 1)"
)

// begin returns where a statement begins behind its comments.
func begin(query string) (at int) {
	for {
		end := ""
		switch rest := query[at:]; {
		case strings.HasPrefix(rest, "-- "):
			end = "\n"
		case strings.HasPrefix(rest, "/*"):
			end = "*/ "
		}
		length := strings.Index(query[at:], end)
		if end == "" || length < 0 {
			return at
		}
		at += length + len(end)
	}
}

// waitsForRows reports whether a SELECT waits for rows that other transactions have locked.
func waitsForRows(query string) bool {
	locks := strings.Contains(query, "FOR UPDATE") || strings.Contains(query, "FOR SHARE")
	return locks && !strings.Contains(query, "SKIP LOCKED") && !strings.Contains(query, "NOWAIT")
}
