package queue

import (
	"slices"
	"testing"
	"time"

	"github.com/dblock-go/dblock/queue/internal/driver"
)

func TestMarks(t *testing.T) {
	t.Parallel()
	now, server := time.Now(), time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return server.Add(time.Duration(s) * time.Second) }
	job := func(priority int16, s int) driver.Job { return driver.Job{Priority: priority, ReadyAt: at(s)} }
	var m cursors
	claim := func(most int, jobs ...driver.Job) []driver.ReadyCursor {
		r := &driver.ClaimRequest{Max: most, From: m.from(now)}
		m.saw(r, jobs, now, time.Millisecond)
		return r.From
	}
	expect := func(name string, got []driver.ReadyCursor, want ...driver.ReadyCursor) {
		t.Helper()
		if (got == nil) != (want == nil) || !slices.Equal(got, want) {
			t.Errorf("%s: from %v, want %v", name, got, want)
		}
	}
	none := []driver.ReadyCursor{}
	expect("the first", claim(2, job(0, 10), job(5, 20)))
	expect("a backlog begins where the last one did, others some time before", claim(2, job(5, 22), job(5, 23)),
		driver.ReadyCursor{Priority: 0, ReadyAt: at(9)}, driver.ReadyCursor{Priority: 5, ReadyAt: at(20)})
	expect("nothing is left of the urgent ones", claim(2, job(5, 24)), driver.ReadyCursor{Priority: 0, ReadyAt: at(9)}, driver.ReadyCursor{Priority: 5, ReadyAt: at(22)})
	expect("nor of the others", claim(2), driver.ReadyCursor{Priority: 0, ReadyAt: at(9)}, driver.ReadyCursor{Priority: 5, ReadyAt: at(23)})
	m.reset()
	expect("after a failure", claim(2))
	expect("nothing is known", claim(2), none...)
	now = now.Add(wholeEvery)
	expect("a second later", claim(2, job(1, 1)))
	for p := range int16(2 * maxCursors) {
		claim(1, job(p, 1))
	}
	if got := claim(1); len(got) != maxCursors {
		t.Errorf("it knows of %d priorities, want %d", len(got), maxCursors)
	}
	m.reset()
	m.saw(&driver.ClaimRequest{Max: 1}, nil, now, time.Second)
	if rest := m.due().Sub(now); rest != wholeSeldom {
		t.Errorf("after a claim of a second the next whole one is in %v, want %v", rest, wholeSeldom)
	}
}

// A claim from the start that was cut off is not repeated at once, unless nothing is known.
func TestMarksOfLateClaims(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var m cursors
	m.late(now)
	if from := m.from(now); from != nil {
		t.Errorf("from %v, though nothing was claimed yet", from)
	}
	m.saw(&driver.ClaimRequest{Max: 1}, []driver.Job{{ReadyAt: now}}, now, time.Second)
	now = now.Add(time.Hour)
	if from := m.from(now); from != nil {
		t.Errorf("from %v, though the last whole claim was long ago", from)
	}
	now = now.Add(30 * time.Second)
	m.late(now)
	if from := m.from(now.Add(wholeSeldom - 1)); from == nil {
		t.Error("from the start again")
	}
	if from := m.from(now.Add(wholeSeldom)); from != nil {
		t.Errorf("from %v later", from)
	}
}

// A job that was committed late waits for a claim that begins at the start. On a busy server, where
// all claims take long, that is no later.
func TestMarksOnABusyServer(t *testing.T) {
	t.Parallel()
	const took = 400 * time.Millisecond
	var m cursors
	began, now := 0, time.Now()
	for range 100 {
		r := &driver.ClaimRequest{Max: 1, From: m.from(now)}
		if r.From == nil {
			began++
		}
		now = now.Add(took)
		m.saw(r, []driver.Job{{ReadyAt: now}}, now, took)
	}
	if began < 20 {
		t.Errorf("%d of 100 claims, of %v each, began at the start", began, took)
	}
}

// The first claim may fail, and the next one come before wholeEvery has passed.
func TestMarksBeginAtTheStartUntilAClaimSucceeds(t *testing.T) {
	t.Parallel()
	var m cursors
	now := time.Now()
	for range 2 {
		if from := m.from(now); from != nil {
			t.Fatalf("a claim begins at %v, and none has succeeded", from)
		}
	}
	m.saw(&driver.ClaimRequest{Max: 1}, []driver.Job{{Priority: 1, ReadyAt: now}}, now, 0)
	if from := m.from(now); len(from) != 1 || from[0].Priority != 1 {
		t.Errorf("the next one begins at %v", from)
	}
}
