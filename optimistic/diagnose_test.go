package optimistic_test

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/optimistic"
)

func TestDiagnose(t *testing.T) {
	t.Parallel()
	conflict := &optimistic.StaleError{Table: "account", Key: 17, Expected: 3}
	for name, err := range map[string]error{"bare": conflict, "in another": fmt.Errorf("a service: %w", conflict)} {
		looks := 0
		got := optimistic.Diagnose(err, func() (int64, error) { looks++; return 5, nil })
		var found *optimistic.StaleError
		if !errors.As(got, &found) || found.Actual != int64(5) || found == conflict || looks != 1 || !errors.Is(got, optimistic.ErrStale) {
			t.Errorf("%s: %d looks, %v", name, looks, got)
		}
		if !strings.Contains(got.Error(), "it is at 5;") || name == "in another" && !strings.Contains(got.Error(), "a service") {
			t.Errorf("%s: it says %v", name, got)
		}
		for _, none := range []error{sql.ErrNoRows, pgx.ErrNoRows} {
			got := optimistic.Diagnose(err, func() (int, error) { return 0, none })
			var gone *optimistic.NotFoundError
			if !errors.As(got, &gone) || gone.Key != 17 || gone.Table != "account" || errors.Is(got, optimistic.ErrStale) {
				t.Errorf("%s: no row gave %v", name, got)
			}
		}
		got = optimistic.Diagnose(err, func() (int, error) { return 0, errMine })
		if !errors.Is(got, optimistic.ErrStale) || !errors.Is(got, errMine) {
			t.Errorf("%s: a look that failed gave %v", name, got)
		}
		got = optimistic.Diagnose[int](err, nil)
		if !errors.Is(got, optimistic.ErrStale) || !errors.Is(got, dblock.ErrInvalid) {
			t.Errorf("%s: without a look: %v", name, got)
		}
	}
	if conflict.Actual != nil {
		t.Errorf("the error that was given has changed: %v", conflict)
	}
}

// TestDiagnoseOfOthers: what is no conflict is not looked into.
func TestDiagnoseOfOthers(t *testing.T) {
	t.Parallel()
	for _, err := range []error{nil, errMine, sql.ErrNoRows, dblock.ErrConflict} {
		got := optimistic.Diagnose(err, func() (int, error) { t.Errorf("%v: it looked", err); return 0, nil })
		if got != err {
			t.Errorf("%v came as %v", err, got)
		}
	}
}

// TestDiagnoseOfOneThatCameBack: it is a conflict all the same, and its text says what may have
// happened.
func TestDiagnoseOfOneThatCameBack(t *testing.T) {
	t.Parallel()
	now := time.Now().Round(0)
	for _, pair := range [][2]any{{3, int64(3)}, {now, now.UTC()}, {[]byte{1}, []byte{1}}} {
		err := optimistic.Diagnose(optimistic.Rows(0, nil, optimistic.Row{Table: "account", Key: 17, Expected: pair[0]}),
			func() (any, error) { return pair[1], nil })
		if !errors.Is(err, optimistic.ErrStale) || !strings.Contains(err.Error(), "come back to that, or another write was under way") {
			t.Errorf("%v: %v", pair, err)
		}
	}
}
