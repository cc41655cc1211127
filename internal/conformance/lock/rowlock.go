package lock

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

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
