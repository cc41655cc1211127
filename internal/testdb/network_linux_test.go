package testdb

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestChildAsksForNetworks is what a child run is about; elsewhere it does nothing.
func TestChildAsksForNetworks(t *testing.T) {
	if os.Getenv(envChild) == "networks" {
		t.Log("networks:", Networks())
	}
}

// TestNetworksThatAreAbsent: they are not under test, or fail the run that asks for them.
func TestNetworksThatAreAbsent(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		env  []string
		code int
		says []string
	}{
		"absent":            {[]string{envNetwork + "=", "PATH=/nowhere"}, 0, []string{"not under test: nsenter is not installed", "networks: false"}},
		"asked for":         {[]string{envNetwork + "=1", "PATH=/nowhere"}, 2, []string{envNetwork + "=1 asks for networks: nsenter"}},
		"not wanted":        {[]string{envNetwork + "=0"}, 0, []string{"not under test: " + envNetwork + "=0", "networks: false"}},
		"nonsense is named": {[]string{envNetwork + "=yes"}, 2, []string{`"yes" is neither 0 nor 1`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.v", "-test.run=^TestChildAsksForNetworks$")
			cmd.Env = append(append(os.Environ(), envChild+"=networks"), tt.env...)
			out, _ := cmd.CombinedOutput() // the exit status is looked at below
			for _, says := range tt.says {
				if cmd.ProcessState.ExitCode() != tt.code || !strings.Contains(string(out), says) {
					t.Errorf("exit status %d, want %d and %q in:\n%s", cmd.ProcessState.ExitCode(), tt.code, says, out)
				}
			}
		})
	}
}
