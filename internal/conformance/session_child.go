package conformance

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/dblock-go/dblock/internal/devdb"
)

const (
	sessionDSN  = "DBLOCK_TEST_SESSION"
	sessionKind = "DBLOCK_TEST_SESSION_KIND"

	// frozenIdle is after how long the server frees what a frozen process has.
	frozenIdle = 2 * time.Second
)

// Main does what a test has started this process for, and then never returns. Call it first in TestMain.
func (e Session) Main() {
	dsn := os.Getenv(sessionDSN)
	if dsn == "" {
		return
	}
	e.Kind = devdb.Kind(os.Getenv(sessionKind))
	if err := e.trustUntilLost(dsn); err != nil {
		fmt.Fprintln(os.Stderr, "session:", err)
	}
	os.Exit(1)
}

// trustUntilLost holds a lock until it is lost, and says when it counted on it last.
func (e Session) trustUntilLost(dsn string) error {
	ctx := context.Background()
	l, _, err := e.Open(ctx, dsn, nil, SessionOptions{IdleTimeout: frozenIdle})
	if err != nil {
		return err
	}
	lock, err := l.Acquire(ctx, "k")
	if err != nil {
		return err
	}
	fmt.Println("held")
	var last time.Time
	for {
		now := time.Now()
		if lock.Context().Err() != nil || !now.Before(lock.ValidUntil()) {
			break
		}
		last = now
		time.Sleep(time.Millisecond)
	}
	fmt.Println("trusted until", last.UnixNano())
	<-lock.Context().Done()
	fmt.Println(context.Cause(lock.Context()))
	waitToGoOn()
	return nil
}
