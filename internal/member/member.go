package member

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/callback"
	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/ctxerr"
	"github.com/dblock-go/dblock/internal/root"
)

// Options of a Member.
type Options struct {
	TTL      time.Duration // without a heartbeat for so long it is dead; default 10 s, 1 s to a day
	Margin   time.Duration // by how much earlier its own process believes so; default a tenth of TTL
	Label    string
	Observer dblock.Observer
	Log      *slog.Logger // default: none
	Clock    clock.Clock  // default: the machine's
}

// Bounds of a TTL.
const (
	MinTTL = time.Second
	MaxTTL = 24 * time.Hour
)

// WithDefaults fills in what is missing, and refuses what makes no sense; the fields are called as
// those of owner.
func (o Options) WithDefaults(owner string) (Options, error) {
	o.TTL = cmp.Or(o.TTL, 10*time.Second)
	o.Margin = cmp.Or(o.Margin, o.TTL/10)
	if o.TTL < MinTTL || o.TTL > MaxTTL {
		return o, &dblock.InvalidError{Field: owner + ".TTL", Reason: fmt.Sprintf("%v is not within %v to %v", o.TTL, MinTTL, MaxTTL)}
	}
	if o.Margin < 0 || o.Margin >= o.TTL/2 {
		return o, &dblock.InvalidError{Field: owner + ".Margin", Reason: fmt.Sprintf("%v is not within 0 and half of the TTL of %v", o.Margin, o.TTL)}
	}
	if err := root.CheckText(owner+".Label", o.Label, 0, dblock.MaxLabelBytes); err != nil {
		return o, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = clock.Real{}
	}
	return o, nil
}

// Listener learns of the heartbeats of a Member.
type Listener struct {
	Observer  dblock.Observer
	Log       *slog.Logger // nil: none
	Confirmed func()       // after each confirmed heartbeat; the next one does not wait for it. Nil: none

	// Recheck is called after a confirmed heartbeat if the server may have forgotten commits, and
	// about every ten minutes. An error has it called again after the next heartbeat. Nil: none.
	Recheck func(*Incarnation) error
}

// Member joins when it is first needed, and again after it was lost. It is safe for concurrent use.
type Member struct {
	driver Driver
	o      Options

	mu        sync.Mutex
	inc       *Incarnation // nil while there is none
	joining   *joining     // nil while no join is under way
	closed    bool
	listeners map[*Listener]struct{}
}

// joining is a registration under way. All callers that need an incarnation wait for it.
type joining struct {
	done chan struct{}
	err  error // read it after done
}

// New makes a Member; o has its defaults. Its Observer and Log are those of the first Listener.
func New(d Driver, o Options) *Member {
	m := &Member{driver: d, o: o, listeners: make(map[*Listener]struct{})}
	m.Listen(Listener{Observer: o.Observer, Log: o.Log})
	return m
}

// Listen has l learn of heartbeats until stop.
func (m *Member) Listen(l Listener) (stop func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.listeners[&l] = struct{}{}
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.listeners, &l)
	}
}

// forEachListener calls f for each Listener.
func (m *Member) forEachListener(f func(*Listener)) {
	m.mu.Lock()
	listeners := slices.Collect(maps.Keys(m.listeners))
	m.mu.Unlock()
	for _, l := range listeners {
		f(l)
	}
}

// Warn writes a line to the Log of each Listener, and once to one that several share.
func (m *Member) Warn(line string, args ...any) {
	written := make(map[*slog.Logger]bool)
	m.forEachListener(func(l *Listener) {
		if l.Log != nil && !written[l.Log] {
			written[l.Log] = true
			callback.Safely(nil, func() { l.Log.Warn(line, args...) })
		}
	})
}

// tick is the time between two heartbeats.
func (m *Member) tick() time.Duration { return m.o.TTL / 3 }

// Margin is by how much earlier than the server this process believes that its member, or a lock,
// has ended.
func (m *Member) Margin() time.Duration { return m.o.Margin }

// TTL is the time after which it is dead without a heartbeat.
func (m *Member) TTL() time.Duration { return m.o.TTL }

// Current returns the present incarnation, and registers the member first if there is none. If the
// ctx of a caller ends, the registration continues for the others.
func (m *Member) Current(ctx context.Context) (*Incarnation, error) {
	for {
		m.mu.Lock()
		switch {
		case m.closed:
			m.mu.Unlock()
			return nil, fmt.Errorf("%w: nothing was sent", dblock.ErrClosed)
		case m.inc != nil:
			inc := m.inc
			m.mu.Unlock()
			if inc.Alive() {
				return inc, nil
			}
			continue // it was forgotten
		case m.joining == nil:
			m.joining = &joining{done: make(chan struct{})}
			go m.join(context.WithoutCancel(ctx), m.joining)
		}
		j := m.joining
		m.mu.Unlock()
		select {
		case <-j.done:
			if j.err != nil {
				return nil, j.err
			}
		case <-ctx.Done():
			return nil, ctxerr.Of(ctx)
		}
	}
}

// join makes a new incarnation, within a bound of its own. One whose answer was lost is never used:
// its row expires.
func (m *Member) join(ctx context.Context, j *joining) {
	defer close(j.done)
	inc := &Incarnation{ID: NewID(), m: m, onEnd: make(map[*func(dblock.Reason)]struct{})}
	ctx, cancel := context.WithTimeout(ctx, m.o.TTL/2)
	defer cancel()
	sent := m.o.Clock.Now()
	j.err = m.driver.Register(ctx, inc.ID, m.o.Label, m.o.TTL)
	if j.err == nil {
		inc.begin(sent)
	}
	m.mu.Lock()
	m.joining = nil
	if j.err == nil && !m.closed {
		m.inc = inc
	}
	closed := m.closed
	m.mu.Unlock()
	if !closed {
		return
	}
	if j.err == nil {
		defer inc.finish(dblock.ReasonClosed)
	}
	_ = m.deregister(ctx, inc.ID) // if its answer was lost, too; or its row expires
}

func (m *Member) remove(l *Incarnation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.inc == l {
		m.inc = nil
	}
}

// deregisterTimeout bounds how long it takes to leave: its caller is about to end.
const deregisterTimeout = 5 * time.Second

// Close ends the present incarnation and deletes its row, which frees all that it held, even if ctx
// has ended: it has a bound of its own.
func (m *Member) Close(ctx context.Context) error {
	m.mu.Lock()
	inc, j := m.inc, m.joining
	m.closed = true
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(deregisterTimeout, m.o.TTL/2))
	defer cancel()
	if j != nil { // it leaves by itself
		select {
		case <-j.done:
		case <-ctx.Done():
		}
	}
	if inc == nil {
		return nil
	}
	defer inc.finish(dblock.ReasonClosed)
	return m.deregister(ctx, inc.ID)
}

// leaves is how often the row is deleted at most.
const leaves = 4

// deregister deletes the row, and does so again after an error: the connection may have died with a
// server that was restarted. A row that is gone is no error.
func (m *Member) deregister(ctx context.Context, id ID) error {
	for n := 1; ; n++ {
		err := m.driver.Deregister(ctx, id)
		if err == nil || n == leaves {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(10 * time.Millisecond << n):
		}
	}
}
