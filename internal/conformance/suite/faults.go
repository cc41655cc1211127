package suite

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dblock-go/dblock/internal/devdb"
)

// ChaosTimeout is the Options.Timeout of callers beside injected faults.
const ChaosTimeout = 2 * time.Second

// FaultInjector does to a server what happens to servers.
type FaultInjector struct {
	DB     *sql.DB
	Kind   devdb.Kind
	Server *devdb.Server // nil: it can only end sessions
	Random *rand.Rand
	Counts map[string]int
}

// Rage does one thing after the other until ctx ends, and leaves a healthy server.
func (n *FaultInjector) Rage(ctx context.Context) error {
	for n.Lull(ctx, 400*time.Millisecond) {
		what, err := n.Strike(ctx)
		if err != nil {
			return fmt.Errorf("no fault was injected: cannot %s: %w", what, err)
		}
		n.Counts[what]++
	}
	return nil
}

// Strike does one thing, drawn at random. What it began it ends, whatever becomes of ctx.
func (n *FaultInjector) Strike(ctx context.Context) (what string, err error) {
	dice := n.Random.IntN(4)
	switch {
	case n.Server == nil || dice < 2:
		return "end all sessions", (&DB{DB: n.DB, Kind: n.Kind}).EndSessions(context.WithoutCancel(ctx))
	case dice == 2:
		return "kill -9", n.Crash(ctx)
	default:
		if err := n.Server.Freeze(); err != nil {
			return "freeze", err
		}
		n.Lull(ctx, ChaosTimeout*3/2) // now and then for longer than calls wait
		return "freeze", n.Server.Thaw()
	}
}

// Crash kills the server, and starts it again.
func (n *FaultInjector) Crash(ctx context.Context) error {
	if err := n.Server.Kill(); err != nil {
		return err
	}
	n.Lull(ctx, 200*time.Millisecond)
	return n.Server.Restart(context.WithoutCancel(ctx))
}

// Lull lets some time pass, at random; false: ctx has ended.
func (n *FaultInjector) Lull(ctx context.Context, most time.Duration) bool {
	timer := time.NewTimer(time.Duration(n.Random.Int64N(int64(most))))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
