package callback_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/callback"
)

// bad is a handler that panics.
type bad struct{ slog.Handler }

func (bad) Enabled(context.Context, slog.Level) bool { panic("a bad handler") }

func TestPanicsEndHere(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	all := dblock.Observer{
		Acquired:      func(string, time.Duration) { panic("acquired") },
		NotAcquired:   func(string, time.Duration, error) { panic("not acquired") },
		Released:      func(string, time.Duration) { panic("released") },
		Lost:          func(string, time.Duration, dblock.Reason) { panic("lost") },
		HeartbeatLate: func(time.Duration, error) { panic("late") },
	}
	for _, log := range []*slog.Logger{slog.New(slog.NewTextHandler(&text, nil)), nil, slog.New(bad{})} {
		o := callback.Observer(all, log)
		o.Acquired("", 0)
		o.NotAcquired("", 0, errors.New("no"))
		o.Released("", 0)
		o.Lost("", 0, dblock.Closed)
		o.HeartbeatLate(0, errors.New("no"))
	}
	for _, want := range []string{"panic=acquired", `panic="not acquired"`, "panic=released", "panic=lost", "panic=late"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the log lacks %s: %s", want, text.String())
		}
	}
	if none := callback.Observer(dblock.Observer{}, nil); none.Acquired != nil || none.Lost != nil {
		t.Error("what was nil is called")
	}
}
