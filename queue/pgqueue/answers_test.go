package pgqueue_test

import "testing"

// TestAnswers replaces the server's answers, in a child process that a panic ends.
func TestAnswers(t *testing.T) {
	t.Parallel()
	engine.RunAnswers(t)
}
