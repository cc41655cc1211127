package inventory

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
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

// TestOptionsTakeAnyDuration: options refuse a duration, or no sum of what they become overflows.
func TestOptionsTakeAnyDuration(t *testing.T) {
	t.Parallel()
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Options]()) {
		if f.Type != reflect.TypeFor[time.Duration]() {
			continue
		}
		for _, d := range []time.Duration{1, 0, -1, math.MinInt64, math.MaxInt64 - 1, math.MaxInt64} {
			var o Options
			reflect.ValueOf(&o).Elem().FieldByIndex(f.Index).SetInt(int64(d))
			o, err := o.withDefaults()
			var invalid *dblock.InvalidError
			switch {
			case err == nil && (o.Timeout < minTimeout || o.Timeout > maxTimeout || o.SoldOutTTL < 0 || o.SoldOutTTL > maxSoldOutTTL):
				t.Errorf("%s of %v: a timeout of %v, a memory of %v", f.Name, d, o.Timeout, o.SoldOutTTL)
			case err != nil && (!errors.As(err, &invalid) || invalid.Field != "Options."+f.Name):
				t.Errorf("%s of %v: %v", f.Name, d, err)
			}
		}
	}
}
