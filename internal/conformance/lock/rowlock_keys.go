package lock

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// KeysAreReturnedAsGiven: each key is in one of the lists as it was given, however its row spells
// it, and also if several keys are of one row. A key in none has no row.
func (rowTests) KeysAreReturnedAsGiven(t *testing.T, v *rowEnv) {
	spellings := v.spellings(t)
	for i, column := range slices.Sorted(maps.Keys(spellings)) {
		c, table := spellings[column], fmt.Sprintf("spelled_%d", i) // a name stays of one type: dblock remembers it
		v.Exec(t, "CREATE TABLE "+table+" (k "+column+" PRIMARY KEY, note INT)")
		v.Exec(t, "INSERT INTO "+table+" (k) VALUES ("+c.rows[0]+"), ("+c.rows[1]+")")
		for _, more := range []int{0, 70, 600} {
			t.Run(fmt.Sprintf("%s, %d more", column, more), func(t *testing.T) {
				keys := slices.Clone(c.keys)
				for i := range more {
					keys = slices.Insert(keys, i*len(keys)/more, c.none(i))
				}
				v.lockSpelled(t, table, keys, c.locked)
			})
		}
	}
	v.Exec(t, "CREATE TABLE amount (k NUMERIC(9,2) PRIMARY KEY)")
	v.Exec(t, "INSERT INTO amount VALUES (1), (2)")
	tx := v.tx(t)
	numbers := suite.Must(tx.LockRows(t.Context(), "amount", "k", []int64{3, 2, 1}, dblock.RowLock{}))(t)
	assert.Equal(t, dblock.LockedRows[int64]{Locked: []int64{1, 2}}, numbers)

	moment := "DATETIME(6)"
	if v.Postgres() {
		moment = "TIMESTAMPTZ"
	}
	v.Exec(t, "CREATE TABLE moment (k "+moment+" PRIMARY KEY)")
	v.Exec(t, "INSERT INTO moment VALUES ('2026-01-01 10:00:00.123456')")
	at := time.Date(2026, 1, 1, 12, 0, 0, 123456000, time.FixedZone("there", 7200))
	times := []time.Time{at.Add(time.Hour), at}
	when := suite.Must(tx.LockTimes(t.Context(), "moment", "k", times, dblock.RowLock{}))(t)
	assert.Equal(t, dblock.LockedRows[time.Time]{Locked: times[1:]}, when)
}

// lockSpelled locks the rows of keys: some are locked, by another transaction first, and the rest
// have no row.
func (v *rowEnv) lockSpelled(t *testing.T, table string, keys, locked []string) {
	t.Helper()
	ctx, skip := t.Context(), dblock.RowLock{Wait: dblock.SkipLocked}
	holder, other := v.tx(t), v.tx(t)
	got, err := holder.LockTexts(ctx, table, "k", keys, dblock.RowLock{})
	require.NoError(t, err)
	assert.Equal(t, dblock.LockedRows[string]{Locked: locked}, got)
	got, err = other.LockTexts(ctx, table, "k", keys, skip)
	require.NoError(t, err)
	assert.Nil(t, got.Locked)
	assert.ElementsMatch(t, locked, got.Skipped)
	require.NoError(t, holder.Rollback(ctx))
	got, err = other.LockTexts(ctx, table, "k", keys, skip)
	require.NoError(t, err)
	assert.Equal(t, dblock.LockedRows[string]{Locked: locked}, got)
	require.NoError(t, other.Rollback(ctx))
}

// spelling is two rows of a column, keys that may be spelled in another way, and those that are of
// the rows, in the server's order.
type spelling struct {
	rows         [2]string
	keys, locked []string
	none         func(i int) string // more keys, of no row
}

// spellings are columns that take several texts for one value.
func (v *rowEnv) spellings(t *testing.T) map[string]spelling {
	number := func(i int) string { return fmt.Sprint(1000 + i) }
	word := func(i int) string { return fmt.Sprint("none", i) }
	names := spelling{
		rows: [2]string{"'ann'", "'Bob'"}, keys: []string{"BOB", "x", "ANN", "ann"}, locked: []string{"ANN", "ann", "BOB"}, none: word,
	}
	all := map[string]spelling{
		"NUMERIC(9,2)": {
			rows: [2]string{"1", "2.5"}, keys: []string{"2.50", "7", "1.0", "1"}, locked: []string{"1.0", "1", "2.50"}, none: number,
		},
		"CHAR(9)": {rows: [2]string{"'ann'", "'bob'"}, keys: []string{"bob", "x", "ann"}, locked: []string{"ann", "bob"}, none: word},
	}
	if !v.Postgres() {
		all["VARCHAR(9) COLLATE utf8mb4_general_ci"] = names
		return all
	}
	const id, other = "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "b0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
	all["UUID"] = spelling{
		rows: [2]string{"'" + id + "'", "'" + other + "'"}, keys: []string{other, id}, locked: []string{id, other},
		none: func(i int) string { return fmt.Sprintf("c0eebc99-9c0b-4ef8-bb6d-%012d", i) },
	}
	if v.Text(t, "SELECT count(*) FROM pg_available_extensions WHERE name = 'citext'") == "1" {
		v.Exec(t, "CREATE EXTENSION citext")
		all["CITEXT"] = names
	}
	return all
}
