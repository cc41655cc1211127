package queue

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// herd notifies so many workers of one job after the other, and returns how many requests each job
// costs, and how long the first one takes. Notified workers ask even if another worker has the job
// by then: they can't know.
func herd(workers, jobs int, fixed bool) (asks float64, wait time.Duration) {
	all := make([]hints, workers)
	now := time.Unix(0, 0)
	total, waits := 0, time.Duration(0)
	for range jobs {
		for i := range all {
			all[i].received(now, 0, 1)
		}
		first := 0
		for i := range all {
			if all[i].due.Before(all[first].due) {
				first = i
			}
		}
		waits += max(all[first].due.Sub(now), 0)
		next := now.Add(rand.N(2 * time.Millisecond)) // when the next job comes
		for i := range all {
			at := all[i].due
			if at.Before(next) && all[i].asked(at) {
				total++
				got := 0
				if i == first {
					got = 1
				}
				if !fixed {
					all[i].got(got)
				}
			}
		}
		now = next
	}
	return float64(total) / float64(jobs), waits / time.Duration(jobs)
}

// Of many notified workers few ask for each job, and no job waits for long; one that is alone asks
// at once.
func TestAHerdIsSpread(t *testing.T) {
	t.Parallel()
	if asks, _ := herd(50, 5000, true); asks < 49 {
		t.Errorf("the control: without windows %.1f of 50 ask", asks)
	}
	asks, wait := herd(50, 5000, false)
	t.Logf("%.1f asks a job, which waits for %v", asks, wait)
	if asks > 15 || wait > 3*time.Millisecond {
		t.Errorf("%.1f asks a job, which waits for %v", asks, wait)
	}
	var h hints
	h.window = maxHintDelay
	for range 40 {
		h.got(1)
	}
	if h.window != 0 {
		t.Errorf("one that always gets something waits for %v", h.window)
	}
	for range 1000 {
		h.got(0)
	}
	if h.window != maxHintDelay {
		t.Errorf("one that never does waits for %v", h.window)
	}
}

func TestWhoIsBusyLeavesJobsToOthers(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, c := range []struct {
		busy int
		want time.Duration
	}{{0, 0}, {50, maxBusyDelay / 2}, {100, maxBusyDelay}, {300, maxBusyDelay}} {
		var h hints
		h.received(now, c.busy, 100)
		if wait := h.due.Sub(now); wait != c.want {
			t.Errorf("with %d of 100 handlers busy it waits for %v, want %v", c.busy, wait, c.want)
		}
	}
}

// A notification while a request is under way leads to another one.
func TestAHintDuringAnAskIsKept(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var h hints
	if h.asked(now) {
		t.Error("nothing was heard")
	}
	h.received(now, 0, 1)
	if !h.asked(now) || !h.due.IsZero() {
		t.Error("an ask for a hint")
	}
	h.received(now, 0, 1)
	h.got(0)
	if h.due.IsZero() {
		t.Error("the second hint is lost")
	}
}

func TestWordIsForItsMember(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inc := &member.Incarnation{ID: member.NewID()}
		w := &worker{sync: &syncer{now: &incarnation{inc: inc}}}
		w.cancels = &canceller{w: w, word: make(chan struct{}, 1)}
		n := &notices{workers: map[*worker]struct{}{w: {}}}
		n.received(driver.Notification{Member: member.NewID()})
		began := time.Now()
		if !w.cancels.waits(t.Context(), time.Second) || time.Since(began) != time.Second {
			t.Error("it looks for word that was left for another one")
		}
		n.received(driver.Notification{Member: inc.ID})
		n.received(driver.Notification{Member: inc.ID})
		began = time.Now()
		if !w.cancels.waits(t.Context(), time.Second) || time.Since(began) != 0 {
			t.Error("it does not look at once")
		}
	})
}
