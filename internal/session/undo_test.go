package session_test

import (
	"slices"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/session"
)

// TestAFailedLookUndoesNothing answers a look by an error. A look changes nothing, so no step
// follows that undoes it.
func TestAFailedLookUndoesNothing(t *testing.T) {
	run(t, func(t *testing.T, s *server) {
		l := s.locker(t, session.Options{})
		lock := acquire(t, l, "k")
		var ops []session.Op
		failed := false
		s.strike(func(_ *conn, steps []session.Step) (bool, error) {
			for _, step := range steps {
				ops = append(ops, step.Op)
			}
			if steps[0].Op == session.HasWaiters && !failed {
				failed = true
				return false, errOdd
			}
			return false, nil
		})
		got := make(chan *dblock.Lock, 3)
		for range cap(got) {
			go func() { got <- acquire(t, l, "k") }()
		}
		time.Sleep(2 * time.Second) // the turn of this process ends, so a release asks whether others wait
		release(t, lock)
		for range cap(got) {
			release(t, <-got)
		}
		if !failed || slices.Contains(ops, session.Forgo) {
			t.Errorf("steps %v", ops)
		}
		closes(t, l)
	})
}
