package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/guardian"
)

// lockCmd is `dblock lock`.
type lockCmd struct {
	databaseFlags
	Key     string         `arg:"" help:"The key."`
	Command []string       `arg:"" passthrough:"" help:"The command and its arguments, behind --. Its environment lacks DBLOCK_DATABASE."`
	Wait    *time.Duration `placeholder:"DURATION" help:"How long to wait for the lock; 0: not at all. Default: for as long as it takes."`
	TTL     time.Duration  `name:"ttl" default:"10s" help:"After how long without a heartbeat others may have the lock."`
	Shared  bool           `help:"Acquire the lock in shared mode."`
	Permits *int           `placeholder:"N" help:"Hold N of the permits of a semaphore instead of a lock; needs --limit."`
	Limit   *int           `placeholder:"M" help:"How many permits the semaphore has. The first acquisition decides; dblock permits changes it."`
	Fair    bool           `help:"Serve the callers with this option in the order of their arrival."`
	Label   string         `help:"Shown to others. Default: this host and process."`
	Grace   time.Duration  `default:"5s" help:"How long the command's processes have after SIGTERM, before SIGKILL; less if the lock ends sooner."`
}

// commandFailed is the exit status of the command that ran under the lock.
type commandFailed struct{ status int }

func (e *commandFailed) Error() string {
	return fmt.Sprintf("the command ended with status %d", e.status)
}

// Run runs a command while it holds a lock, as flock does. If the lock is lost, it ends the command
// and all its processes.
func (c *lockCmd) Run(ctx context.Context, s streams) (err error) {
	argv := c.Command
	if len(argv) > 0 && argv[0] == "--" {
		argv = argv[1:]
	}
	if len(argv) == 0 {
		return &dblock.InvalidError{Field: "COMMAND", Reason: "there is none: dblock lock KEY -- COMMAND ARGUMENT…"}
	}
	if c.Label == "" {
		host, _ := os.Hostname()
		c.Label = host + ":" + strconv.Itoa(os.Getpid())
	}
	l, closeAll, err := c.leases(ctx, leaseFlags{TTL: c.TTL, Margin: c.margin(), Label: c.Label, Fair: c.Fair})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	lock, err := c.acquire(ctx, s, l, c.options())
	if err != nil {
		return err
	}
	ran := c.run(ctx, s, lock, argv)
	return errors.Join(ran, lock.Release(ctx))
}

// Validate refuses flags that don't go together.
func (c *lockCmd) Validate() error {
	switch {
	case c.Shared && c.Permits != nil:
		return errors.New("--shared and --permits: choose one")
	case (c.Permits != nil) != (c.Limit != nil):
		return errors.New("--permits and --limit belong together: --permits=1 --limit=5")
	case c.Wait != nil && *c.Wait < 0:
		return fmt.Errorf("--wait: %v is negative", *c.Wait)
	case c.TTL == 0:
		return errors.New("--ttl: 0 is no time: give 1s or more") // the package would take its default
	case c.Grace < 0:
		return fmt.Errorf("--grace: %v is negative", c.Grace)
	case c.Fair && (c.Shared || c.Permits != nil):
		return errors.New("--fair is for locks that are held by one")
	}
	return nil
}

// options are how the lock is to be held.
func (c *lockCmd) options() []dblock.Option {
	switch {
	case c.Shared:
		return []dblock.Option{dblock.WithShared()}
	case c.Permits != nil:
		return []dblock.Option{dblock.WithPermits(*c.Permits, *c.Limit)}
	default:
		return nil
	}
}

func (c *lockCmd) acquire(ctx context.Context, s streams, l leases, opts []dblock.Option) (*dblock.Lock, error) {
	switch {
	case c.Wait == nil:
		return c.await(ctx, s, l, opts)
	case *c.Wait == 0:
		return l.TryAcquire(ctx, c.Key, opts...)
	default:
		ctx, cancel := context.WithTimeout(ctx, *c.Wait)
		defer cancel()
		return c.await(ctx, s, l, opts)
	}
}

// passing are the errors that do not end a wait.
var passing = []error{
	dblock.ErrUnavailable, dblock.ErrOutcomeUnknown, dblock.ErrBusy, dblock.ErrConflict, dblock.ErrOverloaded,
}

// askAgain is the pause after an error that does not end a wait.
const askAgain = time.Second

// await waits for the lock while ctx lives, also while the server is restarted or does not reply.
func (c *lockCmd) await(ctx context.Context, s streams, l leases, opts []dblock.Option) (*dblock.Lock, error) {
	for said := false; ; said = true {
		lock, err := l.Acquire(ctx, c.Key, opts...)
		passes := slices.ContainsFunc(passing, func(is error) bool { return errors.Is(err, is) })
		if err == nil || !passes || ctx.Err() != nil {
			return lock, err
		}
		if !said {
			_, _ = fmt.Fprintf(s.err, "dblock: still waiting for %s: %v\n", printable(c.Key), err)
		}
		select {
		case <-time.After(askAgain):
		case <-ctx.Done():
		}
	}
}

// runCommand is replaced by a test that shows what the guardian is for.
var runCommand = guardian.Run

// run runs the command with the token in its environment. The DSN, which may have a password, is
// not in it. It returns when all processes of the command have ended: before the server gives the
// lock to another, even if this process is killed.
func (c *lockCmd) run(ctx context.Context, s streams, lock *dblock.Lock, argv []string) error {
	fence, _ := lock.Fence()
	status, err := runCommand(lock.Bind(ctx), guardian.Command{
		Args: argv, Stdin: s.in, Stdout: s.out, Stderr: s.err,
		Env: append(environWithout("DBLOCK_DATABASE"), "DBLOCK_KEY="+fence.Key, "DBLOCK_TOKEN="+strconv.FormatInt(fence.Token, 10),
			"DBLOCK_HANDLE="+hex.EncodeToString(fence.Handle[:]), "DBLOCK_MODE="+fence.Mode.String()),
		ValidUntil: lock.ValidUntil, Slack: c.slack(), Grace: c.Grace,
		Left: func(n int, pids []int) {
			more := ""
			if n > len(pids) {
				more = fmt.Sprintf(" and %d more", n-len(pids))
			}
			_, _ = fmt.Fprintf(s.err, "dblock: the command has ended, but processes that it started still run: %v%s; %s is held until they end\n",
				pids, more, printable(c.Key))
		},
	})
	if err == nil && status != 0 {
		err = &commandFailed{status}
	}
	return err
}

// margin is by how much earlier than the server this process gives the lock up for lost: the
// command needs time to end.
func (c *lockCmd) margin() time.Duration { return c.TTL / 4 }

// slack is for how long the command runs on when the lock is given up for lost.
func (c *lockCmd) slack() time.Duration { return c.margin() * 3 / 5 }

// environWithout returns this program's environment without some of its variables.
func environWithout(names ...string) []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(names, name)
	})
}
