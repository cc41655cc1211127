package pglock_test

import (
	"testing"

	optimisticsuite "github.com/dblock-go/dblock/internal/conformance/optimistic"
	"github.com/dblock-go/dblock/internal/devdb"
)

// TestAnswersFaults replaces the server's answers, in child processes that a panic ends.
func TestAnswersFaults(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(*testing.T){
		"leases": leases.RunAnswers, "sessions": sessions.RunAnswers,
		"tx":   optimisticsuite.Tx{Kind: devdb.Postgres, Open: openTx}.RunAnswers,
		"rows": rows.RunAnswers, "rowsSQL": rowsSQL.RunAnswers,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t)
		})
	}
}
