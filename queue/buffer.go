package queue

import (
	"slices"
	"sync"
	"time"
)

// buffer has the jobs of a worker that were claimed and have not begun, in their order.
type buffer struct {
	mu     sync.Mutex
	more   sync.Cond     // a job has come to ready, or the buffer is closed
	ready  []*claimedJob // the first came first
	begun  int           // how many handlers have taken
	looked time.Time     // when strand did
	taken  int           // how many handlers had taken by then
	unread []*claimedJob // their payloads have yet to be read
	bytes  int           // of those payloads
	closed bool

	come chan struct{} // a job has come to unread
}

func newBuffer() *buffer {
	b := &buffer{come: make(chan struct{}, 1)}
	b.more.L = &b.mu
	return b
}

// add puts jobs at the end.
func (b *buffer) add(jobs []claimedJob) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range jobs {
		j := &jobs[i]
		if j.Unread {
			b.unread = append(b.unread, j)
			b.bytes += j.Bytes
			continue
		}
		b.comesReady(j)
	}
	b.comes()
}

// comesReady puts a job where handlers take it; b.mu is held.
func (b *buffer) comesReady(j *claimedJob) {
	j.came = time.Now()
	b.ready = append(b.ready, j)
	b.more.Signal()
}

// comes has the reader look; b.mu is held.
func (b *buffer) comes() {
	if len(b.unread) == 0 {
		return
	}
	select {
	case b.come <- struct{}{}:
	default:
	}
}

// next waits for a job; nil: the buffer is closed, and empty.
func (b *buffer) next() (j *claimedJob) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.ready) == 0 {
		if b.closed {
			return nil
		}
		b.more.Wait()
	}
	j, b.ready[0] = b.ready[0], nil
	b.ready = b.ready[1:]
	b.begun++
	return j
}

// nextCheck is after how long strand is to look.
func (b *buffer) nextCheck(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(b.looked.Add(strandCheck).Sub(now), 0)
}

// strand takes off the jobs that have waited for handlers for too long, but for as many as handlers
// are about to begin. It does nothing if it has not looked for a while: if this process stood
// still, its handlers did, too.
func (b *buffer) strand(now time.Time) (jobs []*claimedJob) {
	b.mu.Lock()
	defer b.mu.Unlock()
	late, keep := now.Sub(b.looked) > 2*strandCheck, 2*(b.begun-b.taken)
	b.looked, b.taken = now, b.begun
	n, then := 0, now.Add(-strandAfter)
	for n < len(b.ready) && b.ready[n].came.Before(then) {
		n++
	}
	if late || n <= keep {
		return nil
	}
	jobs = slices.Clone(b.ready[keep:n])
	b.ready = slices.Delete(b.ready, keep, n)
	return jobs
}

// piece takes the first jobs whose payloads are not read yet: at least one, and more while their
// payloads fit into most bytes.
func (b *buffer) piece(most int) (jobs []*claimedJob) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, bytes := 0, 0
	for n < len(b.unread) && (n == 0 || bytes+b.unread[n].Bytes <= most) {
		bytes += b.unread[n].Bytes
		n++
	}
	jobs, b.unread = b.unread[:n:n], b.unread[n:]
	b.bytes -= bytes
	return jobs
}

// unpiece puts jobs back to the front of those whose payloads are not read yet.
func (b *buffer) unpiece(jobs []*claimedJob) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unread = append(jobs[:len(jobs):len(jobs)], b.unread...)
	for _, j := range jobs {
		b.bytes += j.Bytes
	}
	b.comes()
}

// filled puts jobs that were read where handlers take them; false: the buffer is closed.
func (b *buffer) filled(jobs []*claimedJob) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	for _, j := range jobs {
		b.comesReady(j)
	}
	return true
}

// unreadBytes is how much has yet to be read.
func (b *buffer) unreadBytes() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes
}

// drain takes all jobs off.
func (b *buffer) drain() (jobs []*claimedJob) {
	b.mu.Lock()
	defer b.mu.Unlock()
	jobs = append(b.ready, b.unread...)
	b.ready, b.unread, b.bytes = nil, nil, 0
	return jobs
}

// close has next return nil once the ready jobs are taken.
func (b *buffer) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.more.Broadcast()
}
