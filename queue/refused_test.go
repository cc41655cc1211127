package queue

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// TestPassedJobsAreTriedOneByOne: of jobs whose time is up one is on trial at a time. When one
// could be claimed, all others are tried.
func TestPassedJobsAreTriedOneByOne(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	p := make(passed[driver.ID])
	for i := range 5 {
		p.add(driver.ID{byte(i + 1)}, now)
	}
	if not, trial := p.next(now, driver.ID{}, true); len(not) != 5 || trial != (driver.ID{}) {
		t.Errorf("at once: %d are passed over, on trial is %v", len(not), trial)
	}
	later := now.Add(2 * firstPass)
	if not, trial := p.next(later, driver.ID{}, false); len(not) != 5 || trial != (driver.ID{}) {
		t.Errorf("without a trial: %d are passed over, on trial is %v", len(not), trial)
	}
	tried := make(map[driver.ID]bool)
	for range 5 {
		not, trial := p.next(later, driver.ID{}, true)
		if len(not) != 4 || slices.Contains(not, trial) || tried[trial] {
			t.Errorf("%d are passed over, on trial is %v", len(not), trial)
		}
		tried[trial] = true
	}
	if not, _ := p.next(later, driver.ID{}, true); len(not) != 5 {
		t.Errorf("while all are on trial, %d are passed over", len(not))
	}
	p.tryAll(later)
	if _, trial := p.next(later, driver.ID{}, true); trial == (driver.ID{}) {
		t.Error("none is on trial")
	}
	if not, trial := p.next(now, driver.ID{3}, false); len(not) != 4 || trial != (driver.ID{3}) {
		t.Errorf("beside a suspect %d are passed over, on trial is %v", len(not), trial)
	}
}

// refusingRows is a driver that refuses the end of odd jobs.
type refusingRows struct {
	driver.Driver
	err sqlerr.Class
}

func (d refusingRows) Classify(error) sqlerr.Class { return d.err }

// TestPartsFindAllThatAreRefused: whatever their number, the others are written.
func TestPartsFindAllThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, is := range []sqlerr.Class{sqlerr.BadInput, sqlerr.Unclassified} {
		db := newStatements(refusingRows{err: is}, time.Second)
		items := make([]int, 1000)
		for i := range items {
			items[i] = i
		}
		var written, refused []int
		err := inParts(db, items, func(some []int) error {
			if slices.ContainsFunc(some, func(i int) bool { return i%2 == 1 }) {
				return errRefused
			}
			written = append(written, some...)
			return nil
		}, func(i int, _ error) error {
			refused = append(refused, i)
			return nil
		})
		if err != nil || len(written) != 500 || len(refused) != 500 {
			t.Errorf("%v: %d are written and %d refused, with %v", is, len(written), len(refused), err)
		}
		err = inParts(db, items, func([]int) error { return context.DeadlineExceeded }, func(int, error) error { return nil })
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after a timeout: %v", err)
		}
	}
}
