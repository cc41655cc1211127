package migrations_test

import (
	"testing"

	"github.com/dblock-go/dblock/internal/conformance/answers"
	"github.com/dblock-go/dblock/internal/testdb"
)

// TestAnswersFaults replaces the server's answers, in a child process that a panic ends.
func TestAnswersFaults(t *testing.T) {
	t.Parallel()
	for _, kind := range testdb.Engines() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			answers.RunMigrationAnswers(t, kind)
		})
	}
}
