package session

import (
	"errors"
	"testing"
	"time"
)

// TestTrustsNoOldAnswer: a process that was paused reads a grant before its timers show that the
// connection has ended.
func TestTrustsNoOldAnswer(t *testing.T) {
	t.Parallel()
	s := &session{of: &sessions{base: &base{o: Options{IdleTimeout: 10 * time.Second}}}}
	if err := s.trustReply(time.Now().Add(-9 * time.Second)); !errors.Is(err, errEnded) {
		t.Errorf("an answer to what was sent so long ago that the server may have ended the connection: %v", err)
	}
	if err := s.trustReply(time.Now()); err != nil {
		t.Errorf("an answer that came at once: %v", err)
	}
}
