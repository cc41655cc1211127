package queue

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

const (
	// sendEvery is how often this process tells others of something at most. It is what a job may
	// wait for an idle worker of another process, as the first one of a burst is told of at once,
	// and the others with the next telling.
	sendEvery = time.Millisecond

	// sendBusy is the same once there was more than so much to tell of meanwhile: then jobs are
	// many, and workers hardly idle.
	sendBusy = 5 * time.Millisecond
	sendMany = 4

	// sendTries is how often it tries to; each pause is four times as long as the one before. Then
	// the others' polls have to do.
	sendTries = 5
)

// sender tells other processes of what they should look at, behind the callers' backs, at most once
// in so long. What it is given while it waits is told after that: by then its transaction has
// committed, and so none is told of too early.
type sender struct {
	notify  func(context.Context, []driver.Notification) error
	trouble func(doing string, err error)

	ending context.Context // of all that it sends
	end    context.CancelFunc

	mu      sync.Mutex
	notices map[driver.Notification]struct{}
	calls   int           // how often there was something since it was taken
	busy    bool          // tells, or waits until it may again
	off     bool          // there is nobody who could be told
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

// run tells until there is nothing new.
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
				s.putBack(notices)
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

// take is all there is to be told; nothing: whoever has something next begins again.
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

func (s *sender) putBack(notices []driver.Notification) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range notices {
		s.notices[n] = struct{}{}
	}
}

// stop has nothing told any more, but for what is waiting.
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

// close tells what is waiting, while ctx lives.
func (s *sender) close(ctx context.Context) {
	s.stop()
	close(s.closing)
	defer context.AfterFunc(ctx, s.end)()
	s.work.Wait()
	s.end()
}
