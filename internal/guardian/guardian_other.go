//go:build !unix || solaris || aix

package guardian

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// Main does nothing: there are no guardians on this operating system.
func Main() {}

// CommandHas reports whether a running command has got the signal too.
func CommandHas(os.Signal) bool { return false }

// Run runs a command and returns when it has ended, with its exit status. If ctx ends first, it is
// asked to end, and killed after Grace. Processes that it started are not ended, and it goes on if
// this process is killed.
func Run(ctx context.Context, c Command) (status int, err error) {
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = c.Stdin, c.Stdout, c.Stderr, c.Env
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = c.Grace
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
}
