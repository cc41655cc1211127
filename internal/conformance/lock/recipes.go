package lock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
)

// Recipes are what docs/recipes.md promises of many at once. Each has a control without the lock.
type Recipes struct {
	RowLocks

	// OfGroup are the ways in which a transaction keeps others out of a group until it ends, by their names.
	OfGroup map[string]LockGroup
}

// LockGroup locks a group.
type LockGroup func(ctx context.Context, tx RowTx, group int64) error

// groupRow locks the group's own row.
func groupRow(ctx context.Context, tx RowTx, group int64) error {
	return tx.LockRow(ctx, "team", "id", group, dblock.RowLock{Wait: time.Minute})
}

// Run runs the suite.
func (r Recipes) Run(t *testing.T) {
	ways := map[string]LockGroup{"Row": groupRow}
	for name, way := range r.OfGroup {
		ways[name] = way
	}
	tests := map[string]func(*testing.T, *hall){
		"NumbersHaveNoGaps": numbersHaveNoGaps, "ControlNumbersComeTwice": controlNumbersComeTwice,
		"ControlSequencesHaveGaps": controlSequencesHaveGaps, "ControlTeamsGrowTooLarge": controlTeamsGrowTooLarge,
	}
	for name, way := range ways {
		tests["TeamsStaySmall/"+name] = func(t *testing.T, h *hall) { teamsStaySmall(t, h, way) }
		tests["ASnapshotIsOlderThanTheLock/"+name] = func(t *testing.T, h *hall) { aSnapshotIsOlderThanTheLock(t, h, way) }
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := r.hall(t, 20)
			h.exec(t, "CREATE TABLE counter (id BIGINT PRIMARY KEY, last BIGINT NOT NULL)")
			h.exec(t, "INSERT INTO counter VALUES (1, 0)")
			h.exec(t, "CREATE TABLE invoice (number BIGINT NOT NULL)")
			h.exec(t, "CREATE TABLE team (id BIGINT PRIMARY KEY)")
			h.exec(t, "INSERT INTO team VALUES (1)")
			h.exec(t, "CREATE TABLE member (team BIGINT NOT NULL)")
			test(t, h)
		})
	}
}

const (
	numberers = 20
	teamMost  = 3
)

// within runs fn in a transaction, and commits it where fn returns nil.
func (h *hall) within(ctx context.Context, fn func(RowTx) error) error {
	tx, err := h.begin(ctx)
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return errors.Join(err, tx.Rollback(ctx))
	}
	return tx.Commit(ctx)
}

// undone is within, and rolls it back in the end.
func (h *hall) undone(ctx context.Context, fn func(RowTx) error) error {
	tx, err := h.begin(ctx)
	if err != nil {
		return err
	}
	return errors.Join(fn(tx), tx.Rollback(ctx))
}

// atOnce has all numberers call at once.
func atOnce(t *testing.T, call func(ctx context.Context) error) {
	t.Helper()
	ctx := suite.Soon(t)
	var all sync.WaitGroup
	for range numberers {
		all.Go(func() {
			if err := call(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// number takes the next number, between its reading and its writing calls read.
func number(ctx context.Context, tx RowTx, lock bool, read func()) error {
	if lock {
		if err := tx.LockRow(ctx, "counter", "id", 1, dblock.RowLock{}); err != nil {
			return err
		}
	}
	text, err := tx.Text(ctx, "SELECT last FROM counter WHERE id = 1")
	if err != nil {
		return err
	}
	last, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return err
	}
	read()
	if err := tx.Exec(ctx, fmt.Sprintf("UPDATE counter SET last = %d WHERE id = 1", last+1)); err != nil {
		return err
	}
	return tx.Exec(ctx, fmt.Sprintf("INSERT INTO invoice VALUES (%d)", last+1))
}

// numbersHaveNoGaps: and none comes twice, with every other transaction rolled back.
func numbersHaveNoGaps(t *testing.T, h *hall) {
	atOnce(t, func(ctx context.Context) error {
		for range 10 {
			take := func(tx RowTx) error { return number(ctx, tx, true, func() {}) }
			if err := errors.Join(h.undone(ctx, take), h.within(ctx, take)); err != nil {
				return err
			}
		}
		return nil
	})
	const all = numberers * 10
	rows, different := h.count(t, "SELECT count(*) FROM invoice"), h.count(t, "SELECT count(DISTINCT number) FROM invoice")
	least, most := h.count(t, "SELECT min(number) FROM invoice"), h.count(t, "SELECT max(number) FROM invoice")
	if rows != all || different != all || least != 1 || most != all {
		t.Errorf("%d numbers, %d different ones, from %d to %d: want 1 to %d", rows, different, least, most, all)
	}
}

// controlNumbersComeTwice: without the lock all read before the first one writes.
func controlNumbersComeTwice(t *testing.T, h *hall) {
	var read sync.WaitGroup
	read.Add(numberers)
	atOnce(t, func(ctx context.Context) error {
		return h.within(ctx, func(tx RowTx) error {
			return number(ctx, tx, false, func() {
				read.Done()
				read.Wait()
			})
		})
	})
	if n := h.count(t, "SELECT count(DISTINCT number) FROM invoice"); n != 1 {
		t.Errorf("%d different numbers: the lock would not be needed", n)
	}
}

// controlSequencesHaveGaps: what is rolled back keeps the number that it had.
func controlSequencesHaveGaps(t *testing.T, h *hall) {
	numbered := "BIGSERIAL PRIMARY KEY"
	if h.e.Kind != devdb.Postgres {
		numbered = "BIGINT AUTO_INCREMENT PRIMARY KEY"
	}
	h.exec(t, "CREATE TABLE voucher (number "+numbered+", buyer INT NOT NULL)")
	atOnce(t, func(ctx context.Context) error {
		take := func(tx RowTx) error { return tx.Exec(ctx, "INSERT INTO voucher (buyer) VALUES (1)") }
		return errors.Join(h.undone(ctx, take), h.within(ctx, take))
	})
	if rows, most := h.count(t, "SELECT count(*) FROM voucher"), h.count(t, "SELECT max(number) FROM voucher"); most <= rows {
		t.Errorf("%d numbers up to %d have no gap: a counter would not be needed", rows, most)
	}
}

// join adds a member where there are fewer than three.
func join(ctx context.Context, tx RowTx, lock LockGroup, counted func()) (full bool, err error) {
	if lock != nil {
		if err := lock(ctx, tx, 1); err != nil {
			return false, err
		}
	}
	members, err := tx.Text(ctx, "SELECT count(*) FROM member WHERE team = 1")
	if err != nil {
		return false, err
	}
	counted()
	if members >= strconv.Itoa(teamMost) {
		return true, nil
	}
	return false, tx.Exec(ctx, "INSERT INTO member VALUES (1)")
}

// teamsStaySmall: with the group locked it is filled, and no more.
func teamsStaySmall(t *testing.T, h *hall, lock LockGroup) {
	var refused atomic.Int64
	atOnce(t, func(ctx context.Context) error {
		return h.within(ctx, func(tx RowTx) error {
			full, err := join(ctx, tx, lock, func() {})
			if full {
				refused.Add(1)
			}
			return err
		})
	})
	if n := h.count(t, "SELECT count(*) FROM member"); n != teamMost || refused.Load() != numberers-teamMost {
		t.Errorf("%d members, and %d were refused", n, refused.Load())
	}
}

// controlTeamsGrowTooLarge: without the lock all count before the first one joins.
func controlTeamsGrowTooLarge(t *testing.T, h *hall) {
	var counted sync.WaitGroup
	counted.Add(numberers)
	atOnce(t, func(ctx context.Context) error {
		return h.within(ctx, func(tx RowTx) error {
			_, err := join(ctx, tx, nil, func() {
				counted.Done()
				counted.Wait()
			})
			return err
		})
	})
	if n := h.count(t, "SELECT count(*) FROM member"); n <= teamMost {
		t.Errorf("%d members: the lock would not be needed", n)
	}
}

// aSnapshotIsOlderThanTheLock: at REPEATABLE READ a transaction that has read before counts what was there then, though it has
// the lock. It is why the recipes are at READ COMMITTED, at which it counts what is there.
func aSnapshotIsOlderThanTheLock(t *testing.T, h *hall, lock LockGroup) {
	ctx := suite.Soon(t)
	for _, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelReadCommitted} {
		h.open(t, h.dsn, 20, level)
		tx := h.tx(t)
		if h.e.Kind == devdb.Postgres && level == sql.LevelRepeatableRead {
			require.NoError(t, tx.Exec(ctx, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"), "set")
		}
		before, err := tx.Text(ctx, "SELECT count(*) FROM member WHERE team = 1")
		require.NoError(t, err, "read")
		require.NoError(t, h.within(ctx, func(tx RowTx) error {
			require.NoError(t, lock(ctx, tx, 1), "lock")
			return tx.Exec(ctx, "INSERT INTO member VALUES (1)")
		}))
		require.NoError(t, lock(ctx, tx, 1), "lock")
		after, err := tx.Text(ctx, "SELECT count(*) FROM member WHERE team = 1")
		require.NoError(t, err, "read")
		if old := after == before; old != (level == sql.LevelRepeatableRead) {
			t.Errorf("%v: %s before, %s after", level, before, after)
		}
		require.NoError(t, tx.Rollback(ctx), "rollback")
	}
}
