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
	// tellEvery is how often this process tells others of something at most. It is what a job may wait for an idle worker of another
	// process, as the first one of a burst is told of at once, and the others with the next telling.
	tellEvery = time.Millisecond

	// tellBusy is the same once there was more than so much to tell of meanwhile: then jobs are many, and workers hardly idle.
	tellBusy = 5 * time.Millisecond
	tellMany = 4

	// tellTries is how often it tries to; each pause is four times as long as the one before. Then the others' polls have to do.
	tellTries = 5
)

// teller tells other processes of what they should look at, behind the callers' backs, at most once in so long. What it is given while it
// waits is told after that: by then its transaction has committed, and so none is told of too early.
type teller struct {
	send    func(context.Context, []driver.Notification) error
	trouble func(doing string, err error)

	ending context.Context // of all that it sends
	end    context.CancelFunc

	mu      sync.Mutex
	news    map[driver.Notification]struct{}
	calls   int           // how often there was something since it was taken
	busy    bool          // tells, or waits until it may again
	off     bool          // there is nobody who could be told
	closing chan struct{} // closed: it waits no more
	work    sync.WaitGroup
}

func newTeller(send func(context.Context, []driver.Notification) error, trouble func(string, error)) *teller {
	t := &teller{send: send, trouble: trouble, news: make(map[driver.Notification]struct{}), closing: make(chan struct{})}
	t.ending, t.end = context.WithCancel(context.Background())
	return t
}

// tell returns at once.
func (t *teller) tell(n driver.Notification) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.off {
		return
	}
	t.news[n] = struct{}{}
	t.calls++
	if !t.busy {
		t.busy = true
		t.work.Go(t.run)
	}
}

// run tells until there is nothing new.
func (t *teller) run() {
	for failed := 0; ; {
		news, calls := t.take()
		if len(news) == 0 {
			return
		}
		pause := tellEvery
		if calls > tellMany {
			pause = tellBusy
		}
		err := t.send(t.ending, news)
		switch {
		case err == nil:
			failed = 0
		case errors.Is(err, dblock.ErrUnsupported):
			t.stop()
		default:
			if failed++; failed < tellTries && !t.isClosing() {
				t.putBack(news)
				break
			}
			t.trouble("telling other processes of jobs", err)
			failed = 0
		}
		timer := time.NewTimer(pause << (2 * failed))
		select {
		case <-timer.C:
		case <-t.closing:
		}
		timer.Stop()
	}
}

// take is all there is to be told; nothing: whoever has something next begins again.
func (t *teller) take() (news []driver.Notification, calls int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.busy = len(t.news) > 0
	for n := range t.news {
		news = append(news, n)
	}
	clear(t.news)
	calls, t.calls = t.calls, 0
	return news, calls
}

func (t *teller) putBack(news []driver.Notification) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range news {
		t.news[n] = struct{}{}
	}
}

// stop has nothing told any more, but for what is waiting.
func (t *teller) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.off = true
}

func (t *teller) isClosing() bool {
	select {
	case <-t.closing:
		return true
	default:
		return false
	}
}

// close tells what is waiting, while ctx lives.
func (t *teller) close(ctx context.Context) {
	t.stop()
	close(t.closing)
	defer context.AfterFunc(ctx, t.end)()
	t.work.Wait()
	t.end()
}
