package mysqllock_test

import (
	"testing"
	"time"

	locksuite "github.com/dblock-go/dblock/internal/conformance/lock"
	optimisticsuite "github.com/dblock-go/dblock/internal/conformance/optimistic"
)

// TestAnswersFaults replaces the server's answers, in child processes that a panic ends.
func TestAnswersFaults(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		for name, run := range map[string]func(*testing.T){
			"leases": leases(kind).RunAnswers, "sessions": sessions(kind).RunAnswers,
			"tx":   optimisticsuite.Tx{Kind: kind, Open: openTx}.RunAnswers,
			"rows": locksuite.RowLocks{Kind: kind, Open: openRows, Bound: time.Second}.RunAnswers,
		} {
			t.Run(string(kind)+" "+name, func(t *testing.T) {
				t.Parallel()
				run(t)
			})
		}
	}
}
