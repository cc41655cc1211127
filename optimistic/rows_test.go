package optimistic_test

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/optimistic"
)

var (
	at      = optimistic.Row{Table: "account", Key: 17, Expected: 3}
	errMine = errors.New("the statement's own")
)

// counted is a sql.Result.
type counted struct {
	n   int64
	err error
}

func (c counted) RowsAffected() (int64, error) { return c.n, c.err }

// TestAdapters: the same for every form in which a driver returns the number of rows.
func TestAdapters(t *testing.T) {
	t.Parallel()
	adapters := map[string]func(n int64, err error) error{
		"Rows":   func(n int64, err error) error { return optimistic.Rows(n, err, at) },
		"Result": func(n int64, err error) error { return optimistic.Result(counted{n, nil}, err, at) },
		"Tag": func(n int64, err error) error {
			return optimistic.Tag(pgconn.NewCommandTag(fmt.Sprintf("UPDATE %d", n)), err, at)
		},
	}
	for name, adapt := range adapters {
		if err := adapt(1, nil); err != nil {
			t.Errorf("%s: one row: %v", name, err)
		}
		if err := adapt(0, errMine); err != errMine {
			t.Errorf("%s: an error came as %v", name, err)
		}
		var conflict *optimistic.StaleError
		if err := adapt(0, nil); !errors.Is(err, optimistic.ErrStale) || !errors.As(err, &conflict) ||
			conflict.Table != "account" || conflict.Key != 17 || conflict.Expected != 3 {
			t.Errorf("%s: no row: %v", name, err)
		}
		var many *optimistic.TooManyError
		if err := adapt(2, nil); !errors.Is(err, optimistic.ErrTooMany) || !errors.As(err, &many) || many.Rows != 2 || many.Key != 17 {
			t.Errorf("%s: two rows: %v", name, err)
		}
	}
}

func TestWhatNobodyCounted(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"Rows":   optimistic.Rows(-1, nil, at),
		"Result": optimistic.Result(counted{0, errMine}, nil, at),
	} {
		if !errors.Is(err, dblock.ErrOutcomeUnknown) || errors.Is(err, optimistic.ErrStale) || !strings.Contains(err.Error(), "account 17") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, err := range map[string]error{"Result": optimistic.Result(nil, nil, at), "Tag": optimistic.Tag(nil, nil, at)} {
		if !errors.As(err, new(*dblock.InvalidError)) {
			t.Errorf("%s of nil: %v", name, err)
		}
	}
	if err := optimistic.Result(nil, errMine, at); err != errMine {
		t.Errorf("an error without a result came as %v", err)
	}
	if err := optimistic.Tag(nil, errMine, at); err != errMine {
		t.Errorf("an error without a tag came as %v", err)
	}
}

func TestOne(t *testing.T) {
	t.Parallel()
	if row, err := optimistic.One("new", nil, at); row != "new" || err != nil {
		t.Errorf("got %q, %v", row, err)
	}
	for _, none := range []error{sql.ErrNoRows, pgx.ErrNoRows, fmt.Errorf("a service: %w", pgx.ErrNoRows)} {
		row, err := optimistic.One("half", none, at)
		if row != "" || !errors.Is(err, optimistic.ErrStale) || errors.Is(err, sql.ErrNoRows) {
			t.Errorf("%v came as %q, %v", none, row, err)
		}
	}
	if row, err := optimistic.One("half", errMine, at); row != "" || err != errMine {
		t.Errorf("got %q, %v", row, err)
	}
}
