package queue

import (
	"cmp"
	"slices"
	"time"

	"github.com/dblock-go/dblock/queue/internal/driver"
)

const (
	// maxCursors is of how many priorities it is known where to begin. The others are read from
	// their start.
	maxCursors = 16

	// cursorSlack is how far before what was claimed last a claim begins: jobs are committed a
	// little later than they get their place in the queue. In a backlog it does not matter, as they
	// wait anyway.
	cursorSlack = time.Second

	// wholeEvery is how often at least a claim begins at the start, so that what stands before the
	// cursors waits for no longer: jobs of transactions that took their time, and of claims that
	// were rolled back. If such a claim takes longer than others, it is done less often: it passes
	// over many rows. On a busy server all claims take long, and that is no reason.
	wholeEvery  = time.Second
	wholeShare  = 20
	wholeSeldom = 10 * time.Second
)

// cursors is, of each priority, about where the first ready job stands: before it are rows that
// were deleted, and which a server can't clean up while an old snapshot may see them. A
// claim that began at the start would pass over all of them, each time. The times are the server's.
type cursors struct {
	at    map[int16]cursor // nil: nothing was claimed from the start yet
	whole time.Time        // when a claim last began at the start; zero: the next one is to
	took  time.Duration    // that claim
	usual time.Duration    // about how long one takes that begins at the cursors; 0: not known
}

type cursor struct {
	first time.Time // of those of the priority that were claimed last
	more  bool      // there was more than was asked for
}

// from is where the next claim is to begin; nil: at the start.
func (m *cursors) from(now time.Time) []driver.ReadyCursor {
	if m.at == nil || !now.Before(m.due()) {
		m.whole, m.took = now, 0
		return nil
	}
	from := make([]driver.ReadyCursor, 0, len(m.at))
	for priority, k := range m.at {
		if !k.more {
			k.first = k.first.Add(-cursorSlack)
		}
		from = append(from, driver.ReadyCursor{Priority: priority, ReadyAt: k.first})
	}
	slices.SortFunc(from, func(a, b driver.ReadyCursor) int { return cmp.Compare(a.Priority, b.Priority) })
	return from
}

// saw takes over what a claim brought, in order. Concurrent claims of others have the jobs before
// it, unless they fail.
func (m *cursors) saw(r *driver.ClaimRequest, jobs []driver.Job, now time.Time, took time.Duration) {
	switch {
	case r.From == nil:
		m.at = make(map[int16]cursor)
		m.whole, m.took = now, took
	case m.usual == 0:
		m.usual = took
	default:
		m.usual += (took - m.usual) / 8
	}
	for p, k := range m.at {
		k.more = false
		m.at[p] = k
	}
	for i, j := range jobs {
		if _, known := m.at[j.Priority]; !known && len(m.at) >= maxCursors {
			break
		}
		if i == 0 || j.Priority != jobs[i-1].Priority {
			m.at[j.Priority] = cursor{first: j.ReadyAt}
		}
	}
	if n := len(jobs); n > 0 && n == r.Max {
		if k, known := m.at[jobs[n-1].Priority]; known {
			k.more = true
			m.at[jobs[n-1].Priority] = k
		}
	}
}

// due is when the next claim is to begin at the start.
func (m *cursors) due() time.Time {
	if m.whole.IsZero() {
		return m.whole
	}
	more := max(m.took-2*m.usual, 0)
	return m.whole.Add(max(min(max(wholeEvery, more*wholeShare), wholeSeldom), 4*more))
}

// late takes over that a claim from the start was cut off: claims begin at the cursors for a while,
// if there are any. What stands before them waits for that long.
func (m *cursors) late(now time.Time) { m.whole, m.took = now, m.usual*2+wholeSeldom/4 }

// reset has the next claim begin at the start.
func (m *cursors) reset() { m.whole = time.Time{} }
