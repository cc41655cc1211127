package faultmatrix

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// stepLine goes into time.Now of the Go library: every half second the wall clock of the process is
// set anew. It is right, then an hour fast, an hour slow and a day fast. The monotonic clock goes
// on.
const stepLine = "\tsec += [4]int64{0, 3600, -3600, 86400}[mono/500_000_000%4]\n"

const nowLine = "\tsec, nsec, mono := runtimeNow()\n"

// steppingProgram builds the workers' program with a wall clock that steps, in a new folder. The
// first time that takes minutes: nearly every package is compiled anew.
func steppingProgram(ctx context.Context) (program string, err error) {
	goroot, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", err
	}
	source := filepath.Join(strings.TrimSpace(string(goroot)), "src", "time", "time.go")
	text, err := os.ReadFile(source)
	if err != nil {
		return "", err
	}
	before, after, found := strings.Cut(string(text), "func Now() Time {\n"+nowLine)
	if !found {
		return "", fmt.Errorf("%s has another time.Now than expected", source)
	}
	dir, err := os.MkdirTemp("", "dblock-matrix-program-")
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	stepping, overlay := filepath.Join(dir, "time.go"), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(stepping, []byte(before+"func Now() Time {\n"+nowLine+stepLine+after), 0o600); err != nil {
		return "", err
	}
	replaced, err := json.Marshal(map[string]any{"Replace": map[string]string{source: stepping}})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(overlay, replaced, 0o600); err != nil {
		return "", err
	}
	program = filepath.Join(dir, "worker")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-ldflags=-w", "-trimpath", "-overlay", overlay, "-o", program, "github.com/dblock-go/dblock/internal/faultmatrix")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return program, nil
}

// stepClocks lets the clocks step for a while. It counts how often another process has a clock
// unlike this one's.
func stepClocks(ctx context.Context, e *env) (int, error) {
	return until(ctx, 50*time.Millisecond, func() (strikes int, err error) {
		for _, c := range e.children {
			theirs, err := c.clock()
			if err != nil {
				return strikes, err
			}
			if time.Since(theirs).Abs() > time.Minute {
				strikes++
			}
		}
		return strikes, nil
	})
}

// clock is the time of day as the process has it.
func (c *child) clock() (time.Time, error) {
	if err := c.send("clock"); err != nil {
		return time.Time{}, err
	}
	line := <-c.says
	seconds, err := strconv.ParseInt(line, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("worker %d said %q instead of the time", c.n, line)
	}
	return time.Unix(seconds, 0), nil
}
