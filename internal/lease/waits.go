package lease

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/batch"
	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/internal/schema"
)

// Waits are the keys for which calls of a process wait. The database knows each key once. A
// notification of a key wakes all its calls. Notifications are a hint: a call that polls always
// asks the database.
type Waits struct {
	driver Driver
	member *member.Member
	clock  clock.Clock
	notes  *batch.Queue[note, struct{}]
	pace   pace.Pace
	ending context.Context
	end    context.CancelFunc
	tasks  sync.WaitGroup

	mu       sync.Mutex
	keys     map[string]*waited
	topics   map[string]string      // the keys, by their topics
	fair     map[string]*fairWaiter // those with a ticket, by their handles
	calls    chan struct{}          // holds one: a key is waited for that was not before
	notified bool                   // notifications come

	closed bool

	watching atomic.Bool // the server watches for this process when it waits; presumably for other processes, too
}

// waited is a key for which calls of this process wait.
type waited struct {
	subscriptions map[*subscription]struct{}
	announced     member.ID // under which the database knows of it; zero: it does not

	since   time.Time // when the first wake-up was registered
	watched bool      // the server looks at it
	seen    int64     // the token under which it was seen free, and all calls were woken
}

// note is a message to the database: a member waits for a key or, without one, no call waits for it
// any more. Notes of one key are sent in their order.
type note struct {
	key string
	id  member.ID
}

// subscription is for one key. One call at a time waits on it.
type subscription struct {
	key   string
	woken chan struct{}       // holds one
	began time.Time           // when the database knew of it; only its call reads it
	stale time.Time           // when the database has to be informed again
	inc   *member.Incarnation // under which the database knows of it
}

// waitsFor is how long the database considers a process waiting after a note. The process sends
// another one after half of that time.
const waitsFor = 2 * time.Minute

func newWaits(d Driver, m *member.Member, c clock.Clock) *Waits {
	w := &Waits{
		driver: d, member: m, clock: c, keys: make(map[string]*waited), topics: make(map[string]string), calls: make(chan struct{}, 1),
	}
	w.notes = batch.New(batch.Options[note, struct{}]{
		Late: func(note, batch.Result[struct{}]) {}, // it outlives its caller: else it could come after the end of the wait
		Run:  w.announce, Key: func(n note) string { return n.key }, Ends: func(n note) bool { return n.id == member.ID{} },
		MaxInFlight: inFlight, Patience: patience,
	})
	w.ending, w.end = context.WithCancel(context.Background())
	if watcher, ok := d.(Watcher); ok {
		w.tasks.Go(func() { w.watch(watcher) })
	} else {
		w.tasks.Go(w.listen)
	}
	return w
}

func (w *Waits) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.end()
	w.tasks.Wait()
}

// start informs the database that this process waits for a key, until stop. The subscription is
// woken for each release from then on.
func (w *Waits) start(ctx context.Context, key string) (*subscription, error) {
	inc, err := w.member.Current(ctx)
	if err != nil {
		return nil, err
	}
	b := &subscription{key: key, woken: make(chan struct{}, 1), stale: w.clock.Now().Add(waitsFor / 2), inc: inc}
	w.mu.Lock()
	of := w.keys[key]
	if of == nil {
		of = &waited{subscriptions: make(map[*subscription]struct{})}
		w.keys[key] = of
		w.topics[schema.Topic(key)] = key
	}
	if len(of.subscriptions) == 0 {
		of.since, of.watched = w.clock.Now(), false
		signal(w.calls)
	}
	of.subscriptions[b] = struct{}{}
	w.mu.Unlock()
	if _, err := w.notes.Do(ctx, note{key, inc.ID}); err != nil {
		w.stop(b)
		return nil, err
	}
	b.began = w.clock.Now()
	return b, nil
}

// known reports whether the database knows that a subscription waits. It forgets that in time, and
// with the member.
func (w *Waits) known(b *subscription) bool {
	return b != nil && !clock.Past(w.clock.Now(), b.stale) && b.inc.Alive()
}

// stop ends what start began. The database is informed in the background: the call has the lock by
// now, and does not wait for this.
func (w *Waits) stop(b *subscription) {
	w.mu.Lock()
	defer w.mu.Unlock()
	of := w.keys[b.key]
	delete(of.subscriptions, b)
	if len(of.subscriptions) == 0 && !w.closed { // else the process leaves, and what it waited for counts no more
		w.tasks.Go(func() { _, _ = w.notes.Do(w.ending, note{key: b.key}) }) // else it ends by itself
	}
}

// announce is one statement of the queue for each member, and one for the keys for which no call
// waits any more.
func (w *Waits) announce(ctx context.Context, notes []note, _ bool) ([]batch.Result[struct{}], error) {
	ctx, cancel := context.WithTimeout(ctx, statementBound(w.member))
	defer cancel()
	waits, ends := w.tidy(notes)
	for id, keys := range waits {
		if err := w.driver.Wait(ctx, keys, id, waitsFor); err != nil {
			return nil, err
		}
	}
	for id, keys := range ends {
		if err := w.driver.Wait(ctx, keys, id, 0); err != nil {
			return nil, err
		}
	}
	return make([]batch.Result[struct{}], len(notes)), nil
}

// tidy returns the notes to send, by member. The last note of each key counts. An end counts only
// if no call waits again by now. Keys for which no call waits are forgotten.
func (w *Waits) tidy(notes []note) (waits, ends map[member.ID][]string) {
	last := make(map[string]member.ID, len(notes))
	for _, n := range notes {
		last[n.key] = n.id
	}
	waits, ends = make(map[member.ID][]string), make(map[member.ID][]string)
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, id := range last {
		of := w.keys[key]
		switch {
		case of == nil:
		case id != member.ID{}:
			waits[id] = append(waits[id], key)
			of.announced = id
		case len(of.subscriptions) == 0:
			if of.announced != (member.ID{}) {
				ends[of.announced] = append(ends[of.announced], key)
			}
			delete(w.keys, key)
			delete(w.topics, schema.Topic(key))
		}
	}
	return waits, ends
}

// wake is called for each key that was released while a caller waited. It is given the key or its
// topic.
func (w *Waits) wake(key string) {
	if w.wakeTicket(key) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	of := w.keys[key]
	if of == nil {
		of = w.keys[w.topics[key]]
	}
	w.wakeAll(of)
}

func (w *Waits) wakeAll(of *waited) {
	if of == nil {
		return
	}
	for b := range of.subscriptions {
		signal(b.woken)
	}
}

// signal is noted once in a channel that holds one, however often it comes.
func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// listening notes that notifications come from now on. Whatever was missed before is asked for
// again.
func (w *Waits) listening() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notified = true
	for _, of := range w.keys {
		w.wakeAll(of)
	}
}

// isNotified reports whether notifications come.
func (w *Waits) isNotified() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.notified
}

// watches reports whether processes learn of releases soon although no notification comes.
func (w *Waits) watches() bool { return w.watching.Load() }

// isNotifiedOf reports whether this process learns of a release of that key.
func (w *Waits) isNotifiedOf(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	of := w.keys[key]
	return w.notified || of != nil && of.watched
}

// others reports whether another Locker of this process, or another process, waits for a key.
func (w *Waits) others(ctx context.Context, key string, inc *member.Incarnation) bool {
	w.mu.Lock()
	near := w.keys[key] != nil && len(w.keys[key].subscriptions) > 0
	w.mu.Unlock()
	if near {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, statementBound(w.member))
	defer cancel()
	far, err := w.driver.OthersWait(ctx, key, inc.ID)
	return far || err != nil // if it is unknown, others are considered waiting
}

// listen receives the notifications of releases until the process leaves.
func (w *Waits) listen() {
	for n := 0; w.ending.Err() == nil; n++ {
		err := w.driver.Listen(w.ending, func() { n = 0; w.listening() }, w.wake)
		w.mu.Lock()
		w.notified = false
		w.mu.Unlock()
		if errors.Is(err, dblock.ErrUnsupported) {
			return
		}
		w.backOff(n)
	}
}

// backOff waits before the n-th attempt: 1 s at most at first, 32 s in the end.
func (w *Waits) backOff(n int) {
	due := make(chan struct{})
	timer := w.clock.AfterFunc(clock.Draw(w.clock, time.Second<<min(n, 5)), func() { close(due) })
	defer timer.Stop()
	select {
	case <-due:
	case <-w.ending.Done():
	}
}
