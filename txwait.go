package dblock

import (
	"fmt"
	"time"
)

// TxWait says how long a transaction waits for locks that other transactions hold: for each row of
// LockRow and LockRows, and for all keys of pglock.LockTx together. The zero value waits while the
// context lives and the server's own bound lasts: lock_timeout on Postgres, which has no bound by
// default; innodb_lock_wait_timeout on MySQL and MariaDB, 50 s by default.
type TxWait struct {
	kind  waitKind
	bound time.Duration // of waitAtMost
}

type waitKind uint8

const (
	waitForServer waitKind = iota
	waitForContext
	waitAtMost
	noWait
	skipLocked
)

// WaitForContext waits while the context lives, whatever the server's own bound is.
func WaitForContext() TxWait { return TxWait{kind: waitForContext} }

// WaitAtMost waits for d while the context lives, whatever the server's own bound is: in whole
// milliseconds up to 24 days on Postgres, in whole seconds up to 3 years on MySQL and MariaDB.
// Another d is an *InvalidError. If d has passed, the error is a *HeldError (ErrNotAcquired).
func WaitAtMost(d time.Duration) TxWait { return TxWait{kind: waitAtMost, bound: d} }

// NoWait does not wait: if another transaction holds a lock, the error is a *HeldError
// (ErrNotAcquired).
func NoWait() TxWait { return TxWait{kind: noWait} }

// SkipLocked does not wait, and passes over the rows that other transactions have locked.
func SkipLocked() TxWait { return TxWait{kind: skipLocked} }

func (w TxWait) String() string {
	switch w.kind {
	case waitForContext:
		return "until the context ends"
	case waitAtMost:
		return fmt.Sprintf("at most %v", w.bound)
	case noWait:
		return "no wait"
	case skipLocked:
		return "skip locked"
	}
	return "until the server's bound"
}
