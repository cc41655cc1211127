package ctxerr

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestTheErrorIsTheContextsOwn(t *testing.T) {
	t.Parallel()
	wrapped := errors.New("its write has no known outcome")
	cause := fmt.Errorf("another call failed: %w", wrapped)
	cancelled, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	late, stop := context.WithDeadlineCause(t.Context(), time.Now().Add(-time.Second), cause)
	defer stop()
	for ctx, want := range map[context.Context]error{cancelled: context.Canceled, late: context.DeadlineExceeded} {
		child, stop := context.WithTimeout(ctx, time.Hour)
		defer stop()
		for _, err := range []error{Of(ctx), Of(child)} {
			if !errors.Is(err, want) || !errors.Is(err, cause) || errors.Is(err, wrapped) || !strings.Contains(err.Error(), cause.Error()) {
				t.Errorf("%v, want one that matches %v and its cause, and nothing else", err, want)
			}
		}
	}
	plain, end := context.WithCancel(t.Context())
	if err := Of(plain); err != nil {
		t.Errorf("%v, of a context that lives", err)
	}
	if end(); Of(plain) != context.Canceled {
		t.Error(Of(plain))
	}
}

type list []string // not comparable

func (l list) Error() string { return strings.Join(l, ", ") }

func TestACauseMayNotBeComparable(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(list{"one", "two"})
	if err := Of(ctx); errors.Is(err, context.DeadlineExceeded) || err.Error() != "context canceled: one, two" {
		t.Error(err)
	}
}
