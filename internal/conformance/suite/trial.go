package suite

import (
	"context"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/faultconn"
)

// Trial is what a trial of Everywhere is run with: a dialer whose connections the cut strikes, and
// the context of the caller, which GiveUp ends.
type Trial struct {
	Cut    Cut
	Dialer faultconn.Dialer
	Ctx    context.Context
	GiveUp context.CancelFunc

	k int
}

// Begin prepares a trial of the cut at call k.
func (x *Trial) Begin(ctx context.Context, c Cut, k int) {
	x.Cut, x.k = c, k
	x.Ctx, x.GiveUp = context.WithCancel(ctx)
}

// Key is a key that no other trial of a test has.
func (x *Trial) Key() string { return fmt.Sprintf("%v %d", x.Cut, x.k) }

// Arm is called when the trial's own statements are the next ones.
func (x *Trial) Arm() {
	if x.Cut.Cold {
		x.Dialer.CloseAll()
	}
	x.Dialer.Arm(x.k, x.Cut.Mode, x.GiveUp)
}

// Heal ends the disturbance: what is late arrives. The process lives on.
func (x *Trial) Heal() (struck bool) {
	struck = x.Dialer.Disarm()
	x.Dialer.Release()
	return struck
}

// CloseBy ends the process: by closes it, or gives up after 5 s, as its connections may be stalled.
func (x *Trial) CloseBy(ctx context.Context, by func(context.Context) error, closePool func()) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = by(ctx)
	x.Dialer.CloseAll()
	x.GiveUp()
	closePool()
}
