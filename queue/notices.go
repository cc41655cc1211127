package queue

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dblock-go/dblock/queue/internal/driver"
)

// Workers claim jobs when they poll. All else is so that they need not wait for that: what makes
// jobs ready wakes the workers of its own process, and notifies the others. A notification may be
// lost, and costs then as long as the poll takes.

// notices knows the workers of this process, tells them of jobs, and tells other processes.
type notices struct {
	q      *Queue
	sender *sender
	ear    ear

	mu      sync.RWMutex
	workers map[*worker]struct{}
}

func (n *notices) join(w *worker) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.workers[w] = struct{}{}
}

func (n *notices) quit(w *worker) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.workers, w)
}

// each calls f for the workers of a queue, or of AnyQueue.
func (n *notices) each(queue string, f func(*syncer)) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	for w := range n.workers {
		if w.isFor(queue) {
			f(w.sync)
		}
	}
}

// announce tells the workers of a queue, or of AnyQueue, that there are jobs: committed ones.
func (n *notices) announce(queue string) {
	n.each(queue, (*syncer).wake)
	n.send(driver.Notification{Queue: queue})
}

// announceAll does so for jobs that were enqueued.
func (n *notices) announceAll(jobs []driver.Insert, dups []driver.Duplicate) {
	not := make(map[driver.ID]bool, len(dups))
	for _, d := range dups {
		not[d.Job] = true
	}
	told := make(map[string]bool, 1)
	for i := range jobs {
		if j := &jobs[i]; j.Delay == 0 && !told[j.Queue] && !not[j.ID] {
			told[j.Queue] = true
			n.announce(j.Queue)
		}
	}
}

func (n *notices) send(one driver.Notification) {
	if !n.q.o.PollOnly {
		n.sender.send(one)
	}
}

// heard takes over what another process has sent.
func (n *notices) heard(one driver.Notification) {
	if one.IsOfJobs() {
		n.each(one.Queue, (*syncer).hint)
		return
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	for w := range n.workers {
		if w.sync.isOf(one.Member) {
			w.cancels.leave()
		}
	}
}

// cancel cancels jobs of whichever workers of this process have them.
func (n *notices) cancel(jobs map[driver.ID]bool) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	for w := range n.workers {
		w.sync.cancel(jobs)
	}
}

// hints is how a worker goes about what other processes tell. All hear of a job at the same moment,
// and one of them gets it. So each waits first, for a random time within a window that grows with
// each time that it comes too late, and is halved when it gets something: by about as much as there
// are others, so that together they ask about as often as if there were a few. What is heard
// meanwhile is one ask. One that is alone soon waits for nothing, and of several it is soon one
// that is the first as a rule; so it waits for longer the more of its handlers are busy, and others
// get their share.
type hints struct {
	due    time.Time // zero: nothing was heard since the last ask
	window time.Duration
}

const (
	hintStep  = 500 * time.Microsecond
	hintsMost = 10 * time.Millisecond
	busyMost  = 5 * time.Millisecond // what one waits for whose handlers are all busy, beside
)

func (h *hints) heard(now time.Time, busy, of int) {
	if h.due.IsZero() {
		h.due = now.Add(rand.N(h.window+1) + busyMost*time.Duration(min(busy, of))/time.Duration(of))
	}
}

// asked notes that the worker asks, and tells whether it does because of a hint.
func (h *hints) asked(now time.Time) bool {
	due := !h.due.IsZero() && !now.Before(h.due)
	h.due = time.Time{}
	return due
}

// got takes over what came of it.
func (h *hints) got(jobs int) {
	if jobs > 0 {
		h.window /= 2
	} else {
		h.window = min(h.window+hintStep, hintsMost)
	}
}
