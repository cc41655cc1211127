package queue

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestJobContext: whenever it is asked for, the context is what one would be that was made at once.
func TestJobContext(t *testing.T) {
	t.Parallel()
	type key struct{}
	gone := errors.New("gone")
	type step func(c *jobContext, above context.CancelCauseFunc)
	ask := func(c *jobContext, _ context.CancelCauseFunc) { _ = c.Done() }
	lose := func(_ *jobContext, above context.CancelCauseFunc) { above(gone) }
	cancel := func(c *jobContext, _ context.CancelCauseFunc) { c.end(ErrCancelled) }
	end := func(c *jobContext, _ context.CancelCauseFunc) { c.end(nil) }
	late := func(c *jobContext, _ context.CancelCauseFunc) { // before anything is asked
		c.deadline = time.Now().Add(-time.Hour)
	}
	for name, c := range map[string]struct {
		steps    []step
		err      error
		cause    error
		timedOut bool
	}{
		"it runs":               {nil, nil, nil, false},
		"lost":                  {[]step{ask, lose}, context.Canceled, gone, false},
		"lost, asked later":     {[]step{lose}, context.Canceled, gone, false},
		"cancelled":             {[]step{ask, cancel, end}, context.Canceled, ErrCancelled, false},
		"cancelled, and later":  {[]step{cancel, end}, context.Canceled, ErrCancelled, false},
		"over":                  {[]step{ask, end}, context.Canceled, context.Canceled, false},
		"over, asked later":     {[]step{end, cancel}, context.Canceled, context.Canceled, false},
		"late":                  {[]step{late, ask}, context.DeadlineExceeded, ErrTimeout, true},
		"late, asked later":     {[]step{late}, context.DeadlineExceeded, ErrTimeout, true},
		"late, but lost before": {[]step{late, lose}, context.Canceled, gone, false},
		"late, but cancelled":   {[]step{late, cancel}, context.Canceled, ErrCancelled, false},
	} {
		above, stop := context.WithCancelCause(context.WithValue(context.Background(), key{}, name))
		made := &jobContext{above: above, deadline: time.Now().Add(time.Hour)}
		for _, s := range c.steps {
			s(made, stop)
		}
		if got := made.timedOut(); got != c.timedOut {
			t.Errorf("%s: timed out %v", name, got)
		}
		if err, cause := made.Err(), context.Cause(made); !errors.Is(err, c.err) || cause != c.cause {
			t.Errorf("%s: %v, because of %v", name, err, cause)
		}
		select {
		case <-made.Done():
			if c.err == nil {
				t.Errorf("%s: it is done", name)
			}
		default:
			if c.err != nil {
				t.Errorf("%s: it is not done", name)
			}
		}
		if made.Value(key{}) != name {
			t.Errorf("%s: a value is missing", name)
		}
		below, free := context.WithCancel(made)
		made.end(nil)
		<-below.Done()
		free()
		stop(nil)
	}
}

// TestJobContextTimesOut: a deadline ends it, and nothing else.
func TestJobContextTimesOut(t *testing.T) {
	t.Parallel()
	c := &jobContext{above: context.Background(), deadline: time.Now().Add(time.Millisecond)}
	defer c.end(nil)
	<-c.Done()
	if !c.timedOut() || context.Cause(c) != ErrTimeout {
		t.Error(context.Cause(c))
	}
	forever := &jobContext{above: context.Background()}
	if at, has := forever.Deadline(); has || forever.timedOut() || forever.Err() != nil {
		t.Error(at, forever.Err())
	}
}
