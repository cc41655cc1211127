package lock

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
)

// partitionsNeverMeet: calls for rows of several partitions never wait for each other, whatever other rows they lock.
func partitionsNeverMeet(t *testing.T, h *hall) {
	ctx := suite.Soon(t)
	h.parts(t)
	if h.e.Kind != devdb.Postgres { // the rows of a key, some of which there are not
		got, err := h.tx(t).LockRows(ctx, "sub_part", "id", []int64{12, 500, 11, 3}, dblock.RowLock{Wait: dblock.SkipLocked})
		slices.Sort(got.Locked)
		if err != nil || !slices.Equal(got.Locked, []int64{3, 11, 12}) || got.Skipped != nil {
			t.Errorf("of partitions in partitions: %+v, %v", got, err)
		}
	}
	var callers sync.WaitGroup
	for range 6 {
		callers.Go(func() {
			for range 30 {
				keys := make([]int64, 0, 8)
				for _, i := range rand.Perm(hallSeats)[:cap(keys)] {
					keys = append(keys, int64(i+1))
				}
				tx, err := h.begin(ctx)
				if err == nil {
					var got dblock.LockedRows[int64]
					got, err = tx.LockRows(ctx, "part", "id", keys, dblock.RowLock{})
					if err == nil && len(got.Locked) != len(keys) {
						err = fmt.Errorf("%d of %d rows are locked", len(got.Locked), len(keys))
					}
				}
				if err == nil {
					err = tx.Commit(ctx)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	callers.Wait()
}

// parts makes tables of several partitions with the rows of seat.
func (h *hall) parts(t *testing.T) {
	t.Helper()
	tables := []string{"part"}
	if h.e.Kind == devdb.Postgres {
		h.exec(t, "CREATE TABLE part (id BIGINT PRIMARY KEY, note INT) PARTITION BY HASH (id)")
		for i := range 4 {
			h.exec(t, fmt.Sprintf("CREATE TABLE part_%d PARTITION OF part FOR VALUES WITH (MODULUS 4, REMAINDER %d)", i, i))
		}
	} else {
		h.exec(t, "CREATE TABLE part (id BIGINT PRIMARY KEY, note INT) PARTITION BY HASH (id) PARTITIONS 4")
		h.exec(t, "CREATE TABLE sub_part (id BIGINT PRIMARY KEY, note INT) PARTITION BY RANGE (id) SUBPARTITION BY HASH (id) SUBPARTITIONS 2 "+
			"(PARTITION p_a VALUES LESS THAN (10), PARTITION `p ``b` VALUES LESS THAN MAXVALUE)")
		tables = append(tables, "sub_part")
	}
	for _, table := range tables {
		h.exec(t, "INSERT INTO "+table+" (id) SELECT id FROM seat")
	}
}

// locksNoOtherRows: a third of a table is locked, or nearly all of it, and the others are free.
func locksNoOtherRows(t *testing.T, h *hall) {
	ctx := suite.Soon(t)
	h.open(t, h.dsn, 20, sql.LevelRepeatableRead) // where no row that was read is let go
	for _, every := range []int64{2, 3, 5} {
		h.fill(t, 300)
		var keys, rest []int64
		for id := range int64(300) {
			if id%every == 0 {
				keys = append(keys, id+1)
			} else {
				rest = append(rest, id+1)
			}
		}
		tx, other := h.tx(t), h.tx(t)
		got, err := tx.LockRows(ctx, "seat", "id", keys, dblock.RowLock{})
		if err != nil || !slices.Equal(got.Locked, keys) {
			t.Fatalf("%d of %d rows are locked: %v", len(got.Locked), len(keys), err)
		}
		beside, err := other.LockRows(ctx, "seat", "id", rest, dblock.RowLock{Wait: dblock.SkipLocked})
		if err != nil || len(beside.Locked) != len(rest) {
			t.Errorf("with each %dth row locked, %d of %d others are free: %v", every, len(beside.Locked), len(rest), err)
		}
		require.NoError(t, tx.Rollback(ctx), "rollback")
		require.NoError(t, other.Rollback(ctx), "rollback")
	}
}
