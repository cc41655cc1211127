package queue

import (
	"math/rand/v2"
	"time"

	"github.com/dblock-go/dblock/queue/internal/driver"
)

// Workers ask for jobs when they poll. All else is so that they need not wait for that: who has made jobs ready wakes the workers of
// his own process, and tells the others. What they are told may be lost, and costs then as long as the poll takes.

// announce tells the workers of a queue, or of AnyQueue, that there are jobs: committed ones.
func (q *Queue) announce(name string) {
	q.wake(name)
	q.tell(driver.Notification{Queue: name})
}

// announceAll does so for jobs that were enqueued.
func (q *Queue) announceAll(jobs []driver.Insert, dups []driver.Duplicate) {
	not := make(map[driver.ID]bool, len(dups))
	for _, d := range dups {
		not[d.Job] = true
	}
	told := make(map[string]bool, 1)
	for i := range jobs {
		if j := &jobs[i]; j.Delay == 0 && !told[j.Queue] && !not[j.ID] {
			told[j.Queue] = true
			q.announce(j.Queue)
		}
	}
}

func (q *Queue) tell(n driver.Notification) {
	if !q.o.PollOnly {
		q.teller.tell(n)
	}
}

// wake has the workers of this process ask at once.
func (q *Queue) wake(name string) {
	q.mu.RLock()
	defer q.mu.RUnlock()
	for w := range q.workers {
		if w.isFor(name) {
			w.wake()
		}
	}
}

// heard takes over what another process tells.
func (q *Queue) heard(n driver.Notification) {
	q.mu.RLock()
	defer q.mu.RUnlock()
	for w := range q.workers {
		switch {
		case !n.IsOfJobs():
			w.leftWord(n.Member)
		case w.isFor(n.Queue):
			w.hint()
		}
	}
}

// isFor tells whether a worker is to look when there are jobs of a queue, which is named or given by its topic.
func (w *worker) isFor(queue string) bool {
	return queue == w.o.Queue || queue == w.topic || queue == driver.AnyQueue && !w.leavesJobs()
}

// hints is how a worker goes about what other processes tell. All hear of a job at the same moment, and one of them gets it. So each waits
// first, for a random time within a window that grows with each time that it comes too late, and is halved when it gets something: by
// about as much as there are others, so that together they ask about as often as if there were a few. What is heard meanwhile is one
// ask. One that is alone soon waits for nothing, and of several it is soon one that is the first as a rule; so it waits for longer the more
// of its handlers are busy, and others get their share.
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

// hint has the worker ask soon.
func (w *worker) hint() {
	w.mu.Lock()
	w.hints.heard(time.Now(), w.held, w.o.Concurrency)
	w.mu.Unlock()
	w.signal()
}

// nextAsk is when it asks though nothing has happened in this process; w.mu is held.
func (w *worker) nextAsk() time.Time {
	if due := w.hints.due; !due.IsZero() && due.Before(w.nextPoll) {
		return due
	}
	return w.nextPoll
}
