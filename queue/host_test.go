package queue

import (
	"context"
	"log/slog"
	"reflect"
	"testing"

	"github.com/dblock-go/dblock/queue/internal/driver"
)

// badLog panics at each record.
type badLog struct{ slog.Handler }

func (badLog) Enabled(context.Context, slog.Level) bool { return true }

func (badLog) Handle(context.Context, slog.Record) error { panic("a log's handler") }

// TestEachFunctionOfAnObserverIsGuarded has each field of an Observer called, with a function that
// panics and without one.
func TestEachFunctionOfAnObserverIsGuarded(t *testing.T) {
	t.Parallel()
	var panics Observer
	calls := make(map[string]int)
	v := reflect.ValueOf(&panics).Elem()
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		v.Field(i).Set(reflect.MakeFunc(v.Field(i).Type(), func([]reflect.Value) []reflect.Value {
			calls[name]++
			panic(name)
		}))
	}
	o, err := Options{Observer: panics, Log: slog.New(badLog{})}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	guarded := reflect.ValueOf(o.Observer)
	for i := range guarded.NumField() {
		args := make([]reflect.Value, guarded.Field(i).Type().NumIn())
		for n := range args {
			args[n] = reflect.Zero(guarded.Field(i).Type().In(n))
		}
		name := guarded.Type().Field(i).Name
		guarded.Field(i).Call(args)
		if calls[name] != 1 {
			t.Errorf("Observer.%s was called %d times", name, calls[name])
		}
	}
	o.Log.Error("to a handler that panics")
}

// TestStatesHaveTheNumbersOfDrivers: states are converted between the two types.
func TestStatesHaveTheNumbersOfDrivers(t *testing.T) {
	t.Parallel()
	for state, want := range map[JobState]driver.State{
		JobReady: driver.Ready, JobScheduled: driver.Scheduled, JobBlocked: driver.Blocked, JobClaimed: driver.Claimed,
		JobDead: driver.Dead, JobCompleted: driver.Completed, JobCancelled: driver.Cancelled, JobDiscarded: driver.Discarded,
		JobRetrying: driver.Retrying,
	} {
		if int(state) != int(want) {
			t.Errorf("%v is %d, and %d in drivers", state, state, want)
		}
	}
}
