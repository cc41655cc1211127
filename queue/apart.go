package queue

import (
	"time"

	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// An exchange carries ends of many jobs, and a claim. It waits only briefly for the rows of unique keys, groups and jobs. If another
// transaction has such a row locked, the ends of jobs with keys go apart: into messages of their own, without a claim, of half as many
// ends each time, until an end that can't be recorded is alone. It rests, and is sent again. If no job has a key, all ends go apart. So
// it is with ends that the server refuses: a group whose count is wrong, for example, or a trigger
// of the host's that fails for one of them. An error that may be the server's instead makes the
// messages fewer, as long as no end is recorded.
const (
	firstRest   = 10 * time.Millisecond
	longestRest = 250 * time.Millisecond
	restsToTell = 8 // after so many rests Observer.Trouble is told

	conflictsToPart = 3  // conflicts or timeouts of an end, before ends are sent one by one
	failsToPause    = 16 // consecutive errors, before the next message waits
)

// apart is how an end is sent that did not go with others.
type apart struct {
	conflicts int // for how many it was not recorded

	share int       // how many ends its message has at most; 0: it goes with all others
	rests int       // how often it was alone and could not be recorded
	until time.Time // it rests until then
}

// setApart has the ends of a message that was refused go apart, and returns those that go with others still. w.mu is held.
func (w *worker) setApart(m *message, locked bool) (others []end) {
	share, now := max(len(m.ends)/2, 1), time.Now()
	for _, e := range m.ends {
		if locked && m.LocksKeys() && !e.letsIn() {
			others = append(others, e)
			continue
		}
		if len(m.ends) == 1 {
			e.apart.until = now.Add(pace.Jitter(min(firstRest<<min(e.apart.rests, 10), longestRest)))
			e.apart.rests++
		}
		e.apart.share = share
		w.apart = append(w.apart, e)
	}
	return others
}

// goesApart tells that some ends of a message may be recorded without the others.
func (w *worker) goesApart(m *message, err error) (apart, locked bool) {
	if len(m.ends) == 0 {
		return false, false
	}
	if locked = w.q.driver.IsLocked(err); locked {
		return true, true
	}
	switch is := w.q.classify(err); {
	case is == sqlerr.Busy && w.q.driver.Exhausted():
		return false, false
	case is != sqlerr.Retryable && is != sqlerr.Busy:
		return is.MayBeOfOne(), false
	}
	for i := range m.ends {
		a := &m.ends[i].apart
		a.conflicts++
		apart = apart || a.conflicts >= conflictsToPart
	}
	return apart, false
}

// slows has the next message wait, if many have failed in a row for errors that may be the
// server's. w.mu is held.
func (w *worker) slows(err error) {
	if w.failing++; w.failing > failsToPause && w.q.classify(err) != sqlerr.BadInput {
		w.notUntil = time.Now().Add(failPause(w.failing - failsToPause))
	}
}

// composeApart makes a message of ends that go apart; nil: none is due before so long. One such message is under way at a time. w.mu is held.
func (w *worker) composeApart(now time.Time) (m *message, wait time.Duration) {
	const long = time.Minute
	if w.apartFlying || len(w.apart) == 0 {
		return nil, long
	}
	first, wait := -1, long
	for i := range w.apart {
		a := &w.apart[i].apart
		if rest := a.until.Sub(now); rest > 0 {
			wait = min(wait, rest)
		} else if first < 0 || a.share > w.apart[first].apart.share {
			first = i
		}
	}
	if first < 0 {
		return nil, wait
	}
	w.apart[0], w.apart[first] = w.apart[first], w.apart[0]
	share := w.apart[0].apart.share
	m, w.apart = w.gather(w.apart, func(e *end) bool { return e.apart.share == share && !e.apart.until.After(now) }, share)
	w.apartFlying, m.apart = true, true
	return m, 0
}
