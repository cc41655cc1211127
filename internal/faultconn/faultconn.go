// Package faultconn breaks connections of tests. Only tests import it.
//
// A Dialer breaks a connection at a chosen point of a protocol: at the k-th Read or Write of all
// its connections, or of the connection that writes a given text. Counting k up until nothing is
// struck any more covers every point there is, without any timing.
//
// A Proxy forwards connections to a real server, and replaces chosen answers.
package faultconn

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Mode is what happens at the call that is struck.
type Mode int

const (
	CutBefore  Mode = iota + 1 // the connection is closed before the call is forwarded.
	CutAfter                   // the call is forwarded, then the connection is closed: a lost reply.
	Stall                      // from here on nothing gets through in either direction, and neither side gets an error.
	Late                       // this side sees a cut; the other side gets the bytes, and the end, with Release.
	HookBefore                 // the hook is called, then all goes on.
	HookAfter                  // the call is forwarded, then the hook is called.
)

func (m Mode) String() string {
	return map[Mode]string{
		CutBefore: "cut before", CutAfter: "cut after", Stall: "stall", Late: "late",
		HookBefore: "hook before", HookAfter: "hook after",
	}[m]
}

// ErrCut is what a call on a cut connection returns.
var ErrCut = errors.New("faultconn: the connection was cut")

// releaseTimeout bounds the wait for a server's answer to what came late.
const releaseTimeout = 10 * time.Second

// Dialer dials TCP connections and strikes one call of theirs. The zero value strikes none.
type Dialer struct {
	// Rate is how many bytes a second each connection reads, as over a slow network; 0: as many as
	// come. Set it before the first dial.
	Rate int

	// Watch is a text: Watched counts the writes that have it. Set it before the first dial.
	Watch string

	mu     sync.Mutex
	mode   Mode
	left   int // calls until the one to strike, that one included; 0: none
	calls  int
	writes int
	seen   int // that have Watch
	struck bool
	hook   func()
	conns  []*conn

	refuses bool // every dial

	text []byte // calls are counted from the write that has it; nil: all are
	on   *conn  // that wrote it: calls of others are not counted
}

// DialContext is a dial function for pgx and for the Go MySQL driver.
func (d *Dialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	d.mu.Lock()
	refuses := d.refuses
	d.mu.Unlock()
	if refuses {
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	var dialer net.Dialer
	inner, err := dialer.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: inner, d: d}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.refuses {
		c.state = cut
	}
	d.conns = append(d.conns, c)
	return c, nil
}

// Refuse closes every connection and refuses new ones, as if the server were gone, until Accept.
func (d *Dialer) Refuse() {
	d.mu.Lock()
	d.refuses = true
	d.mu.Unlock()
	d.CloseAll()
}

// Accept ends Refuse.
func (d *Dialer) Accept() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refuses = false
}

// Arm starts to count anew and strikes the k-th call from now on, which is one that begins. The
// hook is called in the modes that have one.
func (d *Dialer) Arm(k int, mode Mode, hook func()) { d.arm(nil, k, mode, hook) }

// ArmAt is Arm for one connection alone, the one that writes a text next. That write is its first
// call.
func (d *Dialer) ArmAt(text string, k int, mode Mode) { d.arm([]byte(text), k, mode, nil) }

// HookAt calls the hook before the next write that has a text is forwarded.
func (d *Dialer) HookAt(text string, hook func()) { d.arm([]byte(text), 1, HookBefore, hook) }

func (d *Dialer) arm(text []byte, k int, mode Mode, hook func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mode, d.left, d.hook, d.calls, d.writes, d.struck = mode, k, hook, 0, 0, false
	d.text, d.on = text, nil
}

// Disarm ends the counting and reports whether a call was struck.
func (d *Dialer) Disarm() (struck bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left = 0
	return d.struck
}

// Calls is how many calls began since Arm; since ArmAt, how many it counted.
func (d *Dialer) Calls() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls
}

// Writes is how many of them were writes: of a driver that waits for each answer, the round trips.
func (d *Dialer) Writes() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.writes
}

// Watched is how many writes had the text Watch, since the first dial. A statement that was
// prepared before is sent without its text.
func (d *Dialer) Watched() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.seen
}

// CloseAll closes every connection there is, as a server does that restarts.
func (d *Dialer) CloseAll() {
	for _, c := range d.all() {
		c.closedByServer()
	}
}

// Release delivers what was held in the mode Late, waits until the other side has answered, and
// ends its connection.
func (d *Dialer) Release() {
	for _, c := range d.all() {
		c.release()
	}
}

// Open is how many connections were dialled and not yet closed by the dialling side.
func (d *Dialer) Open() int { return len(d.all()) }

func (d *Dialer) forget(c *conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conns = slices.DeleteFunc(d.conns, func(other *conn) bool { return other == c })
}

func (d *Dialer) all() []*conn {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.conns)
}

// count counts a call that begins, of a Read or of what is written, and returns what is to happen
// to it; 0: nothing.
func (d *Dialer) count(c *conn, written []byte) Mode {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.Watch != "" && bytes.Contains(written, []byte(d.Watch)) {
		d.seen++
	}
	if d.on == nil && d.text != nil && bytes.Contains(written, d.text) {
		d.on = c
	}
	if d.on != c && d.text != nil {
		return 0
	}
	d.calls++
	if written != nil {
		d.writes++
	}
	if d.left == 0 {
		return 0
	}
	d.left--
	if d.left > 0 {
		return 0
	}
	d.struck = true
	return d.mode
}

func (d *Dialer) callHook() {
	d.mu.Lock()
	hook := d.hook
	d.mu.Unlock()
	hook()
}
