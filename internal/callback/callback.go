// Package callback calls functions of the host. If they panic, or end their goroutine, neither the
// process nor the caller ends: an observer that does so after a lock was acquired would leave the
// lock without an owner.
package callback

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
)

// Try calls f and waits for it. If f panics, or ends its goroutine (runtime.Goexit, as t.FailNow
// does), the error says so. f runs on a goroutine of its own, since nothing else keeps the caller's
// alive. That costs about a microsecond.
func Try(f func()) error {
	done := make(chan error)
	go func() {
		err := errExit
		defer func() { done <- err }()
		err = Recover(f)
	}()
	return <-done
}

var errExit = errors.New("ended its goroutine (runtime.Goexit)")

// Recover calls f on the caller's goroutine. If f panics, the error says with what, and where. If f
// calls runtime.Goexit, the caller's goroutine ends: Recover is for calls that leave nothing behind
// then.
func Recover(f func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicked{p, debug.Stack()}
		}
	}()
	f()
	return nil
}

// panicked is a panic of the host's. It wraps nothing: the methods of the value may panic as well.
type panicked struct {
	value any
	stack []byte
}

func (e *panicked) Error() string { return "panicked: " + text(e.value) + "\n" + string(e.stack) }

// text formats a value. The fmt package lets a panic pass if its value panics as well when it is
// formatted.
func text(v any) (s string) {
	defer func() {
		if recover() != nil {
			s = fmt.Sprintf("a %T that can't be formatted", v)
		}
	}()
	return fmt.Sprint(v)
}

// Safely calls f. It writes the error of Try to log, which may be nil.
func Safely(log *slog.Logger, f func()) {
	if err := Try(f); err != nil && log != nil {
		_ = Try(func() { log.Error("dblock: a function of the host failed", "error", err) }) // so may the log's own handler
	}
}

// Func1 returns a function that calls f safely; nil for nil.
func Func1[A any](log *slog.Logger, f func(A)) func(A) {
	if f == nil {
		return nil
	}
	return func(a A) { Safely(log, func() { f(a) }) }
}

// Func2 is Func1 of two arguments.
func Func2[A, B any](log *slog.Logger, f func(A, B)) func(A, B) {
	if f == nil {
		return nil
	}
	return func(a A, b B) { Safely(log, func() { f(a, b) }) }
}

// Func3 is Func1 of three arguments.
func Func3[A, B, C any](log *slog.Logger, f func(A, B, C)) func(A, B, C) {
	if f == nil {
		return nil
	}
	return func(a A, b B, c C) { Safely(log, func() { f(a, b, c) }) }
}

// Async2 returns a function that has f called safely on a goroutine of its own, and does not wait;
// nil for nil.
func Async2[A, B any](log *slog.Logger, f func(A, B)) func(A, B) {
	if f == nil {
		return nil
	}
	return func(a A, b B) { go Safely(log, func() { f(a, b) }) }
}

// Async3 is Async2 of three arguments.
func Async3[A, B, C any](log *slog.Logger, f func(A, B, C)) func(A, B, C) {
	if f == nil {
		return nil
	}
	return func(a A, b B, c C) { go Safely(log, func() { f(a, b, c) }) }
}

// Logger returns a log whose handler is called safely; nil is a log that discards everything.
func Logger(log *slog.Logger) *slog.Logger {
	if log == nil {
		return slog.New(slog.DiscardHandler)
	}
	if _, is := log.Handler().(handler); is {
		return log
	}
	return slog.New(handler{log.Handler()})
}

// handler drops the records at which the host's handler panics.
type handler struct{ host slog.Handler }

func (h handler) Enabled(ctx context.Context, l slog.Level) (is bool) {
	_ = Try(func() { is = h.host.Enabled(ctx, l) })
	return is
}

func (h handler) Handle(ctx context.Context, r slog.Record) (err error) {
	if p := Try(func() { err = h.host.Handle(ctx, r) }); p != nil {
		return p
	}
	return err
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	_ = Try(func() { h.host = h.host.WithAttrs(attrs) })
	return h
}

func (h handler) WithGroup(name string) slog.Handler {
	_ = Try(func() { h.host = h.host.WithGroup(name) })
	return h
}

// Sound returns an error of the host's as it is, unless one of its methods panics, as those of a
// nil pointer may. Then it returns an error that says so and wraps nothing.
func Sound(err error) error {
	if err == nil {
		return nil
	}
	if p := Recover(func() {
		_ = err.Error()
		_ = errors.Is(err, errProbe)
		_ = errors.As(err, new(*probe))
	}); p != nil {
		return &unsound{fmt.Sprintf("%T", err), p}
	}
	return err
}

var errProbe error = &probe{}

// probe is no error of the host's: to look for it calls all methods of one.
type probe struct{}

func (*probe) Error() string { return "" }

type unsound struct {
	of    string
	panic error
}

func (e *unsound) Error() string {
	return fmt.Sprintf("an error of type %s, whose methods panic; if it is a nil pointer, return a plain nil: %v", e.of, e.panic)
}
