package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dblock-go/dblock"
)

// lockCmd is `dblock lock`.
type lockCmd struct {
	databaseFlags
	Key     string        `arg:"" help:"The key."`
	Command []string      `arg:"" passthrough:"" help:"The command and its arguments, behind --."`
	Wait    time.Duration `default:"-1s" placeholder:"DURATION" help:"How long to wait for the lock; 0: not at all. Default: for as long as it takes."`
	TTL     time.Duration `name:"ttl" default:"10s" help:"After how long without a heartbeat others may have the lock."`
	Shared  bool          `help:"Hold the lock beside others who hold it shared."`
	Permits int           `placeholder:"N" help:"Hold N of the permits of a semaphore instead of a lock; needs --limit."`
	Limit   int           `placeholder:"M" help:"How many permits the semaphore has. The first acquisition decides; dblock permits changes it."`
	Fair    bool          `help:"First come, first served, among those who say so."`
	Label   string        `help:"Shown to others. Default: this host and process."`
	Grace   time.Duration `default:"5s" help:"How long the command has after SIGTERM, before SIGKILL."`
}

// commandFailed is the exit status of the command that ran under the lock.
type commandFailed struct{ status int }

func (e *commandFailed) Error() string {
	return fmt.Sprintf("the command ended with status %d", e.status)
}

// Run runs a command while it holds a lock, as flock does; the command is ended when the lock is lost.
func (c *lockCmd) Run(ctx context.Context, s streams) (err error) {
	argv := c.Command
	if len(argv) > 0 && argv[0] == "--" {
		argv = argv[1:]
	}
	if len(argv) == 0 {
		return errors.New("no command: dblock lock KEY -- COMMAND ARGUMENT…")
	}
	if c.Label == "" {
		host, _ := os.Hostname()
		c.Label = host + ":" + strconv.Itoa(os.Getpid())
	}
	l, closeAll, err := c.leases(ctx, leaseFlags{TTL: c.TTL, Label: c.Label, Fair: c.Fair})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	lock, err := c.acquire(ctx, l, c.options())
	if err != nil {
		return err
	}
	ran := c.run(ctx, s, lock, argv)
	return errors.Join(ran, lock.Release(ctx))
}

// Validate refuses flags that don't go together.
func (c *lockCmd) Validate() error {
	switch {
	case c.Shared && c.Permits != 0:
		return errors.New("--shared and --permits: choose one")
	case (c.Permits != 0) != (c.Limit != 0):
		return errors.New("--permits and --limit belong together: --permits=1 --limit=5")
	case c.Fair && (c.Shared || c.Permits != 0):
		return errors.New("--fair is for locks that are held by one")
	}
	return nil
}

// options are how the lock is to be held.
func (c *lockCmd) options() []dblock.Option {
	switch {
	case c.Shared:
		return []dblock.Option{dblock.WithShared()}
	case c.Permits != 0:
		return []dblock.Option{dblock.WithPermits(c.Permits, c.Limit)}
	default:
		return nil
	}
}

func (c *lockCmd) acquire(ctx context.Context, l leases, opts []dblock.Option) (*dblock.Lock, error) {
	switch {
	case c.Wait == 0:
		return l.TryAcquire(ctx, c.Key, opts...)
	case c.Wait > 0:
		ctx, cancel := context.WithTimeout(ctx, c.Wait)
		defer cancel()
		return l.Acquire(ctx, c.Key, opts...)
	default:
		return l.Acquire(ctx, c.Key, opts...)
	}
}

// run gives the command the terminal, and the token in its environment. The DSN, which may have a password, is not in it.
func (c *lockCmd) run(ctx context.Context, s streams, lock *dblock.Lock, argv []string) error {
	fence, _ := lock.Fence()
	cmd := exec.CommandContext(lock.Bind(ctx), argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.in, s.out, s.err
	cmd.Env = append(environWithout("DBLOCK_DATABASE"), "DBLOCK_KEY="+fence.Key, "DBLOCK_TOKEN="+strconv.FormatInt(fence.Token, 10),
		"DBLOCK_HANDLE="+hex.EncodeToString(fence.Handle[:]), "DBLOCK_MODE="+fence.Mode.String())
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = c.Grace
	return statusOf(cmd.Run())
}

// environWithout returns this program's environment without some of its variables.
func environWithout(names ...string) []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(names, name)
	})
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
