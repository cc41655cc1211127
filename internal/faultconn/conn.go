package faultconn

import (
	"net"
	"sync"
	"time"
)

type state int

const (
	open    state = iota
	cut           // every call fails
	stalled       // what is written vanishes, what comes is thrown away
	late          // every call fails on this side, the other side's is open until Release
)

// conn is one connection of a Dialer.
type conn struct {
	net.Conn
	d *Dialer

	mu    sync.Mutex
	state state
	held  []byte // in the state late: what the other side is yet to get
	left  bool   // in the state late: its owner has closed it
}

// Read leaves deadlines to the connection itself, in the state stalled too: it reads and throws
// away until that fails.
func (c *conn) Read(b []byte) (n int, err error) {
	if rate := c.d.Rate; rate > 0 {
		b = b[:min(len(b), 16<<10)]
		defer func() { time.Sleep(time.Duration(n) * time.Second / time.Duration(rate)) }()
	}
	mode := c.d.count(c, nil)
	c.before(mode, nil)
	for {
		switch c.now() {
		case cut, late:
			return 0, ErrCut
		}
		n, err = c.Conn.Read(b)
		if err != nil && c.now() == late {
			return 0, ErrCut
		}
		if err != nil {
			return n, err
		}
		c.after(mode)
		switch c.now() {
		case open:
			return n, nil
		case stalled:
			continue
		default: // the reply was lost
			return 0, ErrCut
		}
	}
}

// Write succeeds in the state stalled, as a kernel takes what a dead network can't deliver, and so
// does the one that comes late: a driver may count on it that what failed outright never arrives.
func (c *conn) Write(b []byte) (int, error) {
	mode := c.d.count(c, b)
	c.before(mode, b)
	if mode == Late {
		return len(b), nil
	}
	switch c.now() {
	case cut, late:
		return 0, ErrCut
	case stalled:
		return len(b), nil
	}
	n, err := c.Conn.Write(b)
	c.after(mode)
	return n, err
}

// Close leaves a connection that is late to Release.
func (c *conn) Close() error {
	if c.leave() {
		return nil
	}
	c.d.forget(c)
	return c.Conn.Close()
}

// leave notes that the owner of a connection that is late has no more use for it; false if it is
// not late.
func (c *conn) leave() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = c.state == late
	return c.left
}

// closedByServer ends a connection, which its owner may have closed already.
func (c *conn) closedByServer() {
	c.mu.Lock()
	left := c.left
	c.state = cut
	c.mu.Unlock()
	_ = c.Conn.Close()
	if left {
		c.d.forget(c)
	}
}

// SetDeadline and its like leave a connection that is late alone.
func (c *conn) SetDeadline(t time.Time) error {
	return c.deadline(t, c.Conn.SetDeadline)
}

func (c *conn) SetReadDeadline(t time.Time) error {
	return c.deadline(t, c.Conn.SetReadDeadline)
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	return c.deadline(t, c.Conn.SetWriteDeadline)
}

func (c *conn) deadline(t time.Time, set func(time.Time) error) error {
	if c.now() == late {
		return nil
	}
	return set(t)
}

func (c *conn) before(mode Mode, written []byte) {
	switch mode {
	case CutBefore:
		c.set(cut)
		_ = c.Conn.Close()
	case Stall:
		c.set(stalled)
	case Late:
		c.set(late)
		c.mu.Lock()
		c.held = append([]byte(nil), written...)
		c.mu.Unlock()
		_ = c.Conn.SetDeadline(time.Unix(1, 0)) // ends a Read that another goroutine is in
	case HookBefore:
		c.d.callHook()
	}
}

func (c *conn) after(mode Mode) {
	switch mode {
	case CutAfter:
		c.set(cut)
		_ = c.Conn.Close()
	case HookAfter:
		c.d.callHook()
	}
}

func (c *conn) release() {
	c.mu.Lock()
	isLate, held := c.state == late, c.held
	if isLate {
		c.state = cut
	}
	c.mu.Unlock()
	if !isLate {
		return
	}
	defer c.d.forget(c)
	defer c.Conn.Close()
	_ = c.Conn.SetDeadline(time.Now().Add(releaseTimeout))
	if len(held) == 0 {
		return
	}
	if _, err := c.Conn.Write(held); err == nil {
		_, _ = c.Conn.Read(make([]byte, 1<<16)) // the answer, or an error if the client is gone
	}
}

func (c *conn) now() state {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

func (c *conn) set(s state) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state = s
}
