package lock

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
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
