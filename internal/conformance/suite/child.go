package suite

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// Child is a process that a test has started; its lines say what it does.
type Child struct {
	*exec.Cmd
	Lines *bufio.Scanner
	In    io.Closer // closed: it is to go on
}

// StartChild starts a process that says what it does.
func StartChild(t *testing.T, cmd *exec.Cmd) *Child {
	t.Helper()
	cmd.Stderr = os.Stderr
	in := Must(cmd.StdinPipe())(t)
	out := Must(cmd.StdoutPipe())(t)
	require.NoError(t, cmd.Start())
	return &Child{cmd, bufio.NewScanner(out), in}
}

// Says waits for a line.
func (c *Child) Says(t *testing.T, want string) {
	t.Helper()
	require.True(t, c.Lines.Scan(), "the process is gone")
	require.Equal(t, want, c.Lines.Text())
}

// Held returns since when a process has a lock; by uptime, like all of these.
func (c *Child) Held(t *testing.T) (since time.Duration) {
	t.Helper()
	c.scan(t, "held since %d", &since)
	return since
}

// Counted returns until when a process counted on its lock, and when it learned of the loss.
func (c *Child) Counted(t *testing.T, why *dblock.LostError) (last, ended time.Duration) {
	t.Helper()
	c.scan(t, "counted on until %d ended at %d", &last, &ended)
	c.Says(t, why.Error())
	return last, ended
}

func (c *Child) scan(t *testing.T, format string, values ...any) {
	t.Helper()
	require.True(t, c.Lines.Scan(), "the process is gone")
	require.NoError(t, Second(fmt.Sscanf(c.Lines.Text(), format, values...)), c.Lines.Text())
}

// Kill is kill -9.
func (c *Child) Kill() {
	_ = c.Process.Kill()
	_ = c.Wait()
}

// WaitToGoOn waits in the process itself until its test has it go on, or is gone.
func WaitToGoOn() { _, _ = io.Copy(io.Discard, os.Stdin) }

// CountOn has a process hold a lock until it is lost, say when it counted on it last and when its
// context had ended, and acquire it again. It ends with the test's pipe.
func CountOn(ctx context.Context, l dblock.Locker, key string) error {
	go func() {
		WaitToGoOn()
		os.Exit(0)
	}()
	lock, err := acquireOnceReachable(ctx, l, key)
	if err != nil {
		return err
	}
	ended := make(chan time.Duration, 1)
	go func() {
		<-lock.Context().Done()
		ended <- Uptime()
	}()
	var last time.Duration
	for now := Uptime(); lock.Context().Err() == nil && time.Now().Before(lock.ValidUntil()); now = Uptime() {
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
	for ; ; time.Sleep(10 * time.Millisecond) {
		lock, err := l.Acquire(ctx, key)
		switch {
		case err == nil:
			fmt.Println("held since", int64(Uptime()))
			return lock, nil
		case !errors.Is(err, dblock.ErrUnavailable) && !errors.Is(err, dblock.ErrOutcomeUnknown) && !sqlerr.IsContended(err):
			return nil, err
		}
	}
}
