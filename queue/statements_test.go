package queue

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// silent is a driver whose statements get no answer.
type silent struct {
	driver.Driver
	exhausted bool
}

func (e *silent) Exhausted() bool { return e.exhausted }

func (*silent) Classify(error) sqlerr.Class { return sqlerr.Unresolved }

// TestPatienceGrowsForStatementsAlone: a statement that was cut off takes twice the time and half
// the rows the next time. One that waited for a connection takes as much as before.
func TestPatienceGrowsForStatementsAlone(t *testing.T) {
	t.Parallel()
	const timeout = 10 * time.Millisecond
	for _, exhausted := range []bool{false, true} {
		s := newStatements(&silent{exhausted: exhausted}, timeout)
		for range 2 {
			within, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			tries := 0
			err := s.inSteps(within, "waiting", 8, func(ctx context.Context, _ int) error {
				if tries++; tries == 4 {
					cancel()
				}
				<-ctx.Done()
				return ctx.Err()
			})
			cancel()
			if err == nil {
				t.Error("no error")
			}
			if exhausted != (tries == 1) || !exhausted && !errors.Is(err, context.Canceled) {
				t.Errorf("exhausted %v: %d tries: %v", exhausted, tries, err)
			}
		}
		rows, patience := 1, 64*timeout
		if exhausted {
			rows, patience = 8, timeout
		}
		if n, d := s.step("waiting", 8), s.patienceFor("waiting"); n != rows || d != patience {
			t.Errorf("exhausted %v: %d rows in %v, want %d in %v", exhausted, n, d, rows, patience)
		}
	}
}

// TestStepsGrowAgain: fewer rows after a statement that was cut off are more again if they are not
// what takes long.
func TestStepsGrowAgain(t *testing.T) {
	t.Parallel()
	const timeout, most = 8 * time.Second, 1024
	for _, c := range []struct {
		name         string
		passing, row time.Duration // what one statement takes, and each of its rows
		from, to     int           // rows that a statement takes in the end
	}{
		{"deleted rows", 20 * time.Second, time.Microsecond, most, most},
		{"slow rows", 0, 40 * time.Millisecond, 64, 512},
		{"all is quick", time.Millisecond, time.Microsecond, most, most},
	} {
		s := newStatements(nil, timeout)
		patience, n := timeout, 0
		for range 20 {
			n = s.step("", most)
			took := c.passing + time.Duration(n)*c.row
			cut := took > patience
			if cut {
				patience *= 2
			} else {
				patience = max(2*took, timeout)
			}
			s.stepped("", n, took, cut)
		}
		if n < c.from || n > c.to {
			t.Errorf("%s: %d rows, want %d to %d", c.name, n, c.from, c.to)
		}
	}
}

// TestNothingIsSentWithAnEndedContext: the error says so, and its outcome is not unknown.
func TestNothingIsSentWithAnEndedContext(t *testing.T) {
	t.Parallel()
	s := newStatements(&silent{}, time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	sent := func(context.Context) error { t.Error("it was sent"); return nil }
	for what, call := range map[string]func() error{
		"again": func() error { return s.again(ctx, "waiting", sent) },
		"inSteps": func() error {
			return s.inSteps(ctx, "waiting", 8, func(ctx context.Context, _ int) error { return sent(ctx) })
		},
	} {
		if err := call(); !errors.Is(err, context.Canceled) || errors.Is(err, dblock.ErrOutcomeUnknown) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
