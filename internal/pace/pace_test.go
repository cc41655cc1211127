package pace

import (
	"testing"
	"time"
)

// TestPace polls for many keys as often as it may: never more than a hundred times in a second, but
// for what was saved.
func TestPace(t *testing.T) {
	t.Parallel()
	var p Pace
	start := time.Now()
	polls := map[time.Time]bool{}
	for now := start; now.Before(start.Add(3 * time.Second)); now = now.Add(time.Millisecond) {
		for key := range 5 {
			at := p.Plan(now, now.Add(time.Duration(key)*time.Millisecond))
			if at.Before(now) {
				t.Fatalf("planned for %v ago", now.Sub(at))
			}
			polls[at] = true
		}
	}
	for from := start; from.Before(start.Add(2 * time.Second)); from = from.Add(50 * time.Millisecond) {
		n := 0
		for at := range polls {
			if !at.Before(from) && at.Before(from.Add(time.Second)) {
				n++
			}
		}
		if n < 90 || n > 111 {
			t.Errorf("%d polls in the second from %v", n, from.Sub(start))
		}
	}
}

// TestPaceSaves lets a process that has not polled for long do so at once, a few times.
func TestPaceSaves(t *testing.T) {
	t.Parallel()
	var p Pace
	now := time.Now()
	at := now
	for n := range 10 {
		due := at.Add(time.Millisecond)
		if at = p.Plan(at, due); !at.Equal(due) {
			t.Fatalf("poll %d is late by %v", n, at.Sub(due))
		}
	}
	for range 20 {
		at = p.Plan(at, at.Add(time.Millisecond))
	}
	if took := at.Sub(now); took < 150*time.Millisecond {
		t.Errorf("30 polls in %v", took)
	}
}

func TestInterval(t *testing.T) {
	t.Parallel()
	for waited, want := range map[time.Duration]time.Duration{
		0: soonest, 80 * time.Millisecond: soonest, 160 * time.Millisecond: 10 * time.Millisecond, time.Hour: 100 * time.Millisecond,
	} {
		if got := Interval(waited, 100*time.Millisecond); got != want {
			t.Errorf("after %v: %v, want %v", waited, got, want)
		}
	}
}
