package programs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
)

// lockLasts is for how long callers begin steps.
const lockLasts = 300 * time.Millisecond

// hold is one use of a lock, as its caller saw it. Times are those of now.
type hold struct {
	Client   int
	Space    string
	Names    []string
	Mode     dblock.Mode
	Permits  int     `json:",omitempty"`
	Limit    int     `json:",omitempty"` // of the semaphore
	Handle   string  `json:",omitempty"` // of a fair lock
	Tokens   []int64 `json:",omitempty"` // of each name
	Called   int64   // the acquisition
	Granted  int64
	Left     int64  // the caller did not rely on the lock any more
	Released int64  // the lock's end had returned
	Valid    int64  `json:",omitempty"` // ValidUntil when the caller left
	Met      int64  `json:",omitempty"` // another holder was in the section
	MetIn    string `json:",omitempty"`
	Forced   bool   `json:",omitempty"`
	Lost     string `json:",omitempty"` // what Release, or the commit, said: a reason
}

// count is an update of a number that a lock protects.
type count struct {
	ID      int
	Unknown bool
}

// resizing is a SetPermits.
type resizing struct {
	Name             string
	Limit            int
	Called, Returned int64
	Unknown          bool
}

// failure is an error that no documentation names for its call.
type failure struct{ Call, Error string }

// lockerID is one of the two Lockers that a process has of each kind.
type lockerID struct {
	kind string
	n    int
}

// lockClient is a process of a lockProgram.
type lockClient struct {
	job
	program  lockProcess
	before   int // goroutines
	server   server
	sections sections

	mu      sync.Mutex
	lockers map[lockerID]dblock.Locker
	closers []func(context.Context) error
}

func openLocks(ctx context.Context, j job) (client, error) {
	c := &lockClient{job: j, before: runtime.NumGoroutine(), sections: sections{j.Dir, j.Process}, lockers: map[lockerID]dblock.Locker{}}
	err := json.Unmarshal(j.Program, &c.program)
	if err != nil {
		return nil, err
	}
	if c.server, err = openServer(ctx, j.Kind, j.DSN); err != nil {
		return nil, err
	}
	for _, caller := range c.program.Callers {
		for _, s := range caller.Steps {
			if _, err := c.locker(ctx, s); err != nil {
				return nil, err
			}
		}
	}
	return c, nil
}

// locker is the Locker of a step, opened when it is first used, and again when it was closed.
func (c *lockClient) locker(ctx context.Context, s lockStep) (dblock.Locker, error) {
	id := lockerID{s.Lock, s.Locker}
	if s.Lock == elector {
		id.kind = lease
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.lockers[id]; l != nil {
		return l, nil
	}
	l, err := c.open(ctx, id.kind)
	if err == nil && l != nil {
		c.lockers[id] = l
		c.closers = append(c.closers, l.Close)
	}
	return l, err
}

func (c *lockClient) open(ctx context.Context, kind string) (dblock.Locker, error) {
	switch kind {
	case lease, fair:
		return c.server.lease(ctx, kind == fair)
	case session, line:
		return c.server.session(ctx, kind == line)
	case quorum:
		return openQuorum(ctx, c.server, func(l dblock.Locker) { c.closers = append(c.closers, l.Close) })
	}
	return nil, nil
}

// node is a database of a Quorum: the same one, with names of its own. It forgets nothing in these
// tests, as no server is restarted.
type node struct {
	leases
	name string
}

func (n node) Caps() dblock.Caps {
	caps := n.leases.Caps()
	caps.Durable = true
	return caps
}

func (n node) Acquire(ctx context.Context, key string, opts ...dblock.Option) (*dblock.Lock, error) {
	return n.leases.Acquire(ctx, n.name+key, opts...)
}

func (n node) TryAcquire(ctx context.Context, key string, opts ...dblock.Option) (*dblock.Lock, error) {
	return n.leases.TryAcquire(ctx, n.name+key, opts...)
}

// openQuorum opens a Quorum of three nodes. closeNode is called for each.
func openQuorum(ctx context.Context, s server, closeNode func(dblock.Locker)) (dblock.Locker, error) {
	var nodes []dblock.Locker
	for i := range 3 {
		l, err := s.lease(ctx, false)
		if err != nil {
			return nil, err
		}
		closeNode(l)
		nodes = append(nodes, node{l, fmt.Sprintf("n%d ", i)})
	}
	return dblock.NewQuorum(nodes, dblock.QuorumOptions{})
}

func (c *lockClient) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for i := len(c.closers) - 1; i >= 0; i-- { // a quorum before its nodes
		_ = c.closers[i](ctx)
	}
	c.server.close()
	for until := time.Now().Add(freeWithin); runtime.NumGoroutine() > c.before; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			say("error", failure{"Close", fmt.Sprintf("%d goroutines are left, of %d", runtime.NumGoroutine(), c.before)})
			return
		}
	}
}

func (c *lockClient) run() {
	until := time.Now().Add(cmp.Or(c.program.Lasts, lockLasts))
	var all sync.WaitGroup
	id := c.Process * 1000
	for _, caller := range c.program.Callers {
		for range caller.Copies {
			id++
			all.Go(func() {
				for time.Now().Before(until) {
					for _, s := range caller.Steps {
						c.once(id, s)
					}
				}
			})
		}
	}
	all.Wait()
}

func nameOf(run string, key int) string { return fmt.Sprintf("%s-%d", run, key) }

func (c *lockClient) names(keys []int) []string {
	var names []string
	for _, k := range keys {
		names = append(names, nameOf(c.Run, k))
	}
	return names
}

// once takes a step.
func (c *lockClient) once(id int, s lockStep) {
	h := hold{Client: id, Space: s.space(), Names: c.names(s.Keys), Mode: s.Mode, Permits: s.Permits, Limit: s.Limit}
	h.Called = now()
	switch s.Lock {
	case row, claim, advised:
		c.inTx(s, h)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.Wait)
	defer cancel()
	l, err := c.locker(ctx, s)
	if err != nil {
		documented("open", err, dblock.ErrUnavailable, dblock.ErrOverloaded, dblock.ErrBusy, dblock.ErrConflict, context.DeadlineExceeded)
		time.Sleep(5 * time.Millisecond) // the faults do not let it be opened now
		return
	}
	if s.Lock == elector {
		c.leadOnce(l, s, h)
		return
	}
	if s.Resizes {
		resize(ctx, l, s, h.Names[0])
		h.Called = now()
	}
	lock, err := acquire(ctx, l, s, h.Names)
	switch {
	case err == nil:
		c.use(lock, l, s, &h)
		h.end(lock.Release(ctx)) // which has ended by now, at times
		say("hold", h)
	case c.Control != "" && errors.Is(err, dblock.ErrNotAcquired):
		c.section(s, &h, nil, time.Minute) // the control takes a refusal for a grant
		h.Released = now()
		say("hold", h)
	case errors.Is(err, dblock.ErrClosed):
		time.Sleep(time.Millisecond)
	case errors.Is(err, dblock.ErrLimit) && s.Limit != lockLimit:
	default:
		documented("acquire", err, dblock.ErrNotAcquired, dblock.ErrOutcomeUnknown, dblock.ErrUnavailable, dblock.ErrOverloaded, dblock.ErrBusy, dblock.ErrConflict)
	}
}

func acquire(ctx context.Context, l dblock.Locker, s lockStep, names []string) (*dblock.Lock, error) {
	var opts []dblock.Option
	switch s.Mode {
	case dblock.ModeShared:
		opts = append(opts, dblock.WithShared())
	case dblock.ModePermit:
		opts = append(opts, dblock.WithPermits(s.Permits, s.Limit))
	}
	switch {
	case s.Detached:
		opts = append(opts, dblock.WithoutRenewal(s.Hold))
	case s.Hold > 0:
		opts = append(opts, dblock.WithMaxHold(s.Hold))
	}
	if len(names) > 1 {
		all := l.(leases)
		if s.Locker == 1 { // the order does not matter
			names = slices.Clone(names)
			slices.Reverse(names)
		}
		if s.Try {
			return all.TryAcquireAll(ctx, names, opts...)
		}
		return all.AcquireAll(ctx, names, opts...)
	}
	if s.Try {
		return l.TryAcquire(ctx, names[0], opts...)
	}
	return l.Acquire(ctx, names[0], opts...)
}
