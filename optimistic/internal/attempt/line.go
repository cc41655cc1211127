package attempt

import (
	"context"
	"sync"
	"sync/atomic"
)

// lines are those of the process, by their rows. Where there is none, nothing is looked for.
var lines = struct {
	n  atomic.Int64
	mu sync.Mutex
	of map[any]*line
}{of: make(map[any]*line)}

// line is who of one process wants to write one row that has been written meanwhile. They go one after the other, as they came: of
// two who try at once one fails, and its UPDATE takes the row's lock, and on Postgres a flush, to find that out.
type line struct {
	people int           // under the mutex of lines
	front  chan struct{} // of one; those who wait for a channel are served in their order
}

// place is that of one caller, who has none before it stands in line.
type place struct {
	row     any // nil: there is no line
	line    *line
	atFront bool
}

// turn waits for the caller's turn, which is at once for a first attempt where there is no line. Once it has come it stays until leave.
// It is false where ctx has ended before.
func (p *place) turn(ctx context.Context, attempt int) bool {
	if p.row == nil || p.atFront || attempt == 1 && lines.n.Load() == 0 || !p.join(attempt > 1) {
		return true
	}
	select {
	case p.line.front <- struct{}{}:
		p.atFront = true
		return true
	case <-ctx.Done():
		return false
	}
}

// join stands in line, if there is one, or must be.
func (p *place) join(must bool) bool {
	lines.mu.Lock()
	defer lines.mu.Unlock()
	l := lines.of[p.row]
	switch {
	case l == nil && !must:
		return false
	case l == nil:
		l = &line{front: make(chan struct{}, 1)}
		lines.of[p.row] = l
		lines.n.Add(1)
	}
	l.people++
	p.line = l
	return true
}

func (p *place) leave() {
	if p.line == nil {
		return
	}
	if p.atFront {
		<-p.line.front
	}
	lines.mu.Lock()
	defer lines.mu.Unlock()
	if p.line.people--; p.line.people == 0 {
		delete(lines.of, p.row)
		lines.n.Add(-1)
	}
}
