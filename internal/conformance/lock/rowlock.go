package lock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
)

// RowLocks is a driver's row locks.
type RowLocks struct {
	Kind devdb.Kind

	// Open opens a pool of conns connections; begin begins transactions on it.
	Open func(dsn string, conns int, level sql.IsolationLevel) (
		begin func(context.Context) (RowTx, error), closePool func(), err error)

	Bound   time.Duration // the shortest wait
	Between time.Duration // a wait that the server cannot bound
}

// RowTx is a transaction, and the driver's functions on it.
type RowTx interface {
	Exec(ctx context.Context, statement string) error
	Text(ctx context.Context, query string) (string, error)
	LockRow(ctx context.Context, table, column string, key int64, o dblock.RowLock) error
	LockText(ctx context.Context, table, column, key string, o dblock.RowLock) error
	LockRows(ctx context.Context, table, column string, keys []int64, o dblock.RowLock) (dblock.LockedRows[int64], error)
	LockTexts(ctx context.Context, table, column string, keys []string, o dblock.RowLock) (dblock.LockedRows[string], error)
	LockTimes(ctx context.Context, table, column string, keys []time.Time, o dblock.RowLock) (dblock.LockedRows[time.Time], error)
	Claim(ctx context.Context, o dblock.RowLock, n int, query string) ([]int64, error)
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
}

type rowTests struct{}

// Run runs the suite.
func (r RowLocks) Run(t *testing.T) {
	suite.RunEach(t, rowTests{}, r.env)
}

// RunWith locks over connections with unusual settings. A setting makes a DSN from another one.
func (r RowLocks) RunWith(t *testing.T, settings map[string]suite.Setting) {
	suite.Each(t, settings, func(t *testing.T, setting suite.Setting) {
		v := r.env(t)
		v.open(t, setting(t, v.DSN), rowConns, sql.LevelDefault)
		rowTests{}.RefusalsLeaveItUsable(t, v)
		rowTests{}.ClaimsAreDifferent(t, v)
	})
}

// rowEnv is a database with a table of seats, and a pool of transactions.
type rowEnv struct {
	*suite.DB
	locks RowLocks
	begin func(context.Context) (RowTx, error)
}

const (
	rowConns = 20
	seats    = 100
)

func (r RowLocks) env(t *testing.T) *rowEnv {
	t.Helper()
	v := &rowEnv{DB: suite.NewDB(t, r.Kind), locks: r}
	v.open(t, v.DSN, rowConns, sql.LevelReadCommitted)
	v.Exec(t, "CREATE TABLE seat (id BIGINT PRIMARY KEY, sold INT NOT NULL, price INT NOT NULL)")
	v.Exec(t, "CREATE INDEX seat_sold ON seat (sold, id)")
	v.Exec(t, "CREATE TABLE ticket (seat BIGINT NOT NULL, buyer INT NOT NULL)")
	v.fill(t, seats)
	return v
}

// fill makes the seats 1 to n.
func (v *rowEnv) fill(t *testing.T, n int) {
	t.Helper()
	v.Exec(t, "DELETE FROM seat")
	var rows []string
	for i := range n {
		rows = append(rows, fmt.Sprintf("(%d, 0, %d)", i+1, i%7))
	}
	v.Exec(t, "INSERT INTO seat VALUES "+strings.Join(rows, ", "))
}

// open opens another pool for the transactions.
func (v *rowEnv) open(t *testing.T, dsn string, conns int, level sql.IsolationLevel) {
	t.Helper()
	begin, closePool, err := v.locks.Open(dsn, conns, level)
	require.NoError(t, err)
	t.Cleanup(closePool)
	v.begin = begin
}

// tx begins a transaction, which is rolled back at the end of the test if it is open.
func (v *rowEnv) tx(t *testing.T) RowTx {
	t.Helper()
	tx := suite.Must(v.begin(t.Context()))(t)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// within runs fn in a transaction, and commits it if fn returns nil.
func (v *rowEnv) within(ctx context.Context, fn func(RowTx) error) error {
	tx, err := v.begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// isRowHeld fails unless err says that rows are locked.
func isRowHeld(t *testing.T, err error) *dblock.HeldError {
	t.Helper()
	require.ErrorIs(t, err, dblock.ErrNotAcquired)
	return suite.As[*dblock.HeldError](t, err)
}

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
	ctx, skip := t.Context(), dblock.RowLock{Wait: dblock.SkipLocked()}
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
