package session

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
)

const (
	sessionDSN  = "DBLOCK_TEST_SESSION"
	sessionKind = "DBLOCK_TEST_SESSION_KIND"
	sessionKey  = "DBLOCK_TEST_SESSION_KEY"
	sessionIdle = "DBLOCK_TEST_SESSION_IDLE"
	sessionLine = "DBLOCK_TEST_SESSION_LINE" // set where it waits in the server's line

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
	fmt.Fprintln(os.Stderr, "session:", e.countOn(dsn))
	os.Exit(1)
}

// CountOn returns only where it can't go on.
func (e Session) countOn(dsn string) error {
	idle, err := time.ParseDuration(os.Getenv(sessionIdle))
	if err != nil {
		return err
	}
	ctx := context.Background()
	l, _, err := e.Open(ctx, dsn, nil, SessionOptions{IdleTimeout: idle, ServerQueue: os.Getenv(sessionLine) != ""})
	if err != nil {
		return err
	}
	return suite.CountOn(ctx, l, os.Getenv(sessionKey))
}

// toCountOn has the process of a command count on a key, on the database of dsn. Of the options the IdleTimeout and the ServerQueue
// are passed on.
func (e Session) toCountOn(cmd *exec.Cmd, dsn, key string, o SessionOptions) *exec.Cmd {
	cmd.Env = append(os.Environ(), sessionDSN+"="+dsn, sessionKind+"="+string(e.Kind), sessionKey+"="+key, sessionIdle+"="+o.IdleTimeout.String())
	if o.ServerQueue {
		cmd.Env = append(cmd.Env, sessionLine+"=1")
	}
	return cmd
}
