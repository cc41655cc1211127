package mysql

import "testing"

// TestBoundTables: the bound stands behind the verb, in the one comment of hints that a statement
// has.
func TestBoundTables(t *testing.T) {
	t.Parallel()
	const hint = "SET_VAR(lock_wait_timeout = 1)"
	for query, want := range map[string]string{
		"-- name: A :one\nSELECT 1 FROM (SELECT 2) x": "-- name: A :one\nSELECT /*+ " + hint + " */ 1 FROM (SELECT 2) x",
		"INSERT IGNORE INTO t SELECT 1":               "INSERT /*+ " + hint + " */ IGNORE INTO t SELECT 1",
		"UPDATE (\nSELECT 1) x":                       "UPDATE /*+ " + hint + " */ (\nSELECT 1) x",
		"DELETE d FROM d":                             "DELETE /*+ " + hint + " */ d FROM d",
		"/*M! a */ SELECT 1":                          "/*M! a */ SELECT /*+ " + hint + " */ 1",
		"SAVEPOINT a":                                 "SAVEPOINT a",
		"/* open":                                     "/* open",
	} {
		if got := parse(query, true).text("", "", nil); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	const both = "SELECT /*+ " + hint + " MAX_EXECUTION_TIME(50) */ 1"
	if got := parse("SELECT 1", true).text("", "MAX_EXECUTION_TIME(50)", nil); got != both {
		t.Errorf("got  %s\nwant %s", got, both)
	}
}

func TestWaitsForRows(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]bool{
		"SELECT 1": false, "SELECT 1 FOR UPDATE": true, "SELECT 1 FOR SHARE": true,
		"SELECT 1 FOR UPDATE SKIP LOCKED": false, "SELECT 1 FOR SHARE NOWAIT": false,
	} {
		if got := waitsForRows(query); got != want {
			t.Errorf("%s: %v", query, got)
		}
	}
}
