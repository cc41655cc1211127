package lock

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// blockedLog is the handler of a Log that blocks, as standard error does into a pipe that is full.
type blockedLog struct {
	slog.Handler
	until chan struct{}
}

func (h blockedLog) Handle(context.Context, slog.Record) error {
	<-h.until
	return nil
}

// aBlockedHostKeepsNoLock: a process whose Log and Observer block loses its server. When another process has the keys, all
// its locks have ended.
func aBlockedHostKeepsNoLock(t *testing.T, v *env) {
	host := blockedLog{slog.NewTextHandler(io.Discard, nil), make(chan struct{})}
	var dialer faultconn.Dialer
	l, closePool, err := v.e.OpenOn(t.Context(), v.dsn, &dialer, LeaseOptions{
		TTL: cutTTL, Log: slog.New(host), Observer: dblock.Observer{
			Lost:          func(string, time.Duration, dblock.Reason) { <-host.until },
			HeartbeatLate: func(time.Duration, error) { <-host.until },
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer closePool()
	defer func() {
		close(host.until)
		dialer.Accept()
		_ = l.Close(suite.Soon(t))
	}()
	other := v.process(t, LeaseOptions{})
	locks := []*dblock.Lock{suite.Acquire(t, l, "a"), suite.Acquire(t, l, "b"), suite.Acquire(t, l, "c")}
	dialer.Refuse()
	for _, lock := range locks {
		next := suite.Acquire(t, other, lock.Key())
		suite.IsLost(t, lock, dblock.Expired)
		suite.Release(t, next)
	}
}
