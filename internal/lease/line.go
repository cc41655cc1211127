package lease

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dblock-go/dblock"
)

// line is who of this process wants one key: the first one asks the database, or holds it, and the
// others stand behind, in the order of their arrival. So each process asks for a key once at a time,
// however many want it.
type line struct {
	places []*place // the first one's turn it is
	seen   *dblock.HeldError
	since  time.Time // when this process got the key from another one
	after  bool      // it was given back for another process's sake, and whoever is next stands back
}

// place is one call in a line.
type place struct {
	key     string
	request dblock.Request
	turn    chan struct{} // closed when it is the first; what follows does not change any more then. Nil: it always was
	given   *given        // what the one before has handed over
	asked   bool          // the one before is about to hand over
	taken   bool          // by a hold, which leaves it when it ends
}

// enter takes the last place of a line. Who does not wait is refused where somebody is before it.
func (l *Locker) enter(r dblock.Request, wait bool) (*place, error) {
	key := r.Key
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
	p := &place{key: key, request: r}
	if len(of.places) > 0 {
		p.turn = make(chan struct{})
	}
	of.places = append(of.places, p)
	return p, nil
}

// turn waits until p is the first of its line.
func (l *Locker) turn(ctx context.Context, p *place) error {
	if p.turn == nil {
		return nil
	}
	select {
	case <-p.turn:
		return nil
	case <-ctx.Done():
	case <-l.ending.Done():
	}
	l.mu.Lock()
	first, asked := l.lines[p.key].places[0] == p, p.asked
	l.mu.Unlock()
	switch {
	case first: // it came at the same moment, and what was handed over with it is ours
		return nil
	case asked:
		return fmt.Errorf("%w: the wait for the lock of %q ended while it was handed over; it goes on to the next one",
			dblock.ErrOutcomeUnknown, p.key)
	case ctx.Err() == nil:
		return fmt.Errorf("%w: nothing was sent", dblock.ErrClosed)
	}
	return ended(l.lastSeen(p.key), context.Cause(ctx))
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
	switch {
	case p.taken:
	case p.given != nil && !l.closed: // it came too late: it goes on to the next one
		l.tasks.Go(func() {
			l.giveBack(l.ending, p.given.back(), p.given.life)
			l.mu.Lock()
			defer l.mu.Unlock()
			l.remove(p)
		})
	default:
		if p.given != nil {
			l.doubt(p.given.life, p.given.back())
		}
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
