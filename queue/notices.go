package queue

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// Workers claim jobs when they poll. All else is so that they need not wait for that: what makes
// jobs ready wakes the workers of its own process, and notifies the others. A notification may be
// lost, and costs then as long as the poll takes.

// notices knows the workers of this process, and notifies them and other processes of jobs.
type notices struct {
	q            *Queue
	sender       *sender
	subscription subscription

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

// announce wakes the workers of a queue, or of AnyQueue, for jobs that are committed.
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

// received takes over what another process has sent.
func (n *notices) received(one driver.Notification) {
	if one.IsOfJobs() {
		n.each(one.Queue, (*syncer).hint)
		return
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	for w := range n.workers {
		if w.sync.isOf(one.Member) {
			w.cancels.request()
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

// hints is how a worker uses notifications. All processes receive one at the same moment, and one
// of them gets the job. So each waits first, for a random time within a window. The window grows
// each time that the worker comes too late, and is halved when it gets something. It grows with the
// number of other workers, so that together they ask about as often as a few would. Notifications
// that arrive meanwhile lead to one request. A worker that is alone soon waits for nothing. Of
// several workers one soon is the first as a rule. So it waits for longer the more of its handlers
// are busy, and others get their share.
type hints struct {
	due    time.Time // zero: no notification since the last request
	window time.Duration
}

const (
	hintStep     = 500 * time.Microsecond
	maxHintDelay = 10 * time.Millisecond
	maxBusyDelay = 5 * time.Millisecond // what one waits for whose handlers are all busy, beside
)

func (h *hints) received(now time.Time, busy, of int) {
	if h.due.IsZero() {
		h.due = now.Add(rand.N(h.window+1) + maxBusyDelay*time.Duration(min(busy, of))/time.Duration(of))
	}
}

// asked notes that the worker asks, and reports whether it does because of a hint.
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
		h.window = min(h.window+hintStep, maxHintDelay)
	}
}

const (
	// sendEvery is the shortest time between two notifications of this process about one thing. A
	// job may wait that long for an idle worker of another process: the first one of a burst is
	// notified at once, and the others with the next notification.
	sendEvery = time.Millisecond

	// sendBusy is the same once more than so many jobs came meanwhile: then jobs are
	// many, and workers hardly idle.
	sendBusy = 5 * time.Millisecond
	sendMany = 4

	// sendTries is how often it tries to; each pause is four times as long as the one before. Then
	// the others' polls have to do.
	sendTries = 5
)

// sender notifies other processes in the background, at most once per interval. What it is given
// while it waits is sent after that: by then its transaction has committed, and so no notification
// comes too early.
type sender struct {
	notify  func(context.Context, []driver.Notification) error
	trouble func(doing string, err error)

	ending context.Context // of all that it sends
	end    context.CancelFunc

	mu      sync.Mutex
	notices map[driver.Notification]struct{}
	calls   int           // how often there was something since it was taken
	busy    bool          // sends, or waits until it may again
	off     bool          // no process listens
	closing chan struct{} // closed: it waits no more
	work    sync.WaitGroup
}

func newSender(notify func(context.Context, []driver.Notification) error, trouble func(string, error)) *sender {
	s := &sender{notify: notify, trouble: trouble, notices: make(map[driver.Notification]struct{}), closing: make(chan struct{})}
	s.ending, s.end = context.WithCancel(context.Background())
	return s
}

// send returns at once.
func (s *sender) send(n driver.Notification) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.off {
		return
	}
	s.notices[n] = struct{}{}
	s.calls++
	if !s.busy {
		s.busy = true
		s.work.Go(s.run)
	}
}

// run sends until there is nothing new.
func (s *sender) run() {
	for failed := 0; ; {
		notices, calls := s.take()
		if len(notices) == 0 {
			return
		}
		pause := sendEvery
		if calls > sendMany {
			pause = sendBusy
		}
		err := s.notify(s.ending, notices)
		switch {
		case err == nil:
			failed = 0
		case errors.Is(err, dblock.ErrUnsupported):
			s.stop()
		default:
			if failed++; failed < sendTries && !s.isClosing() {
				s.requeue(notices)
				break
			}
			s.trouble("telling other processes of jobs", err)
			failed = 0
		}
		timer := time.NewTimer(pause << (2 * failed))
		select {
		case <-timer.C:
		case <-s.closing:
		}
		timer.Stop()
	}
}

// take returns all that is to be sent. If that is nothing, the next notification begins again.
func (s *sender) take() (notices []driver.Notification, calls int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = len(s.notices) > 0
	for n := range s.notices {
		notices = append(notices, n)
	}
	clear(s.notices)
	calls, s.calls = s.calls, 0
	return notices, calls
}

func (s *sender) requeue(notices []driver.Notification) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range notices {
		s.notices[n] = struct{}{}
	}
}

// stop sends nothing any more, except what is waiting.
func (s *sender) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.off = true
}

func (s *sender) isClosing() bool {
	select {
	case <-s.closing:
		return true
	default:
		return false
	}
}

// close sends what is waiting, while ctx lives.
func (s *sender) close(ctx context.Context) {
	s.stop()
	close(s.closing)
	defer context.AfterFunc(ctx, s.end)()
	s.work.Wait()
	s.end()
}
