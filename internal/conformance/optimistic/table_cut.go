package optimistic

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/optimistic"
)

// tableWrites are the calls of a Table that write, on the row id with version 1 and, of UpdateMany, on the next one. Each is
// atomic. marked tells, as SQL's sum, how often it was written.
func tableWrites[DB any](t *testing.T, b *bank[DB]) map[string]tableWrite[DB] {
	table := b.ints(t, "account")
	require.NoError(t, table.Check(t.Context(), b.db), "check")
	set := optimistic.Set{"note": "mine"}
	const noted = "SELECT count(*) FROM account WHERE id = %[1]d AND note = 'mine' AND version = 2"
	return map[string]tableWrite[DB]{
		"Update": {noted, func(ctx context.Context, db DB, id int64) error {
			_, err := table.Update(ctx, db, id, 1, set)
			return err
		}},
		"Any": {noted, func(ctx context.Context, db DB, id int64) error {
			_, err := table.Any().Update(ctx, db, id, set)
			return err
		}},
		"Touch": {"SELECT version - 1 FROM account WHERE id = %[1]d", func(ctx context.Context, db DB, id int64) error {
			_, err := table.Touch(ctx, db, id, 1)
			return err
		}},
		"Delete": {"SELECT 1 - count(*) FROM account WHERE id = %[1]d", func(ctx context.Context, db DB, id int64) error {
			return table.Delete(ctx, db, id, 1)
		}},
		"Upsert": {"SELECT count(*) FROM account WHERE id = -%[1]d", func(ctx context.Context, db DB, id int64) error {
			_, err := table.Upsert(ctx, db, -id, optimistic.Absent[int64](), optimistic.Set{"balance": 0})
			return err
		}},
		"UpdateMany": {
			"SELECT count(*) / 2.0 FROM account WHERE id IN (%[1]d, %[1]d + 1) AND note = 'mine' AND version = 2",
			func(ctx context.Context, db DB, id int64) error {
				_, err := table.UpdateMany(ctx, db, []change{
					{Key: id, Expected: 1, Set: set}, {Key: id + 1, Expected: 1, Set: set},
				}, optimistic.AllOrNothing)
				return err
			},
		},
	}
}

// tableWrite is a call, and a query that counts how often it has written.
type tableWrite[DB any] struct {
	count string
	run   func(ctx context.Context, db DB, id int64) error
}

// tableWritesCutAnywhere: who is told nil has it written, once; who is told of a conflict, or of another error, has not; where
// the outcome is unknown it is either, whole. A conflict is told of nobody's doing but the caller's own: there is no other.
func tableWritesCutAnywhere[DB any](t *testing.T, b *bank[DB]) {
	for name, w := range tableWrites(t, b) {
		t.Run(name, func(t *testing.T) {
			var unknown, lost atomic.Int64 // lost: it is written, and the answer did not come
			suite.Everywhere(t, suite.Cuts(false), func(c suite.Cut, k int) (struck bool, err error) {
				x, err := b.cutTable(t)
				if err != nil {
					return false, err
				}
				defer x.end()
				ctx, cancel := context.WithCancel(t.Context())
				if c.Slow() {
					ctx, cancel = context.WithTimeout(t.Context(), suite.CutTimeout)
				}
				defer cancel()
				x.dialer.Arm(k, c.Mode, cancel)
				told := w.run(ctx, x.db, x.id)
				struck = x.dialer.Disarm()
				x.dialer.Release()
				x.dialer.CloseAll() // a server that nobody answers keeps what it has locked
				n, err := b.times(t, w.count, x.id)
				if err != nil {
					return struck, err
				}
				if errors.Is(told, dblock.ErrOutcomeUnknown) {
					unknown.Add(1)
					lost.Add(int64(n))
				}
				return struck, checkCut(told, n, struck || ctx.Err() != nil)
			})
			t.Logf("%d outcomes were unknown, %d of them written", unknown.Load(), lost.Load())
			if unknown.Load() == 0 || lost.Load() == 0 {
				t.Errorf("%d outcomes were unknown, %d of them written: the test has cut no write", unknown.Load(), lost.Load())
			}
		})
	}
}

// checkCut says what is wrong with what a caller was told of a write that was made n times.
func checkCut(told error, n float64, disturbed bool) error {
	unknown := errors.Is(told, dblock.ErrOutcomeUnknown)
	switch {
	case n != 0 && n != 1:
		return fmt.Errorf("told %w: it was written %v times", told, n)
	case !unknown && (told == nil) != (n == 1):
		return fmt.Errorf("told %w: it was written %v times", told, n)
	case errors.Is(told, optimistic.ErrConflict), errors.Is(told, optimistic.ErrNotFound):
		return fmt.Errorf("nobody else has written, and yet: %w", told)
	case told != nil && !disturbed:
		return fmt.Errorf("undisturbed, and yet: %w", told)
	}
	return nil
}

// cutTable is for one trial: two rows of its own, and a pool of one connection on a dialer that strikes.
type cutTable[DB any] struct {
	id     int64
	dialer faultconn.Dialer
	db     DB
	closed func()
}

func (b *bank[DB]) cutTable(t *testing.T) (x *cutTable[DB], err error) {
	x = &cutTable[DB]{id: 1000 + 2*lastCut.Add(1)}
	for i := range int64(2) {
		if _, err := b.sql.ExecContext(t.Context(), fmt.Sprintf("INSERT INTO account (id, balance) VALUES (%d, 0)", x.id+i)); err != nil {
			return nil, err
		}
	}
	dsn := b.dsn
	if b.e.Kind != devdb.Postgres {
		dsn = suite.AppendQuery(dsn, "readTimeout=2s") // nothing else bounds a commit of database/sql's
		if os.Getenv(suite.EnvSoak) == "" {
			dsn = suite.AppendQuery(dsn, "interpolateParams=true") // to close a prepared statement has no answer, for which a late call waits
		}
	}
	x.db, _, x.closed, err = b.e.Open(dsn, &x.dialer, 1)
	if err != nil {
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

// times asks when all that is under way has ended: it waits for the locks of the rows.
func (b *bank[DB]) times(t *testing.T, count string, id int64) (n float64, err error) {
	tx, err := b.sql.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelSerializable}) // on MySQL and MariaDB all it reads is locked
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }()
	if b.postgres() { // an insert that is under way has no row to wait for
		_, err = tx.ExecContext(t.Context(), "LOCK TABLE account IN SHARE MODE")
	}
	if err == nil {
		err = tx.QueryRowContext(t.Context(), fmt.Sprintf(count, id)).Scan(&n)
	}
	return n, err
}

// aRepeatIsWrittenOnce: the same write with the same version may be sent again where its outcome is unknown, until the answer is
// that it is written, or a conflict.
func aRepeatIsWrittenOnce[DB any](t *testing.T, b *bank[DB]) {
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
		n, err := b.times(t, w.count, x.id)
		if err == nil && (n != 1 || told != nil && !errors.Is(told, optimistic.ErrConflict)) {
			err = fmt.Errorf("told %w: it was written %v times", told, n)
		}
		return struck, err
	})
}

// controlARepeatIsTakenForOthers: who repeats a write whatever its error is meets his own, and is told of a conflict.
func controlARepeatIsTakenForOthers[DB any](t *testing.T, b *bank[DB]) {
	w := tableWrites(t, b)["Update"]
	for k := 1; ; k++ {
		x := sure(b.cutTable(t))(t)
		x.dialer.Arm(k, faultconn.CutAfter, nil)
		told := w.run(t.Context(), x.db, x.id)
		struck := x.dialer.Disarm()
		if told != nil {
			told = w.run(t.Context(), x.db, x.id)
		}
		n := sure(b.times(t, w.count, x.id))(t)
		x.end()
		switch {
		case checkCut(told, n, struck) != nil:
			return
		case !struck:
			t.Fatal("the test would pass if writes were repeated that may have been made")
		}
	}
}
