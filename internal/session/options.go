package session

import (
	"cmp"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/callback"
	"github.com/dblock-go/dblock/internal/root"
)

// Options of a Locker.
type Options struct {
	Label       string
	Observer    dblock.Observer
	Log         *slog.Logger
	IdleTimeout time.Duration // after which the server frees the locks of a silent connection; default 10 s.
	MaxConns    int           // connections; default 4.
	Poll        time.Duration // how often a process asks again for a key that it waits for.
	Shared      bool          // the server has shared locks.
	Alike       bool          // a statement that acquires and releases costs more than two.
	Notifies    bool          // the server notifies of releases.
	OneShows    bool          // Show is done for one session at a time: that of a holder hides that others wait.
	ServerQueue bool          // a call waits at the server, on a connection of its own.
	MaxQueue    int           // calls that may wait for a statement; default 65,536.
	MaxBatch    int           // calls that share a statement; default 512: enough for a crowd, and few enough for it to be short.

	Draw func(n time.Duration) time.Duration // a random duration below n; default rand.N. A test repeats what it drew
}

// DefaultConns is the default of Options.MaxConns.
const DefaultConns = 4

// maxConns is more than any process needs: locks share connections.
const maxConns = 1000

// WithDefaults sets the defaults, and refuses values that are out of range.
func (o Options) WithDefaults(owner string, poll time.Duration) (Options, error) {
	refuse := func(field, reason string, args ...any) (Options, error) {
		return o, &dblock.InvalidError{Field: owner + "." + field, Reason: fmt.Sprintf(reason, args...)}
	}
	o.Poll = cmp.Or(o.Poll, poll)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, 10*time.Second)
	o.MaxConns = cmp.Or(o.MaxConns, DefaultConns)
	o.MaxQueue = cmp.Or(o.MaxQueue, 65536)
	o.MaxBatch = cmp.Or(o.MaxBatch, 512)
	if o.Draw == nil {
		o.Draw = func(n time.Duration) time.Duration { return rand.N(n) }
	}
	o.Log = callback.Logger(o.Log)
	o.Observer = root.GuardObserver(o.Observer, o.Log)
	switch {
	case o.Poll < 10*time.Millisecond || o.Poll > time.Minute:
		return refuse("Poll", "%v is not within 10ms to 1m", o.Poll)
	case o.IdleTimeout < time.Second || o.IdleTimeout > 24*time.Hour:
		return refuse("IdleTimeout", "%v is not within 1s to 24h", o.IdleTimeout)
	case o.MaxConns < 1 || o.MaxConns > maxConns:
		return refuse("MaxConns", "%d is not within 1 to %d", o.MaxConns, maxConns)
	case o.ServerQueue && o.MaxConns < 2:
		return refuse("MaxConns", "%d leaves no connection to a call that waits with ServerQueue: allow 2", o.MaxConns)
	case o.MaxQueue < 0:
		return refuse("MaxQueue", "%d is negative", o.MaxQueue)
	}
	if err := root.CheckText(owner+".Label", o.Label, 0, dblock.MaxLabelBytes); err != nil {
		return o, err
	}
	return o, nil
}

// margin is how much earlier than the server a process considers a silent connection lost.
func (o Options) margin() time.Duration { return o.IdleTimeout / 10 }

// longestRelease bounds the wait of a release for its answer. A release that takes longer goes on
// in the background.
func (o Options) longestRelease() time.Duration {
	return min(max(o.IdleTimeout/10, time.Second), 10*time.Second)
}

// CheckNamespace refuses invalid namespaces. Raw, an option of that name, excludes one.
func CheckNamespace(namespace string, raw bool, option string) error {
	const field = "SessionOptions.Namespace"
	if raw && namespace != "" {
		return &dblock.InvalidError{Field: field, Reason: fmt.Sprintf("%q means nothing with %s", namespace, option)}
	}
	return root.CheckText(field, namespace, 0, 255)
}
