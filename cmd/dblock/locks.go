package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/dblock-go/dblock"
)

// locksCmd is `dblock locks`.
type locksCmd struct {
	databaseFlags
	Session bool          `help:"Show locks that the server keeps for a connection (advisory and named locks), and not leases: by their keys where they are known, else by the server's numbers or names."`
	JSON    bool          `name:"json" help:"Print JSON: a list, a lock each; times in milliseconds."`
	Watch   time.Duration `placeholder:"EVERY" help:"Print it again and again, every so often (at least 100ms), until it is interrupted."`
}

// leastWatch keeps a mistake from being a load.
const leastWatch = 100 * time.Millisecond

// Run prints the locks and their holders.
func (c *locksCmd) Run(ctx context.Context, s streams) (err error) {
	if c.Watch != 0 && c.Watch < leastWatch {
		return fmt.Errorf("--watch: %v is shorter than %v", c.Watch, leastWatch)
	}
	look, closeAll, err := c.looker(ctx, s.out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	for {
		if err := look(); err != nil || c.Watch == 0 {
			return err
		}
		select {
		case <-time.After(c.Watch):
		case <-ctx.Done():
			return nil
		}
	}
}

// looker returns what reads the locks once, and prints them.
func (c *locksCmd) looker(ctx context.Context, out io.Writer) (look, closeAll func() error, err error) {
	if c.Session {
		list, closeAll, err := c.sessionLocks(ctx)
		return func() error {
			locks, err := list()
			if err != nil {
				return err
			}
			return c.printSessions(out, locks)
		}, closeAll, err
	}
	l, closeAll, err := c.leases(ctx, leaseFlags{})
	return func() error {
		held, err := l.Held(ctx)
		if err != nil {
			return err
		}
		return c.print(out, held)
	}, closeAll, err
}

// shownLock is one lock for a program.
type shownLock struct {
	Key         string `json:"key"`
	Mode        string `json:"mode"`              // exclusive, shared or permits
	Permits     int    `json:"permits,omitempty"` // how many, if that is the mode
	Limit       int    `json:"limit,omitempty"`   // of how many
	Token       int64  `json:"token"`
	Label       string `json:"label"`
	Member      string `json:"member"`
	AgeMs       int64  `json:"age_ms"`
	RemainingMs int64  `json:"remaining_ms"` // without another heartbeat
	Waiters     int64  `json:"waiters"`      // processes
}

func (c *locksCmd) print(out io.Writer, held []dblock.HeldLock) error {
	if c.JSON {
		shown := make([]shownLock, len(held))
		for i, h := range held {
			shown[i] = shownLock{
				h.Key, h.Mode.String(), h.Permits, h.Limit, h.Fence.Token, h.Holder.Label, h.Holder.Member, h.Age.Milliseconds(), h.Remaining.Milliseconds(), h.Waiters,
			}
		}
		return printJSON(out, shown)
	}
	if len(held) == 0 {
		_, err := fmt.Fprintln(out, "nothing is held")
		return err
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "KEY\tMODE\tTOKEN\tLABEL\tMEMBER\tAGE\tREMAINING\tWAITERS")
	for _, h := range held {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%.8s\t%v\t%v\t%d\n", printable(h.Key), mode(h), h.Fence.Token, printable(h.Holder.Label), h.Holder.Member,
			h.Age.Round(time.Millisecond), h.Remaining.Round(time.Millisecond), h.Waiters)
	}
	return t.Flush()
}

// mode says how a lock is held.
func mode(h dblock.HeldLock) string {
	if h.Mode == dblock.ModePermit {
		return fmt.Sprintf("%d of %d permits", h.Permits, h.Limit)
	}
	return h.Mode.String()
}

// printable keeps what others have chosen from playing with the terminal.
func printable(s string) string {
	if quoted := strconv.Quote(s); quoted != `"`+s+`"` {
		return quoted
	}
	return s
}

// unlockCmd is `dblock unlock`.
type unlockCmd struct {
	databaseFlags
	Key   string `arg:"" help:"The key."`
	Token int64  `required:"" help:"The token of the acquisition to end, as dblock locks shows it. Readers that share a lock have one token, and all end."`
}

// Run releases a lock that another process holds.
func (c *unlockCmd) Run(ctx context.Context, s streams) error {
	return c.withLeases(ctx, func(l leases) error {
		if err := l.ForceRelease(ctx, c.Key, c.Token); err != nil {
			return err
		}
		_, err := fmt.Fprintf(s.out, "released %s\n", printable(c.Key))
		return err
	})
}

// permitsCmd is `dblock permits`.
type permitsCmd struct {
	databaseFlags
	Key   string `arg:"" help:"The semaphore."`
	Limit int    `arg:"" help:"How many permits it has from now on. Those that are held stay so."`
}

// Run gives a semaphore another number of permits.
func (c *permitsCmd) Run(ctx context.Context, s streams) error {
	return c.withLeases(ctx, func(l leases) error {
		if err := l.SetPermits(ctx, c.Key, c.Limit); err != nil {
			return err
		}
		_, err := fmt.Fprintf(s.out, "%s has %d permits\n", printable(c.Key), c.Limit)
		return err
	})
}
