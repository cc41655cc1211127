package callback_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/internal/callback"
)

// bad is a handler that panics.
type bad struct{ slog.Handler }

func (bad) Enabled(context.Context, slog.Level) bool { panic("a bad handler") }

// worse is one that panics later.
type worse struct{ bad }

func (worse) Enabled(context.Context, slog.Level) bool { return true }

func TestPanicsEndHere(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	for _, log := range []*slog.Logger{slog.New(slog.NewTextHandler(&text, nil)), nil, slog.New(bad{}), slog.New(worse{})} {
		callback.Func1(log, func(int) { panic("of one") })(1)
		callback.Func2(log, func(int, string) { panic("of two") })(1, "")
		callback.Func3(log, func(int, string, error) { panic("of three") })(1, "", nil)
		safe := callback.Logger(log).With("a", 1).WithGroup("g").With("b", 2)
		safe.Error("fine", "error", (*hosts)(nil))
	}
	for _, want := range []string{"panicked: of one", "panicked: of two", "panicked: of three", "msg=fine a=1 g.b=2"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the log lacks %q: %s", want, text.String())
		}
	}
	if callback.Func1[int](nil, nil) != nil || callback.Func2[int, int](nil, nil) != nil || callback.Func3[int, int, int](nil, nil) != nil {
		t.Error("what was nil is called")
	}
	if log := callback.Logger(nil); callback.Logger(log) == nil {
		t.Error("no log")
	}
}

// hosts is an error whose methods take no nil pointer.
type hosts struct {
	text string
	in   error
}

func (e *hosts) Error() string { return e.text }
func (e *hosts) Unwrap() error { return e.in }

// unwraps is one whose Unwrap alone panics.
type unwraps struct{ *hosts }

func (unwraps) Error() string   { return "unwraps" }
func (e unwraps) Unwrap() error { return e.in }

// isAnything is one whose Is alone panics; asAnything one whose As does.
type isAnything struct{ error }

func (isAnything) Is(error) bool { panic("is") }

type asAnything struct{ error }

func (asAnything) As(any) bool { panic("as") }

func TestSound(t *testing.T) {
	t.Parallel()
	good := fmt.Errorf("of %w and %w", io.EOF, &hosts{"fine", io.ErrClosedPipe})
	if callback.Sound(nil) != nil || callback.Sound(good) != good {
		t.Error("a good error is another one")
	}
	var none *hosts
	for _, err := range []error{none, unwraps{}, isAnything{io.EOF}, asAnything{io.EOF}} {
		for _, err := range []error{err, fmt.Errorf("around: %w", err), errors.Join(io.EOF, err)} {
			got := callback.Sound(err)
			if want := fmt.Sprintf("%T", err); !strings.Contains(got.Error(), want) {
				t.Errorf("%q does not name %s", got, want)
			}
			if errors.Is(got, io.ErrClosedPipe) || errors.Unwrap(got) != nil {
				t.Errorf("%v wraps what panics", got)
			}
		}
	}
}

// doubly panics with a value that can't be formatted.
type doubly struct{}

func (doubly) String() string { panic(doubly{}) }

func TestTry(t *testing.T) {
	t.Parallel()
	if err := callback.Try(func() {}); err != nil {
		t.Error(err)
	}
	if err := callback.Try(func() { panic(doubly{}) }); err == nil || !strings.Contains(err.Error(), "doubly") || !strings.Contains(err.Error(), "callback_test.go") {
		t.Error(err)
	}
	left := false
	err := callback.Try(func() {
		defer func() { left = true }()
		runtime.Goexit()
	})
	if err == nil || !strings.Contains(err.Error(), "runtime.Goexit") || !left {
		t.Error(err)
	}
}
