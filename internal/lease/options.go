package lease

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/root"
)

// Options of a Locker.
type Options struct {
	Label          string
	Observer       dblock.Observer
	Log            *slog.Logger  // heartbeats that fail, members that are lost; nil: nothing.
	Clock          clock.Clock   // default: the machine's.
	Poll           time.Duration // how often a process asks again for a key that it waits for; 10 ms to 1 min.
	UnnotifiedPoll time.Duration // the same if no notification of a release comes; default: Poll.
	Fair           bool          // first come, first served, across processes.
	MaxQueue       int           // calls that may wait; default 65,536.
	MaxBatch       int           // calls that share a statement; default 1,024, at most 8,192.

	// MaxInFlight is how many statements that acquire, and how many that release, are under way at
	// once. Default: one, and a second where the first takes long.
	MaxInFlight int

	patience time.Duration // until the next one is sent beside those under way
}

// By itself one statement that acquires, and one that releases, carry most. With a second where the
// first takes long, a connection that went silent does not stop all keys.
const (
	inFlight = 2
	patience = 3 * time.Millisecond
)

const (
	maxBatch    = 8192
	maxInFlight = 1024
)

// WithDefaults fills in what is missing, and refuses what makes no sense; the fields are called as
// those of owner.
func (o Options) WithDefaults(owner string, poll time.Duration) (Options, error) {
	refuse := func(field, reason string, args ...any) (Options, error) {
		return o, &dblock.InvalidError{Field: owner + "." + field, Reason: fmt.Sprintf(reason, args...)}
	}
	o.Poll = cmp.Or(o.Poll, poll)
	switch {
	case o.Poll < 10*time.Millisecond || o.Poll > time.Minute:
		return refuse("Poll", "%v is not within 10ms to 1m", o.Poll)
	case o.MaxQueue < 0:
		return refuse("MaxQueue", "%d is negative", o.MaxQueue)
	case o.MaxBatch < 0 || o.MaxBatch > maxBatch:
		return refuse("MaxBatch", "%d is not within 0 to %d", o.MaxBatch, maxBatch)
	case o.MaxInFlight < 0 || o.MaxInFlight > maxInFlight:
		return refuse("MaxInFlight", "%d is not within 0 to %d", o.MaxInFlight, maxInFlight)
	}
	if o.MaxInFlight == 0 {
		o.MaxInFlight, o.patience = inFlight, patience
	}
	o.Observer = root.GuardObserver(o.Observer, o.Log)
	o.UnnotifiedPoll = cmp.Or(o.UnnotifiedPoll, o.Poll)
	if o.Clock == nil {
		o.Clock = clock.Real{}
	}
	return o, nil
}
