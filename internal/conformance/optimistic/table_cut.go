package optimistic

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/optimistic"
)

// tableWrite is a call that writes the row id with version 1 and, of UpdateMany, the next one. It
// is atomic. The query counts how often it has written.
type tableWrite[DB any] struct {
	count string
	run   func(ctx context.Context, db DB, id int64) error
}

func tableWrites[DB any](t *testing.T, b *tables[DB]) map[string]tableWrite[DB] {
	table, mine := b.ints(t, "account"), set{"note": "mine"}
	require.NoError(t, table.Check(t.Context(), b.db))
	const noted = "SELECT count(*) FROM account WHERE id = %[1]d AND note = 'mine' AND version = 2"
	return map[string]tableWrite[DB]{
		"Update": {noted, func(ctx context.Context, db DB, id int64) error { return errOf(table.Update(ctx, db, id, 1, mine)) }},
		"Any":    {noted, func(ctx context.Context, db DB, id int64) error { return errOf(table.Any().Update(ctx, db, id, mine)) }},
		"Touch": {"SELECT version - 1 FROM account WHERE id = %[1]d",
			func(ctx context.Context, db DB, id int64) error { return errOf(table.Touch(ctx, db, id, 1)) }},
		"Delete": {"SELECT 1 - count(*) FROM account WHERE id = %[1]d",
			func(ctx context.Context, db DB, id int64) error { return table.Delete(ctx, db, id, 1) }},
		"Upsert": {"SELECT count(*) FROM account WHERE id = -%[1]d", func(ctx context.Context, db DB, id int64) error {
			return errOf(table.Upsert(ctx, db, -id, optimistic.Absent[int64](), set{"balance": 0}))
		}},
		"UpdateMany": {"SELECT count(*) / 2.0 FROM account WHERE id IN (%[1]d, %[1]d + 1) AND note = 'mine' AND version = 2",
			func(ctx context.Context, db DB, id int64) error {
				changes := []change{{Key: id, Expected: 1, Set: mine}, {Key: id + 1, Expected: 1, Set: mine}}
				return errOf(table.UpdateMany(ctx, db, changes, optimistic.AllOrNothing))
			}},
	}
}

// aWriteCutAnywhere: a write that returns nil is written, once. One that returns a conflict, or
// another error, is not. If the outcome is unknown it is either, whole. There is no conflict, for
// there is no other writer.
func aWriteCutAnywhere[DB any](t *testing.T, b *tables[DB]) {
	for name, w := range tableWrites(t, b) {
		t.Run(name, func(t *testing.T) {
			var outcomes unknownOutcomes
			suite.Everywhere(t, suite.Cuts(false), func(c suite.Cut, k int) (struck bool, err error) {
				x, err := b.cutTable(t)
				if err != nil {
					return false, err
				}
				defer x.end()
				ctx, cancel := cutContext(t, c)
				defer cancel()
				x.dialer.Arm(k, c.Mode, cancel)
				told := w.run(ctx, x.db, x.id)
				struck = x.dialer.Disarm()
				x.dialer.Release()
				x.dialer.CloseAll() // a server whose client is silent keeps what it has locked
				n, err := b.written(t, w.count, x.id)
				if err != nil {
					return struck, err
				}
				outcomes.note(told, n)
				if errors.Is(told, optimistic.ErrConflict) || errors.Is(told, optimistic.ErrNotFound) {
					return struck, fmt.Errorf("there is no other writer, and yet: %w", told)
				}
				return struck, checkCut(told, n, struck || ctx.Err() != nil)
			})
			outcomes.check(t)
		})
	}
}

// checkCut says what is wrong with what a caller was told of a write that was made n times.
func checkCut(told error, n float64, disturbed bool) error {
	unknown := errors.Is(told, dblock.ErrOutcomeUnknown)
	switch {
	case n != 0 && n != 1, !unknown && (told == nil) != (n == 1):
		return fmt.Errorf("told %w: it was written %v times", told, n)
	case told != nil && !disturbed:
		return fmt.Errorf("undisturbed, and yet: %w", told)
	}
	return nil
}

// cutTable is for one trial: two rows of its own, and a pool of one connection on a dialer that
// strikes.
type cutTable[DB any] struct {
	id     int64
	dialer faultconn.Dialer
	db     DB
	closed func()
}

var lastCut atomic.Int64

func (b *tables[DB]) cutTable(t *testing.T) (x *cutTable[DB], err error) {
	x = &cutTable[DB]{id: 1000 + 2*lastCut.Add(1)}
	if _, err := b.ExecContext(t.Context(), fmt.Sprintf("INSERT INTO account (id, balance) VALUES (%d, 0), (%d, 0)", x.id, x.id+1)); err != nil {
		return nil, err
	}
	if x.db, _, x.closed, err = b.e.Open(cutDSN(b.DB), &x.dialer, 1); err != nil {
		return nil, err
	}
	warm, err := b.e.Int("account", "id", optimistic.Int("version")) // dials
	if err == nil {
		_, err = warm.Version(t.Context(), x.db, x.id)
	}
	return x, err
}

func (x *cutTable[DB]) end() {
	x.dialer.CloseAll()
	x.closed()
}

// written counts when all that is under way has ended: it waits for the locks of the rows.
func (b *tables[DB]) written(t *testing.T, count string, id int64) (n float64, err error) {
	tx, err := b.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelSerializable}) // on MySQL and MariaDB all it reads is locked
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }()
	if b.Postgres() { // an insert that is under way has no row to wait for
		_, err = tx.ExecContext(t.Context(), "LOCK TABLE account IN SHARE MODE")
	}
	if err == nil {
		err = tx.QueryRowContext(t.Context(), fmt.Sprintf(count, id)).Scan(&n)
	}
	return n, err
}

// aRepeatIsWrittenOnce: the same write with the same version may be sent again after an unknown
// outcome, until the answer is that it is written, or a conflict.
func aRepeatIsWrittenOnce[DB any](t *testing.T, b *tables[DB]) {
	w := tableWrites(t, b)["Update"]
	suite.Everywhere(t, []suite.Cut{{Mode: faultconn.CutBefore}, {Mode: faultconn.CutAfter}}, func(c suite.Cut, k int) (struck bool, err error) {
		x, err := b.cutTable(t)
		if err != nil {
			return false, err
		}
		defer x.end()
		x.dialer.Arm(k, c.Mode, nil)
		told := w.run(t.Context(), x.db, x.id)
		for range 3 {
			if errors.Is(told, dblock.ErrOutcomeUnknown) || errors.Is(told, dblock.ErrUnavailable) {
				told = w.run(t.Context(), x.db, x.id)
			}
		}
		struck = x.dialer.Disarm()
		n, err := b.written(t, w.count, x.id)
		if err == nil && (n != 1 || told != nil && !errors.Is(told, optimistic.ErrConflict)) {
			err = fmt.Errorf("told %w: it was written %v times", told, n)
		}
		return struck, err
	})
}

// controlARepeatIsTakenForOthers: a caller that repeats a write whatever its error meets its own
// write as a conflict.
func controlARepeatIsTakenForOthers[DB any](t *testing.T, b *tables[DB]) {
	w := tableWrites(t, b)["Update"]
	for k := 1; ; k++ {
		x := must(b.cutTable(t))(t)
		x.dialer.Arm(k, faultconn.CutAfter, nil)
		told := w.run(t.Context(), x.db, x.id)
		struck := x.dialer.Disarm()
		if told != nil {
			told = w.run(t.Context(), x.db, x.id)
		}
		n := must(b.written(t, w.count, x.id))(t)
		x.end()
		if errors.Is(told, optimistic.ErrConflict) && n == 1 {
			return
		}
		require.True(t, struck, "the test would pass if writes were repeated that may have been made")
	}
}
