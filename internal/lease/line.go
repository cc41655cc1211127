package lease

import (
	"context"
	"fmt"
	"slices"

	"github.com/dblock-go/dblock"
)

// line is who of this process wants one key: the first one asks the database, or holds it, and the
// others stand behind, in the order of their arrival. So each process asks for a key once at a time,
// however many want it.
type line struct {
	places []*place // the first one's turn it is
	seen   *dblock.HeldError
}

// place is one call in a line.
type place struct {
	key   string
	turn  chan struct{} // closed when it is the first
	taken bool          // by a hold, which leaves it when it ends
}

// enter takes the last place of a line. Who does not wait is refused where somebody is before it.
func (l *Locker) enter(key string, wait bool) (*place, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, fmt.Errorf("%w: nothing was sent", dblock.ErrClosed)
	}
	of := l.lines[key]
	if of == nil {
		of = &line{}
		l.lines[key] = of
	}
	if len(of.places) > 0 && !wait {
		if of.seen != nil {
			seen := *of.seen
			return nil, &seen
		}
		return nil, &dblock.HeldError{Key: key}
	}
	p := &place{key: key, turn: make(chan struct{})}
	of.places = append(of.places, p)
	if len(of.places) == 1 {
		close(p.turn)
	}
	return p, nil
}

// turn waits until p is the first of its line.
func (l *Locker) turn(ctx context.Context, p *place) error {
	select {
	case <-p.turn:
		return nil
	case <-ctx.Done():
		return ended(l.lastSeen(p.key), context.Cause(ctx))
	case <-l.ending.Done():
		return fmt.Errorf("%w: nothing was sent", dblock.ErrClosed)
	}
}

func (l *Locker) lastSeen(key string) *dblock.HeldError {
	l.mu.Lock()
	defer l.mu.Unlock()
	if of := l.lines[key]; of != nil && of.seen != nil {
		return of.seen
	}
	return &dblock.HeldError{Key: key}
}

// see notes who has a key, for those who stand in line and never get to ask.
func (l *Locker) see(key string, held *dblock.HeldError) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if of := l.lines[key]; of != nil {
		of.seen = held
	}
}

// leave gives up a place, unless a hold has taken it.
func (l *Locker) leave(p *place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !p.taken {
		l.remove(p)
	}
}

// remove takes p out of its line, and gives the next one its turn; l.mu is held.
func (l *Locker) remove(p *place) {
	of := l.lines[p.key]
	i := slices.Index(of.places, p)
	of.places = slices.Delete(of.places, i, i+1)
	switch {
	case len(of.places) == 0:
		delete(l.lines, p.key)
	case i == 0:
		close(of.places[0].turn)
	}
}
