package mysqlqueue_test

import "testing"

// TestAnswersFaults replaces the server's answers, in a child process that a panic ends.
func TestAnswersFaults(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			on(kind).RunAnswers(t)
		})
	}
}
