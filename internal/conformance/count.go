package conformance

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
)

// countOn has a process hold a lock until it is lost, say when it counted on it last and when its context had ended, and acquire
// it again. It ends with the test's pipe.
func countOn(ctx context.Context, l dblock.Locker, key string) error {
	go func() {
		waitToGoOn()
		os.Exit(0)
	}()
	lock, err := acquireOnceReachable(ctx, l, key)
	if err != nil {
		return err
	}
	ended := make(chan time.Duration, 1)
	go func() {
		<-lock.Context().Done()
		ended <- uptime()
	}()
	var last time.Duration
	for {
		now := uptime()
		if lock.Context().Err() != nil || !time.Now().Before(lock.ValidUntil()) {
			break
		}
		last = now
		time.Sleep(time.Millisecond)
	}
	fmt.Println("counted on until", int64(last), "ended at", int64(<-ended))
	fmt.Println(context.Cause(lock.Context()))
	if _, err := acquireOnceReachable(ctx, l, key); err != nil {
		return err
	}
	select {}
}

// acquireOnceReachable waits for the server as well, and says when it has the lock.
func acquireOnceReachable(ctx context.Context, l dblock.Locker, key string) (*dblock.Lock, error) {
	for {
		lock, err := l.Acquire(ctx, key)
		switch {
		case err == nil:
			fmt.Println("held since", int64(uptime()))
			return lock, nil
		case !errors.Is(err, dblock.ErrUnavailable) && !errors.Is(err, dblock.ErrOutcomeUnknown) && !errors.Is(err, dblock.ErrBusy):
			return nil, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// startChild starts a process that says what it does.
func startChild(t *testing.T, cmd *exec.Cmd) *child {
	t.Helper()
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &child{cmd, bufio.NewScanner(out), in}
}

// held is since when a process has a lock; by uptime, like all of these.
func (c *child) held(t *testing.T) (since time.Duration) {
	t.Helper()
	c.scan(t, "held since %d", &since)
	return since
}

// counted is until when a process counted on its lock, and when it was told of the loss.
func (c *child) counted(t *testing.T, why *dblock.LostError) (last, ended time.Duration) {
	t.Helper()
	c.scan(t, "counted on until %d ended at %d", &last, &ended)
	c.says(t, why.Error())
	return last, ended
}

func (c *child) scan(t *testing.T, format string, values ...any) {
	t.Helper()
	if !c.lines.Scan() {
		t.Fatal("the process is gone")
	}
	if _, err := fmt.Sscanf(c.lines.Text(), format, values...); err != nil {
		t.Fatalf("the process said %q: %v", c.lines.Text(), err)
	}
}
