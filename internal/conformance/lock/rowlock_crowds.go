package lock

import (
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// lockTogether has callers lock rows of a table at once, again and again, in transactions of their
// own.
func (v *rowEnv) lockTogether(t *testing.T, callers, rounds int, table string, keys func(caller int) []int64) {
	t.Helper()
	ctx := suite.Soon(t)
	suite.Crowd(callers, func(i int) {
		for range rounds {
			want := keys(i)
			err := v.within(ctx, func(tx RowTx) error {
				got, err := tx.LockRows(ctx, table, "id", want, dblock.RowLock{})
				if err == nil && len(got.Locked) != len(want) {
					err = fmt.Errorf("%d of %d rows are locked", len(got.Locked), len(want))
				}
				return err
			})
			if !assert.NoError(t, err) {
				return
			}
		}
	})
}

// OppositeOrdersNeverMeet: calls for the same rows in opposite orders never deadlock.
func (rowTests) OppositeOrdersNeverMeet(t *testing.T, v *rowEnv) {
	v.Exec(t, "CREATE UNIQUE INDEX by_price ON seat (price, id)") // another order, which a plan could prefer
	forth := []int64{90, 7, 33, 1, 58, 2}
	back := slices.Clone(forth)
	slices.Reverse(back)
	v.lockTogether(t, 2, 60, "seat", func(caller int) []int64 { return [][]int64{forth, back}[caller] })
}

// ControlSingleLocksMeet: rows that are locked one by one in opposite orders deadlock, and the
// error of one transaction is a conflict.
func (rowTests) ControlSingleLocksMeet(t *testing.T, v *rowEnv) {
	txs := []RowTx{v.tx(t), v.tx(t)}
	for i, tx := range txs {
		require.NoError(t, tx.LockRow(t.Context(), "seat", "id", int64(1+i), dblock.RowLock{}))
	}
	var errs [2]error
	ctx := suite.Soon(t)
	suite.Crowd(2, func(i int) {
		if errs[i] = txs[i].LockRow(ctx, "seat", "id", int64(2-i), dblock.RowLock{}); errs[i] != nil {
			_ = txs[i].Rollback(ctx)
		}
	})
	conflicts := slices.DeleteFunc(errs[:], func(err error) bool { return !errors.Is(err, dblock.ErrConflict) })
	assert.Len(t, conflicts, 1)
}

// PartitionsNeverMeet: calls for rows of several partitions never deadlock.
func (rowTests) PartitionsNeverMeet(t *testing.T, v *rowEnv) {
	v.parts(t)
	if !v.Postgres() { // partitions in partitions, and a row that is not there
		o := dblock.RowLock{Wait: dblock.SkipLocked()}
		got := suite.Must(v.tx(t).LockRows(t.Context(), "sub_part", "id", []int64{12, 500, 11, 3}, o))(t)
		assert.ElementsMatch(t, []int64{3, 11, 12}, got.Locked)
		assert.Nil(t, got.Skipped)
	}
	v.lockTogether(t, 6, 30, "part", func(int) (keys []int64) {
		for _, i := range rand.Perm(seats)[:8] {
			keys = append(keys, int64(i+1))
		}
		return keys
	})
}

// parts makes tables of several partitions with the rows of seat.
func (v *rowEnv) parts(t *testing.T) {
	t.Helper()
	const columns = " (id BIGINT PRIMARY KEY, note INT) PARTITION BY "
	tables := []string{"part"}
	if v.Postgres() {
		v.Exec(t, "CREATE TABLE part"+columns+"HASH (id)")
		for i := range 4 {
			v.Exec(t, fmt.Sprintf("CREATE TABLE part_%d PARTITION OF part FOR VALUES WITH (MODULUS 4, REMAINDER %d)", i, i))
		}
	} else {
		v.Exec(t, "CREATE TABLE part"+columns+"HASH (id) PARTITIONS 4")
		v.Exec(t, "CREATE TABLE sub_part"+columns+"RANGE (id) SUBPARTITION BY HASH (id) SUBPARTITIONS 2 "+
			"(PARTITION p_a VALUES LESS THAN (10), PARTITION `p ``b` VALUES LESS THAN MAXVALUE)")
		tables = append(tables, "sub_part")
	}
	for _, table := range tables {
		v.Exec(t, "INSERT INTO "+table+" (id) SELECT id FROM seat")
	}
}

// LocksNoOtherRows locks a part of a table, and the others are free. At REPEATABLE READ no row that
// was read is let go.
func (rowTests) LocksNoOtherRows(t *testing.T, v *rowEnv) {
	v.open(t, v.DSN, rowConns, sql.LevelRepeatableRead)
	v.fill(t, 300)
	for _, every := range []int64{2, 3, 5} {
		var keys, rest []int64
		for id := int64(1); id <= 300; id++ {
			if id%every == 0 {
				keys = append(keys, id)
			} else {
				rest = append(rest, id)
			}
		}
		tx, other := v.tx(t), v.tx(t)
		got := suite.Must(tx.LockRows(t.Context(), "seat", "id", keys, dblock.RowLock{}))(t)
		assert.Equal(t, keys, got.Locked)
		beside := suite.Must(other.LockRows(t.Context(), "seat", "id", rest, dblock.RowLock{Wait: dblock.SkipLocked()}))(t)
		assert.Len(t, beside.Locked, len(rest), "free rows, with each %dth one locked", every)
		require.NoError(t, tx.Rollback(t.Context()))
		require.NoError(t, other.Rollback(t.Context()))
	}
}

// ClaimsAreDifferent: concurrent claims have no row in common, are in the query's order, and end
// with their transactions.
func (rowTests) ClaimsAreDifferent(t *testing.T, v *rowEnv) {
	const free = "SELECT id FROM seat WHERE sold = 0 ORDER BY id -- for update; limit 1"
	a, b, c := v.tx(t), v.tx(t), v.tx(t)
	claims := func(tx RowTx, query string, want ...int64) {
		t.Helper()
		got := suite.Must(tx.Claim(t.Context(), dblock.RowLock{}, max(1, len(want)), query))(t)
		assert.True(t, slices.Equal(want, got), "claimed %v, want %v", got, want)
	}
	claims(a, free, 1, 2, 3)
	claims(b, free, 4, 5, 6)
	require.NoError(t, a.Rollback(t.Context()))
	claims(c, free, 1, 2, 3, 7)
	claims(c, "SELECT id FROM seat WHERE sold = 5 ORDER BY id")
	require.NoError(t, b.Rollback(t.Context()))
	require.NoError(t, c.Rollback(t.Context()))
}
