package queue

import (
	"slices"
	"sync"
	"time"
)

// line has the jobs of a worker that were claimed and have not begun, in their order.
type line struct {
	mu     sync.Mutex
	more   sync.Cond // a job has come to ready, or the line is closed
	ready  []*task   // the first came first
	begun  int       // how many handlers have taken
	unread []*task   // their payloads have yet to be read
	bytes  int       // of those payloads
	closed bool

	come chan struct{} // a job has come to unread
}

func newLine() *line {
	l := &line{come: make(chan struct{}, 1)}
	l.more.L = &l.mu
	return l
}

// add puts jobs at the end.
func (l *line) add(tasks []task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range tasks {
		t := &tasks[i]
		if t.Unread {
			l.unread = append(l.unread, t)
			l.bytes += t.Bytes
			continue
		}
		l.comesReady(t)
	}
	l.comes()
}

// comesReady puts a job where handlers take it; l.mu is held.
func (l *line) comesReady(t *task) {
	t.came = time.Now()
	l.ready = append(l.ready, t)
	l.more.Signal()
}

// comes has the reader look; l.mu is held.
func (l *line) comes() {
	if len(l.unread) == 0 {
		return
	}
	select {
	case l.come <- struct{}{}:
	default:
	}
}

// next waits for a job; nil: the line is closed, and empty.
func (l *line) next() (t *task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.ready) == 0 {
		if l.closed {
			return nil
		}
		l.more.Wait()
	}
	t, l.ready[0] = l.ready[0], nil
	l.ready = l.ready[1:]
	l.begun++
	return t
}

// taken is how many jobs handlers have taken.
func (l *line) taken() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.begun
}

// stranded takes off the jobs that came before then, but for the first ones, so many.
func (l *line) stranded(then time.Time, keep int) (tasks []*task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for n < len(l.ready) && l.ready[n].came.Before(then) {
		n++
	}
	if n <= keep {
		return nil
	}
	tasks = slices.Clone(l.ready[keep:n])
	l.ready = slices.Delete(l.ready, keep, n)
	return tasks
}

// piece takes the first jobs whose payloads are not read yet: at least one, and more while their payloads fit into most bytes.
func (l *line) piece(most int) (tasks []*task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, bytes := 0, 0
	for n < len(l.unread) && (n == 0 || bytes+l.unread[n].Bytes <= most) {
		bytes += l.unread[n].Bytes
		n++
	}
	tasks, l.unread = l.unread[:n:n], l.unread[n:]
	l.bytes -= bytes
	return tasks
}

// unpiece puts jobs back to the front of those whose payloads are not read yet.
func (l *line) unpiece(tasks []*task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unread = append(tasks[:len(tasks):len(tasks)], l.unread...)
	for _, t := range tasks {
		l.bytes += t.Bytes
	}
	l.comes()
}

// filled puts jobs that were read where handlers take them; false: the line is closed.
func (l *line) filled(tasks []*task) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	for _, t := range tasks {
		l.comesReady(t)
	}
	return true
}

// unreadBytes is how much has yet to be read.
func (l *line) unreadBytes() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes
}

// takeBack takes all jobs off.
func (l *line) takeBack() (tasks []*task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	tasks = append(l.ready, l.unread...)
	l.ready, l.unread, l.bytes = nil, nil, 0
	return tasks
}

// close has next return nil once the ready jobs are taken.
func (l *line) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.more.Broadcast()
}
