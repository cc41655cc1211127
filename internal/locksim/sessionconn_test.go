package locksim

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// sessionDriver is a process's way to the server's own locks.
type sessionDriver struct{ p *process }

var errOdd = errors.New("the server has answered with an error")

func (e sessionDriver) ID(key string) (session.ID, error) { return session.ID(key), nil }

func (e sessionDriver) MaxLocks() int { return e.p.w.most }

func (e sessionDriver) Note(context.Context, map[session.ID]string) error { return nil }

func (e sessionDriver) Classify(err error) sqlerr.Class {
	switch {
	case errors.Is(err, errOdd):
		return sqlerr.Busy
	case errors.Is(err, errRefused):
		return sqlerr.Unavailable
	}
	return sqlerr.Unresolved
}

// conn is a connection, as the server and its client see it.
type conn struct {
	p         *process
	name      string
	listening func(session.ID)

	last  time.Duration // when the server last received something; these are guarded by world.mu
	ended bool          // at the server

	once  sync.Once
	seen  chan struct{} // closed when it has ended for its client
	stuck bool          // nothing comes through any more; of the client that uses it
}

func (e sessionDriver) Open(ctx context.Context, listening func(session.ID)) (session.Conn, error) {
	p, w := e.p, e.p.w
	p.gate("opens")
	p.mu.Lock()
	p.opened++
	c := &conn{p: p, name: p.name + "/" + strconv.Itoa(p.opened), listening: listening, seen: make(chan struct{})}
	p.mu.Unlock()
	f := w.fate(c.name + " opens")
	restart, up := w.connection()
	select {
	case <-time.After(f.there%(10*time.Millisecond) + f.back%(10*time.Millisecond)):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	p.gate(c.name)
	if !up || f.refused || isClosed(restart) || p.isDead() || p.isCut() {
		return nil, errRefused
	}
	w.mu.Lock()
	c.last = w.now()
	w.sessions.conns = append(w.sessions.conns, c)
	w.checker.note("server: opens " + c.name)
	w.mu.Unlock()
	go w.endSilent(c)
	return c, nil
}

// keepAlive is how long it takes until a system sees that a connection is dead on which nothing
// comes through.
const keepAlive = 20 * time.Second

// isSilent reports that nothing comes through.
func (c *conn) isSilent() bool { return c.p.isCut() || c.p.isDead() }

// notify brings the client what the server sends unasked.
func (c *conn) notify(id session.ID) {
	if c.p.w.deaf {
		return
	}
	go func() {
		time.Sleep(c.p.w.dice(c.name+" hears "+string(id)).between(100*time.Microsecond, 5*time.Millisecond))
		c.p.gate("hears " + string(id))
		if !c.isSilent() && !c.Closed() {
			c.listening(id)
		}
	}()
}

// hearsOfItsEnd has the client see that the server has ended the connection, as soon as the network
// lets it.
func (c *conn) hearsOfItsEnd() {
	time.Sleep(c.p.w.dice(c.name+" ends").between(100*time.Microsecond, 5*time.Millisecond))
	c.p.awaitNetwork()
	c.p.gate(c.name + " ends")
	c.lose()
}

func (c *conn) lose() { c.once.Do(func() { close(c.seen) }) }

func (c *conn) Closed() bool { return isClosed(c.seen) }

// Close has the server end the connection, as soon as the network lets it.
func (c *conn) Close() {
	c.lose()
	w := c.p.w
	go func() {
		time.Sleep(w.dice(c.name+" closes").between(100*time.Microsecond, 5*time.Millisecond))
		c.p.awaitNetwork()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.sessions.end(c, "closed")
	}()
}

// call is a statement on a connection. Run is executed under world.mu.
func (c *conn) call(ctx context.Context, what string, run func() string) error {
	p, w := c.p, c.p.w
	what = c.name + " " + what
	p.gate(what)
	if c.Closed() || p.isDead() {
		return errBroken
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	f := w.fate(what)
	lost := c.stuck || f.lost
	c.stuck = lost || f.mute
	stuck, odd := c.stuck, f.refused
	if stuck {
		time.AfterFunc(min(f.breaks, keepAlive), c.lose)
	}
	before := w.dice(what + " odd").permille(500)
	reply := make(chan struct{}, 1)
	go func() {
		time.Sleep(f.there)
		if lost || c.isSilent() {
			return
		}
		w.mu.Lock()
		if c.ended {
			w.mu.Unlock()
			return
		}
		c.last, w.executed = w.now(), w.now()
		said := "an error"
		if !odd || !before {
			said = run()
		}
		w.checker.note("server: " + what + ": " + said)
		w.mu.Unlock()
		time.Sleep(f.back)
		if !stuck && !c.isSilent() {
			reply <- struct{}{}
		}
	}()
	select {
	case <-reply:
		p.gate(what)
		if odd {
			return errOdd
		}
		return nil
	case <-c.seen:
	case <-p.dead:
	case <-ctx.Done(): // as drivers do, it closes a connection whose answer it does not await
		c.Close()
	}
	p.gate(what)
	p.note(what + ": no answer")
	return errBroken
}

func (c *conn) Run(ctx context.Context, steps []session.Step) ([]bool, error) {
	done := make([]bool, len(steps))
	err := c.call(ctx, fmt.Sprint("runs ", steps), func() string {
		for i, step := range steps {
			done[i] = c.p.w.sessions.do(c, step)
		}
		return fmt.Sprint(done)
	})
	if err != nil {
		return nil, err
	}
	return done, nil
}

func (c *conn) Has(ctx context.Context, steps []session.Step) ([]bool, error) {
	has := make([]bool, len(steps))
	err := c.call(ctx, fmt.Sprint("has ", steps), func() string {
		for i, step := range steps {
			has[i] = c.p.w.without != undo && c.p.w.sessions.has(c, step)
		}
		return fmt.Sprint(has)
	})
	if err != nil {
		return nil, err
	}
	return has, nil
}

func (c *conn) Ping(ctx context.Context) error {
	return c.call(ctx, "pings", func() string { return "done" })
}

func (c *conn) Park(ctx context.Context) error {
	if c.p.w.deaf {
		return dblock.ErrUnsupported
	}
	select {
	case <-ctx.Done():
		return nil
	case <-c.seen:
		return errBroken
	}
}

func (c *conn) Wait(ctx context.Context, id session.ID, shared bool) error {
	w := c.p.w
	me := &waiter{c: c, shared: shared, served: make(chan struct{})}
	if err := c.call(ctx, "waits "+string(id), func() string {
		l := w.sessions.lock(id)
		l.line = append(l.line, me)
		l.serve()
		return "in line"
	}); err != nil {
		return err
	}
	select {
	case <-me.served:
	case <-c.seen:
		return errBroken
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	time.Sleep(w.dice(c.name+" served").between(100*time.Microsecond, 5*time.Millisecond))
	c.p.gate("served " + string(id))
	if c.isSilent() || c.Closed() {
		return errBroken
	}
	return nil
}
