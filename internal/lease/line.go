package lease

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/root"
)

// line is who of this process wants one key: the first one asks the database, or holds it for itself, and the others
// stand behind, in the order of their arrival. So each process asks for a key once at a time, however many want it.
// Readers, and those who want permits, stand in it only where somebody else does, and leave it with what they got.
type line struct {
	places []*place // the first one's turn it is
	seen   *dblock.HeldError
	since  time.Time // when this process got the key from another one, or asked last whether others wait
	turn   int       // after how many hand-overs it asks; 0: it has not handed over yet. left is what is left of them
	left   int
	after  bool // it was given back for another process's sake, and whoever is next stands back
}

// place is one call in a line.
type place struct {
	line    string // see lineOf
	request root.Request
	waits   bool
	turn    chan struct{} // closed when its turn has come; what follows does not change any more then. Nil: it always had
	given   *given        // what the one before has handed over
	asked   bool          // the hold before is being handed over to it, or the server has not replied to that
	pending *given        // what was granted to this one, and is to be held when the readers have gone
	taken   bool          // by a hold, which leaves it when it ends
	begun   bool          // its turn has come

	standsBack bool // readers let it go first; only its call uses it
}

// lineOf names the line for a request. Semaphores and locks that are called the same have nothing to do with each other.
func lineOf(r root.Request) string {
	if r.Mode == dblock.ModePermit {
		return "\x00" + r.Key // no key begins so
	}
	return r.Key
}

// enter takes the last place of a line. Who does not wait is refused where somebody is before it.
func (l *Locker) enter(r root.Request, wait bool) (*place, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errNotSent()
	}
	name := lineOf(r)
	of := l.lines[name]
	if of == nil {
		of = &line{}
		l.lines[name] = of
	}
	if len(of.places) > 0 && !wait {
		return nil, of.held(r.Key)
	}
	p := &place{line: name, request: r, waits: wait}
	if p.begun = len(of.places) == 0; !p.begun {
		p.turn = make(chan struct{})
	}
	of.places = append(of.places, p)
	return p, nil
}

func errNotSent() error { return fmt.Errorf("%w: nothing was sent", dblock.ErrClosed) }

// held names the holder of the key: another caller of this process, or else the holder that was seen last. l.mu is held.
func (of *line) held(key string) *dblock.HeldError {
	switch {
	case of == nil:
		return &dblock.HeldError{Key: key}
	case len(of.places) > 0 && of.places[0].taken:
		return &dblock.HeldError{Key: key, Holder: dblock.Holder{Label: "another caller of this process"}}
	case of.seen == nil:
		return &dblock.HeldError{Key: key}
	}
	seen := *of.seen
	return &seen
}

// stands tells who has a key that others of this process stand in line for; nil: nobody does.
func (l *Locker) stands(r root.Request) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.lines[lineOf(r)]
	switch {
	case l.closed:
		return errNotSent()
	case of == nil:
		return nil
	}
	return of.held(r.Key)
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
	first, asked := l.lines[p.line].places[0] == p, p.asked
	l.mu.Unlock()
	switch {
	case first: // it came at the same moment, and what was handed over with it is ours
		return nil
	case asked:
		return errHandedOver(p)
	case ctx.Err() == nil:
		return errNotSent()
	}
	return ended(l.lastSeen(p.request), context.Cause(ctx))
}

func errHandedOver(p *place) error {
	return fmt.Errorf("%w: the wait for the lock of %q ended while it was handed over; it goes on to the next one",
		dblock.ErrOutcomeUnknown, p.request.Key)
}

// wasAsked reports that a hand-over to p is under way, or has no reply.
func (l *Locker) wasAsked(p *place) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return p.asked
}

func (l *Locker) lastSeen(r root.Request) *dblock.HeldError {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines[lineOf(r)].held(r.Key)
}

// see notes who has a key, for those who stand in line and never get to ask.
func (l *Locker) see(r root.Request, held *dblock.HeldError) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if of := l.lines[lineOf(r)]; of != nil {
		of.seen = held
	}
}

// leave gives up a place, unless a hold has taken it.
func (l *Locker) leave(p *place) {
	l.admitReaders(p)
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.taken {
		return
	}
	got := cmp.Or(p.given, p.pending)
	switch {
	case got != nil && !l.closed: // it came too late: it goes on to the next one
		l.tasks.Go(func() {
			_, _ = l.giveBack(l.ending, got.life, got.back())
			l.waits.ring(p.request.Key)
			l.mu.Lock()
			defer l.mu.Unlock()
			l.remove(p)
		})
	default:
		if got != nil {
			l.doubt(got.life, got.back())
		}
		l.remove(p)
	}
}

// remove takes p out of its line, and gives the next one its turn; l.mu is held.
func (l *Locker) remove(p *place) {
	of := l.lines[p.line]
	i := slices.Index(of.places, p)
	of.places = slices.Delete(of.places, i, i+1)
	switch {
	case len(of.places) == 0:
		delete(l.lines, p.line)
	case i == 0:
		of.places[0].begin()
	}
}

// begin gives p its turn.
func (p *place) begin() {
	if !p.begun {
		p.begun = true
		close(p.turn)
	}
}

// follow gives the readers who stand behind one that was let in their turn, too: nothing keeps them out.
func (l *Locker) follow(p *place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.lines[p.line]
	for _, next := range of.places[slices.Index(of.places, p)+1:] {
		if next.request.Mode != dblock.ModeShared {
			return
		}
		next.begin()
	}
}
