package mysqllock_test

import (
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance"
)

// TestAnswersFaults replaces the server's answers, in child processes that a panic ends.
func TestAnswersFaults(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		for name, run := range map[string]func(*testing.T){
			"leases": leases(kind).RunAnswers, "sessions": sessions(kind).RunAnswers,
			"tx":   conformance.Tx{Kind: kind, Open: openTx}.RunAnswers,
			"rows": conformance.RowLocks{Kind: kind, Open: openRows, Bound: time.Second}.RunAnswers,
		} {
			t.Run(string(kind)+" "+name, func(t *testing.T) {
				t.Parallel()
				run(t)
			})
		}
	}
}
