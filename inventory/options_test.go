package inventory

import (
	"context"
	"log/slog"
	"testing"
)

// panics is a log's handler that panics.
type panics struct{ slog.Handler }

func (panics) Enabled(context.Context, slog.Level) bool { return true }

func (panics) Handle(context.Context, slog.Record) error { panic("a log's handler") }

func TestALogMayPanic(t *testing.T) {
	t.Parallel()
	o, err := Options{Log: slog.New(panics{})}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	o.Log.Warn("the sweep failed")
}
