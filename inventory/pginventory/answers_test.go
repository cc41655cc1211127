package pginventory_test

import "testing"

// TestAnswersFaults replaces the server's answers, in a child process that a panic ends.
func TestAnswersFaults(t *testing.T) {
	t.Parallel()
	engine.RunAnswers(t)
}
