//go:build unix && !solaris && !aix

package guardian

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	Main()
	os.Exit(m.Run())
}

// TestStartsNothingTooLate: a guardian whose caller has ended, or whose command's time is over,
// does not start the command. The control is a guardian that may start it.
func TestStartsNothingTooLate(t *testing.T) {
	until := func(left time.Duration) string {
		return fmt.Sprintf("until %d %d\n", time.Now().Add(left).UnixNano(), left)
	}
	for name, c := range map[string]struct {
		orders, report string
		starts         bool
	}{
		"the caller has ended": {"", "the caller has ended", false},
		"it ended on the way":  {until(time.Minute), "the caller has ended", false},
		"its time is over":     {until(-time.Second) + begin + "\n", "its time was over", false},
		"control":              {until(time.Minute) + begin + "\n", "started ", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			trace := filepath.Join(t.TempDir(), "trace")
			report := guardTouch(t, c.orders, trace)
			if !strings.Contains(report, c.report) {
				t.Errorf("the guardian reports %q, want %q", report, c.report)
			}
			if _, err := os.Stat(trace); (err == nil) != c.starts {
				t.Errorf("started: %v, want %v", err == nil, c.starts)
			}
		})
	}
}

// guardTouch has a guardian run a command that makes a file, and returns its reports. The orders
// are written before it starts.
func guardTouch(t *testing.T, orders, file string) string {
	t.Helper()
	in, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := to.WriteString(orders); err != nil {
		t.Fatal(err)
	}
	touch, err := exec.LookPath("touch")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self(), marker, "3", "4", "0", "1s", "1s", touch, "touch", file)
	cmd.ExtraFiles = []*os.File{in, out}
	if !strings.HasSuffix(orders, begin+"\n") {
		_ = to.Close()
	} else {
		defer func() { _ = to.Close() }()
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = in.Close(), out.Close()
	_ = cmd.Wait() // its status is in its reports
	report := make([]byte, 4096)
	n, _ := from.Read(report)
	_ = from.Close()
	return string(report[:n])
}
