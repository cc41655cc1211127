package mysql

import (
	"testing"
	"time"
)

// TestOnlySlowStatementsKeepConnections: a connection whose caller has left during a quick
// statement is given back at once, unless another caller has left during a slow one lately.
func TestOnlySlowStatementsKeepConnections(t *testing.T) {
	t.Parallel()
	var l left
	const wait, quick = 2 * time.Second, time.Millisecond
	now := time.Unix(1, 0)
	for i, step := range []struct {
		after, took time.Duration
		well        int // statements that end before
		want        bool
	}{
		{0, quick, 0, false},
		{time.Second, slowStatement, 0, true},
		{slowFor*wait - time.Second, quick, enoughWell - 1, true},
		{time.Second, quick, 0, false},
		{0, slowStatement, 0, true},
		{0, quick, enoughWell, false},
	} {
		now = now.Add(step.after)
		for range step.well {
			l.endedWell()
		}
		if got := l.mayWait(now, step.took, wait, false); got != step.want {
			t.Errorf("step %d: the server may wait: %v", i+1, got)
		}
	}
	if !l.mayWait(now, slowStatement, wait, true) || l.mayWait(now, quick, wait, false) {
		t.Error("a slow statement of few says something of others, or nothing of itself")
	}
}
