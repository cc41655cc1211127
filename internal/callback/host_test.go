package callback_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/retry"
	"github.com/dblock-go/dblock/internal/root"
	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/migrations"
	"github.com/dblock-go/dblock/mysqllock"
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/pglock"
	"github.com/dblock-go/dblock/queue"
)

// The host's functions in options, and what shows that they are guarded. A new one fails
// TestEachFunctionOfTheHostIsGuarded until it has a line here.
var guarded = map[string]string{
	"dblock.Observer":                "each field: TestEachFunctionOfTheHostIsGuarded",
	"queue.Observer":                 "each field: TestEachFunctionOfAnObserverIsGuarded of package queue, TheHostMayPanic",
	"dblock.ElectorOptions.Failed":   "TestTheHostOfLocksMayPanic",
	"pglock.TxOptions.OnRetry":       "TestTheHostOfLocksMayPanic, of internal/retry",
	"mysqllock.TxOptions.OnRetry":    "TestTheHostOfLocksMayPanic, of internal/retry",
	"queue.WorkerOptions.Backoff":    "TheHostMayPanic",
	"queue.WorkerOptions.Middleware": "TheHostMayPanic",
	"queue.Options.Codec":            "TheHostMayPanic",
	"queue.Options.Log":              "TheHostMayPanic",
	"pglock.LeaseOptions.Log":        "TestTheHostOfLocksMayPanic, of internal/lease",
	"mysqllock.LeaseOptions.Log":     "TestTheHostOfLocksMayPanic, of internal/lease",
	"pglock.SessionOptions.Log":      "TestEachFunctionOfTheHostIsGuarded, of internal/session",
	"mysqllock.SessionOptions.Log":   "TestEachFunctionOfTheHostIsGuarded, of internal/session",
	"inventory.Options.Log":          "TestALogMayPanic of package inventory",
	"migrations.Options.Logger":      "TestUpWithAPanickingLogger of package migrations",
}

// optionStructs are the structs by which a host hands functions over.
var optionStructs = []any{
	dblock.Observer{}, dblock.ElectorOptions{}, dblock.QuorumOptions{}, dblocktest.LeaseOptions{},
	queue.Options{}, queue.WorkerOptions{}, queue.Task{}, inventory.Options{}, migrations.Options{},
	pglock.LeaseOptions{}, pglock.SessionOptions{}, pglock.TxOptions{}, mysqllock.LeaseOptions{}, mysqllock.SessionOptions{}, mysqllock.TxOptions{},
}

// callables are the fields of a struct through which the host is called.
func callables(t reflect.Type, found map[string]bool) {
	for i := range t.NumField() {
		f := t.Field(i)
		kind := f.Type.Kind()
		if kind == reflect.Slice {
			kind = f.Type.Elem().Kind()
		}
		switch {
		case !f.IsExported(), f.Type == reflect.TypeFor[any]():
		case kind == reflect.Struct && f.Type.Kind() == reflect.Struct:
			callables(f.Type, found)
		case strings.HasSuffix(t.Name(), "Observer"):
			found[t.String()] = true
		case kind == reflect.Func, kind == reflect.Interface, f.Type == reflect.TypeFor[*slog.Logger]():
			found[t.String()+"."+f.Name] = true
		}
	}
}

// badLog panics at each record.
type badLog struct{ slog.Handler }

func (badLog) Enabled(context.Context, slog.Level) bool { return true }

func (badLog) Handle(context.Context, slog.Record) error { panic("a log's handler") }

// allPanic sets each function of a struct to one that panics.
func allPanic[T any](called func(string)) (funcs T) {
	return allEnd[T](called, func(name string) { panic(name) })
}

// allEnd sets each function of a struct to one that calls end.
func allEnd[T any](called, end func(string)) (funcs T) {
	v := reflect.ValueOf(&funcs).Elem()
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		v.Field(i).Set(reflect.MakeFunc(v.Field(i).Type(), func([]reflect.Value) []reflect.Value {
			called(name)
			end(name)
			return nil
		}))
	}
	return funcs
}

// callsAll calls each function of a struct; one that is not guarded panics.
func callsAll(t *testing.T, funcs any) {
	t.Helper()
	v := reflect.ValueOf(funcs)
	for i := range v.NumField() {
		args := make([]reflect.Value, v.Field(i).Type().NumIn())
		for n := range args {
			args[n] = reflect.Zero(v.Field(i).Type().In(n))
		}
		assert.NotPanics(t, func() { v.Field(i).Call(args) }, "%T.%s", funcs, v.Type().Field(i).Name)
	}
}

func TestEachFunctionOfTheHostIsGuarded(t *testing.T) {
	t.Parallel()
	found := make(map[string]bool)
	for _, host := range optionStructs {
		callables(reflect.TypeOf(host), found)
	}
	assert.ElementsMatch(t, slices.Collect(maps.Keys(found)), slices.Collect(maps.Keys(guarded)),
		"functions that are called, and those whose panics are shown to end nothing")
	var calls sync.Map // Lost and HeartbeatLate are called on goroutines of their own
	count := func(name string) { calls.Store(name, true) }
	log := slog.New(badLog{})
	locks := allPanic[dblock.Observer](count)
	callsAll(t, root.GuardObserver(locks, log))
	l := suite.Must(lease.Options{Observer: locks, Log: log}.WithDefaults("Options", time.Second))(t)
	callsAll(t, l.Observer)
	s := suite.Must(session.Options{Observer: locks, Log: log}.WithDefaults("Options", time.Second))(t)
	callsAll(t, s.Observer)
	s.Log.Error("to a handler that panics")
	observer := reflect.TypeFor[dblock.Observer]()
	for i := range observer.NumField() {
		name := observer.Field(i).Name
		passedOn := func() bool { _, is := calls.Load(name); return is }
		assert.Eventually(t, passedOn, time.Minute, time.Millisecond, "Observer.%s was not passed on", name)
	}
}

const hostOfLocks = "DBLOCK_TEST_HOST_OF_LOCKS"

// Whatever of the host's panics, or ends its goroutine: locks are acquired, lost and released, and
// others get them. It runs in a child process, which a panic would end.
func TestTheHostOfLocksMayPanic(t *testing.T) {
	t.Parallel()
	if os.Getenv(hostOfLocks) != "" {
		locksAmidPanics(t)
		return
	}
	for _, how := range []string{"panic", "exit"} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTheHostOfLocksMayPanic$", "-test.timeout=1m")
		cmd.Env = append(os.Environ(), hostOfLocks+"="+how)
		out, err := cmd.CombinedOutput()
		assert.NoError(t, err, "%s:\n%s", how, out)
	}
}

// hostEnds ends a function of the host of locks: it panics, or ends the goroutine as t.FailNow
// does.
func hostEnds(value string) {
	if os.Getenv(hostOfLocks) == "exit" {
		runtime.Goexit()
	}
	panic(value)
}

// typedNil is an error of a host's, whose methods take no nil pointer.
type typedNil struct{ error }

func (e *typedNil) Unwrap() error { return e.error }

var noError *typedNil

func locksAmidPanics(t *testing.T) {
	var mu sync.Mutex
	var calls []string
	count := func(name string) {
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, name)
	}
	observer := allEnd[dblock.Observer](count, hostEnds)
	var nodes []dblock.Locker
	var optionStructs []*dblocktest.LeaseLocker
	for range 3 {
		l := suite.Must(dblocktest.NewServer(nil).NewLeaseLocker(dblocktest.LeaseOptions{Observer: observer, TTL: time.Second}))(t)
		t.Cleanup(func() { _ = l.Close(context.Background()) })
		nodes, optionStructs = append(nodes, l), append(optionStructs, l)
	}
	q := suite.Must(dblock.NewQuorum(nodes, dblock.QuorumOptions{Observer: observer}))(t)
	t.Cleanup(func() { _ = q.Close(context.Background()) })
	for _, l := range []dblock.Locker{nodes[0], q} {
		lock := suite.Acquire(t, l, "k")
		suite.IsTaken(t, l, "k")
		suite.Release(t, lock)
		lock = suite.Acquire(t, l, "k")
		for _, host := range optionStructs {
			host.Evict()
		}
		<-lock.Context().Done()
		_ = lock.Release(t.Context())
		suite.IsFree(t, l, "k")
	}
	leadsAmidPanics(t, nodes[1])
	for _, name := range []string{"Acquired", "NotAcquired", "Released", "Lost"} {
		assert.Contains(t, calls, name)
	}
	retriesAmidPanics(t)
}

func leadsAmidPanics(t *testing.T, l dblock.Locker) {
	told := 0
	e := suite.Must(dblock.NewElector(l, "lead", dblock.ElectorOptions{Failed: func(error) { told++; hostEnds("failed") }}))(t)
	terms := 0
	err := e.Run(t.Context(), func(context.Context, dblock.Fence) error {
		if terms++; terms == 1 {
			return dblock.ErrFenced
		}
		return noError
	})
	assert.ErrorContains(t, err, "typedNil")
	assert.Equal(t, []int{2, 1}, []int{terms, told})
}

func retriesAmidPanics(t *testing.T) {
	conflicts := func(err error) bool { return errors.Is(err, dblock.ErrConflict) }
	o := retry.Options{Attempts: 5, OnRetry: func(int, error) { hostEnds("on retry") }}
	opts := []optimistic.Option{
		optimistic.OnConflict(func(error, int) { hostEnds("on conflict") }),
		optimistic.RetryIf(func(error) bool { hostEnds("retry if"); return true }),
	}
	for _, run := range []func(once func() error) error{
		func(once func() error) error { return retry.Run(t.Context(), o, conflicts, once) },
		func(once func() error) error {
			return optimistic.Do(t.Context(), func(context.Context, int) error { return once() }, opts...)
		},
	} {
		tries := 0
		assert.NoError(t, run(func() error {
			if tries++; tries < 3 {
				return fmt.Errorf("%w, says the test", dblock.ErrConflict)
			}
			return nil
		}))
		assert.Equal(t, 3, tries)
		assert.ErrorContains(t, run(func() error { return noError }), "typedNil")
	}
	bad := errors.New("of no kind")
	assert.ErrorIs(t, optimistic.Do(t.Context(), func(context.Context, int) error { return bad }, opts...), bad)
}
