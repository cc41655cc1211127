package lease

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/member"
)

// Waits is which keys a process waits for: the database knows of each once, and what is heard of it
// rings the bells of all who wait. Bells are a hint: the poll is the truth.
type Waits struct {
	engine Engine
	member *member.Member
	clock  clock.Clock
	ending context.Context
	end    context.CancelFunc
	tasks  sync.WaitGroup

	mu     sync.Mutex
	keys   map[string]*waited
	hears  bool // notifications come
	closed bool
}

// waited is a key that somebody of this process waits for.
type waited struct {
	bells map[*bell]struct{}
	turn  chan struct{} // holds one: whose turn it is to tell the database; a channel, as a wait for it can end
	id    member.ID     // under which the database knows of it; zero: it does not
}

// bell is rung for one key; one call at a time waits for it.
type bell struct {
	key   string
	rung  chan struct{} // holds one
	stale time.Time     // when the database is to be told anew
}

// waitsFor is for how long the database takes it that a process waits; it is told anew when half of it
// is over.
const waitsFor = 2 * time.Minute

func newWaits(e Engine, m *member.Member, c clock.Clock) *Waits {
	w := &Waits{engine: e, member: m, clock: c, keys: make(map[string]*waited)}
	w.ending, w.end = context.WithCancel(context.Background())
	w.tasks.Go(w.listen)
	return w
}

func (w *Waits) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.end()
	w.tasks.Wait()
}

// start tells the database that this process waits for a key, until stop. The bell is rung for whatever
// is given back from then on.
func (w *Waits) start(ctx context.Context, key string) (*bell, error) {
	b := &bell{key: key, rung: make(chan struct{}, 1), stale: w.clock.Now().Add(waitsFor / 2)}
	w.mu.Lock()
	of := w.keys[key]
	if of == nil {
		of = &waited{bells: make(map[*bell]struct{}), turn: make(chan struct{}, 1)}
		w.keys[key] = of
	}
	of.bells[b] = struct{}{}
	w.mu.Unlock()
	if err := w.tell(ctx, key, of); err != nil {
		w.stop(b)
		return nil, err
	}
	return b, nil
}

func (w *Waits) tell(ctx context.Context, key string, of *waited) error {
	life, err := w.member.Life(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, w.member.TTL()/2)
	defer cancel()
	select {
	case of.turn <- struct{}{}:
		defer func() { <-of.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	of.id = life.ID
	return w.engine.Wait(ctx, key, life.ID, waitsFor)
}

// stop ends what start began. The database is told in the background: whoever waited has the lock now,
// and is not to wait for this.
func (w *Waits) stop(b *bell) {
	w.mu.Lock()
	defer w.mu.Unlock()
	of := w.keys[b.key]
	delete(of.bells, b)
	if len(of.bells) == 0 && !w.closed { // else the process leaves, and what it waited for counts no more
		w.tasks.Go(func() { w.untell(b.key, of) })
	}
}

// untell takes back what the database was told, unless somebody waits again by now.
func (w *Waits) untell(key string, of *waited) {
	of.turn <- struct{}{} // each turn is bounded
	defer func() { <-of.turn }()
	if !w.unwanted(key, of, of.id == member.ID{}) || of.id == (member.ID{}) {
		return
	}
	ctx, cancel := context.WithTimeout(w.ending, w.member.TTL()/2)
	defer cancel()
	_ = w.engine.StopWaiting(ctx, key, of.id) // else it ends by itself
	of.id = member.ID{}
	w.unwanted(key, of, true)
}

// unwanted tells whether nobody waits for a key, and may forget it then.
func (w *Waits) unwanted(key string, of *waited, forget bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(of.bells) > 0 {
		return false
	}
	if forget && w.keys[key] == of {
		delete(w.keys, key)
	}
	return true
}

// ring is called for each key that was given back while somebody waited.
func (w *Waits) ring(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ringLocked(w.keys[key])
}

func (w *Waits) ringLocked(of *waited) {
	if of == nil {
		return
	}
	for b := range of.bells {
		select {
		case b.rung <- struct{}{}:
		default:
		}
	}
}

// heard notes that notifications come from now on. Whatever was missed before is asked for again.
func (w *Waits) heard() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hears = true
	for _, of := range w.keys {
		w.ringLocked(of)
	}
}

// hearing tells whether notifications come.
func (w *Waits) hearing() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hears
}

// others tells whether somebody else waits for a key: another Locker of this process, or another process.
func (w *Waits) others(ctx context.Context, key string, life *member.Life) bool {
	w.mu.Lock()
	near := w.keys[key] != nil && len(w.keys[key].bells) > 0
	w.mu.Unlock()
	if near {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, w.member.TTL()/2)
	defer cancel()
	far, err := w.engine.OthersWait(ctx, key, life.ID)
	return far || err != nil // where it can't be told, they are not left out
}

// listen hears what other processes give back, until the process leaves.
func (w *Waits) listen() {
	for n := 0; w.ending.Err() == nil; n++ {
		err := w.engine.Listen(w.ending, func() { n = 0; w.heard() }, w.ring)
		w.mu.Lock()
		w.hears = false
		w.mu.Unlock()
		if errors.Is(err, dblock.ErrUnsupported) {
			return
		}
		due := make(chan struct{})
		timer := w.clock.AfterFunc(rand.N(time.Second<<min(n, 5)), func() { close(due) })
		select {
		case <-due:
		case <-w.ending.Done():
		}
		timer.Stop()
	}
}
