package suite

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
)

// StartChild starts a process that says what it does.
func StartChild(t *testing.T, cmd *exec.Cmd) *Child {
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
	return &Child{cmd, bufio.NewScanner(out), in}
}

// Held is since when a process has a lock; by uptime, like all of these.
func (c *Child) Held(t *testing.T) (since time.Duration) {
	t.Helper()
	c.scan(t, "held since %d", &since)
	return since
}

// Counted is until when a process counted on its lock, and when it was told of the loss.
func (c *Child) Counted(t *testing.T, why *dblock.LostError) (last, ended time.Duration) {
	t.Helper()
	c.scan(t, "counted on until %d ended at %d", &last, &ended)
	c.Says(t, why.Error())
	return last, ended
}

func (c *Child) scan(t *testing.T, format string, values ...any) {
	t.Helper()
	if !c.Lines.Scan() {
		t.Fatal("the process is gone")
	}
	if _, err := fmt.Sscanf(c.Lines.Text(), format, values...); err != nil {
		t.Fatalf("the process said %q: %v", c.Lines.Text(), err)
	}
}

// Child is a process that a test has started; its lines say what it does.
type Child struct {
	*exec.Cmd
	Lines *bufio.Scanner
	In    io.Closer // closed: it is to go on
}

// Says waits for a line of its own.
func (c *Child) Says(t *testing.T, want string) {
	t.Helper()
	if !c.Lines.Scan() || c.Lines.Text() != want {
		t.Fatalf("the process said %q, want %q", c.Lines.Text(), want)
	}
}

// Kill is kill -9.
func (c *Child) Kill() {
	_ = c.Process.Kill()
	_ = c.Wait()
}

// WaitToGoOn waits in the process itself until its test has it go on, or is gone.
func WaitToGoOn() { _, _ = io.Copy(io.Discard, os.Stdin) }
