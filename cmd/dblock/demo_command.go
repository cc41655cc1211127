package main

import (
	"context"
	"errors"
	"os/exec"
	"syscall"
	"time"

	"github.com/dblock-go/dblock/internal/devdb"
)

// commandGrace is how long a command may go on after a signal to end.
const commandGrace = 10 * time.Second

// command runs a program beside the demo's server, and passes it the address.
func (c *demoCmd) command(ctx context.Context, s *shop, std streams) ([]any, error) {
	argv := c.Command
	if argv[0] == "--" {
		argv = argv[1:]
	}
	addresses := map[bool]string{true: "DBLOCK_POSTGRES_URL", false: "DBLOCK_MYSQL_DSN"}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = std.in, std.out, std.err
	cmd.Env = append(environWithout(addresses[true], addresses[false]), addresses[s.server.Kind == devdb.Postgres]+"="+s.dsn)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = commandGrace
	return nil, statusOf(cmd.Run())
}

// statusOf has this program end as a command did.
func statusOf(err error) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return &commandFailed{128 + int(status.Signal())}
	}
	return &commandFailed{exit.ExitCode()}
}
