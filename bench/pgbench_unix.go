//go:build unix

package bench

import (
	"os/exec"
	"syscall"
)

// killWithChildren has the end of the context end what the program started, too: scripts may hold
// \shell.
func killWithChildren(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
