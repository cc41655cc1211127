package dblocktest

import (
	"slices"
	"testing"
	"time"
)

var start = time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)

func TestAdvanceRunsWhatIsDueInOrder(t *testing.T) {
	t.Parallel()
	c := NewClock(start)
	var ran []string
	note := func(name string, at time.Duration) func() {
		return func() {
			if shown := c.Now().Sub(start); shown != at {
				t.Errorf("%s ran at %v, want %v", name, shown, at)
			}
			ran = append(ran, name) // on the goroutine of Advance: the race detector would say otherwise
		}
	}
	c.AfterFunc(2*time.Second, note("second", 2*time.Second))
	c.AfterFunc(time.Second, func() {
		note("first", time.Second)()
		c.AfterFunc(time.Second, note("arranged meanwhile", 2*time.Second))
	})
	c.AfterFunc(2*time.Second, note("as early", 2*time.Second))
	c.AfterFunc(4*time.Second, note("too late", 4*time.Second))
	stopped := c.AfterFunc(time.Second, note("stopped", time.Second))
	if !stopped.Stop() || stopped.Stop() {
		t.Error("a timer is stopped once")
	}
	c.Advance(3 * time.Second)
	if want := []string{"first", "second", "as early", "arranged meanwhile"}; !slices.Equal(ran, want) {
		t.Errorf("ran %v, want %v", ran, want)
	}
	c.Advance(-time.Hour)
	if c.Now() != start.Add(3*time.Second) {
		t.Errorf("it shows %v", c.Now())
	}
	at := make(chan time.Time)
	none := c.AfterFunc(0, func() { at <- c.Now() })
	if got := <-at; got != start.Add(3*time.Second) || none.Stop() {
		t.Errorf("at once was at %v", got)
	}
}
