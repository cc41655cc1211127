package lock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
)

// RowLocks is an engine room's row locks.
type RowLocks struct {
	Kind devdb.Kind

	// Open opens a pool of so many connections to the database of dsn; begin begins transactions of it.
	Open func(dsn string, conns int, level sql.IsolationLevel) (begin func(context.Context) (RowTx, error), closePool func(), err error)

	Bound   time.Duration // the shortest that can be waited for
	Between time.Duration // one that the server can't keep to
}

// RowTx is a transaction, and the engine room's functions on it.
type RowTx interface {
	Exec(ctx context.Context, statement string) error
	Text(ctx context.Context, query string) (string, error)
	LockRow(ctx context.Context, table, column string, key int64, o dblock.RowLock) error
	LockText(ctx context.Context, table, column, key string, o dblock.RowLock) error
	LockRows(ctx context.Context, table, column string, keys []int64, o dblock.RowLock) (dblock.LockedRows[int64], error)
	Claim(ctx context.Context, o dblock.RowLock, n int, query string) ([]int64, error)
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
}

// Run runs the suite.
func (e RowLocks) Run(t *testing.T) {
	for name, test := range map[string]func(*testing.T, *hall){
		"RefusalsLeaveItUsable":     refusalsLeaveItUsable,
		"WaitsForTheirEnd":          rowsWaitForTheirEnd,
		"StrengthsExclude":          strengthsExclude,
		"NamesAreTakenAsTheyAre":    namesAreTakenAsTheyAre,
		"RefusesBadInput":           rowsRefuseBadInput,
		"SaysWhatToDo":              rowErrorsSayWhatToDo,
		"OppositeOrdersNeverMeet":   oppositeOrdersNeverMeet,
		"ControlSingleLocksMeet":    controlSingleLocksMeet,
		"ClaimsAreDifferent":        claimsAreDifferent,
		"SellsEachSeatOnce":         sellsEachSeatOnce,
		"ControlSellsSeatsTwice":    controlSellsSeatsTwice,
		"EndsWithRollbackAndCommit": rowLocksEnd,
		"TablesWithoutRowLocks":     tablesWithoutRowLocks,
		"PartitionsNeverMeet":       partitionsNeverMeet,
		"LocksNoOtherRows":          locksNoOtherRows,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, e.hall(t, 20))
		})
	}
}

// RunWith locks over connections with other settings than the usual: each gives the same answers.
func (e RowLocks) RunWith(t *testing.T, settings map[string]func(t *testing.T, dsn string) string) {
	for name, setting := range settings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := e.hall(t, 20)
			h.open(t, setting(t, h.dsn), 20, sql.LevelDefault)
			refusalsLeaveItUsable(t, h)
			claimsAreDifferent(t, h)
		})
	}
}

// hall is a database with a table of seats.
type hall struct {
	e     RowLocks
	dsn   string
	db    *sql.DB
	begin func(context.Context) (RowTx, error)
}

const hallSeats = 100

func (e RowLocks) hall(t *testing.T, conns int) *hall {
	t.Helper()
	h := &hall{e: e, dsn: testdb.DSN(t, e.Kind)}
	h.db = suite.Connect(t, e.Kind, h.dsn)
	h.open(t, h.dsn, conns, sql.LevelReadCommitted)
	h.exec(t, "CREATE TABLE seat (id BIGINT PRIMARY KEY, sold INT NOT NULL, price INT NOT NULL)")
	h.exec(t, "CREATE INDEX seat_sold ON seat (sold, id)")
	h.exec(t, "CREATE TABLE ticket (seat BIGINT NOT NULL, buyer INT NOT NULL)")
	h.fill(t, hallSeats)
	return h
}

// fill makes the seats 1 to n.
func (h *hall) fill(t *testing.T, n int) {
	t.Helper()
	h.exec(t, "DELETE FROM seat")
	text := "INSERT INTO seat VALUES "
	for i := range n {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("(%d, 0, %d)", i+1, i%7)
	}
	h.exec(t, text)
}

func (h *hall) open(t *testing.T, dsn string, conns int, level sql.IsolationLevel) {
	t.Helper()
	begin, closePool, err := h.e.Open(dsn, conns, level)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(closePool)
	h.begin = begin
}

func (h *hall) exec(t *testing.T, statement string) {
	t.Helper()
	if _, err := h.db.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%v in %.200s", err, statement)
	}
}

func (h *hall) count(t *testing.T, query string) (n int64) {
	t.Helper()
	if err := h.db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatalf("%v in %s", err, query)
	}
	return n
}

// tx is a transaction that is rolled back at the end of the test, if it is open by then.
func (h *hall) tx(t *testing.T) RowTx {
	t.Helper()
	tx, err := h.begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// timeout is the session's bound of waits.
func (h *hall) timeout(t *testing.T, tx RowTx) string {
	t.Helper()
	query := "SELECT @@SESSION.innodb_lock_wait_timeout"
	if h.e.Kind == devdb.Postgres {
		query = "SELECT current_setting('lock_timeout')"
	}
	text, err := tx.Text(t.Context(), query)
	if err != nil {
		t.Fatalf("%v: the transaction is of no more use", err)
	}
	return text
}

// refused fails unless err says that rows are locked.
func refused(t *testing.T, what string, err error) *dblock.HeldError {
	t.Helper()
	var held *dblock.HeldError
	if !errors.As(err, &held) || !errors.Is(err, dblock.ErrNotAcquired) {
		t.Fatalf("%s: %v, want it held", what, err)
	}
	return held
}
