package mysql

import (
	"context"
	"database/sql"
	"slices"
	"sync"
	"time"
)

// Kept hands out connections of a pool with settings of dblock's own. A connection stays with Kept
// for keptFor after its last use, so that most statements need one round trip. Then the pool gets
// it back, with the settings of the host.
type Kept struct {
	pool       Pool
	set, reset string // statements

	mu     sync.Mutex
	idle   []*sql.Conn
	taken  int  // in use
	used   bool // since the last look of timer
	timer  *time.Timer
	closed bool
}

const (
	keptFor = time.Second
	maxKept = 8

	// poolShare is which part of a pool Kept keeps at most: one in four. A pool of fewer than twice
	// as many has no connection to spare.
	poolShare = 4
)

// NewKept returns the connections on which set was run. reset gives a session what the host has
// set.
func NewKept(pool Pool, set, setBack string) *Kept {
	return &Kept{pool: pool, set: set, reset: setBack}
}

// maxIdle is how many connections may be idle.
func (k *Kept) maxIdle() int {
	switch open := k.pool.Stats().MaxOpenConnections; {
	case open == 0:
		return maxKept
	case open < 2*poolShare:
		return 0
	default:
		return min(maxKept, open/poolShare)
	}
}

// HasSpare reports whether there is a connection that costs no round trip of its own, or that may
// stay with Kept.
func (k *Kept) HasSpare() bool {
	most := k.maxIdle()
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.idle) > 0 || k.taken < most
}

// Take returns a connection with the settings.
func (k *Kept) Take(ctx context.Context) (*sql.Conn, error) {
	k.mu.Lock()
	k.used = true
	k.taken++
	if n := len(k.idle); n > 0 {
		conn := k.idle[n-1]
		k.idle = k.idle[:n-1]
		k.mu.Unlock()
		return conn, nil
	}
	k.mu.Unlock()
	conn, err := k.pool.connect(ctx, k.set)
	if err != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.taken--
	}
	return conn, err
}

// Put takes a connection back after a statement that took so long. If ctx ended during it, and the
// server may be waiting for a lock, the connection counts as in use for as long: see left.
func (k *Kept) Put(ctx context.Context, conn *sql.Conn, took time.Duration) {
	valid := IsValid(conn)
	if valid {
		k.pool.left.endedWell()
	}
	switch kept := k.keep(conn, valid); {
	case kept:
	case IsAbandoned(ctx, conn):
		k.pool.linger(ctx, conn, took)
	case !valid:
		_ = conn.Close()
	default:
		Reset(ctx, conn, k.reset)
		_ = conn.Close()
	}
}

func (k *Kept) keep(conn *sql.Conn, valid bool) bool {
	most := k.maxIdle()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.taken--
	if !valid || k.closed || len(k.idle)+k.taken >= most {
		return false
	}
	k.idle = append(k.idle, conn)
	if k.timer == nil {
		k.timer = time.AfterFunc(keptFor, k.closeIdle)
	}
	return true
}

// closeIdle gives the connections back if none was used for keptFor.
func (k *Kept) closeIdle() {
	k.mu.Lock()
	var unused []*sql.Conn
	if k.used && !k.closed {
		k.used = false
		k.timer.Reset(keptFor)
	} else {
		unused, k.idle, k.timer = k.idle, nil, nil
	}
	k.mu.Unlock()
	k.returnAll(unused)
}

func (k *Kept) returnAll(conns []*sql.Conn) {
	for _, conn := range conns {
		Reset(context.Background(), conn, k.reset)
		_ = conn.Close()
	}
}

// Close gives all connections back. Take works after it, and keeps none.
func (k *Kept) Close() {
	k.mu.Lock()
	unused := slices.Clone(k.idle)
	k.idle, k.closed = nil, true
	k.mu.Unlock()
	k.returnAll(unused)
}
