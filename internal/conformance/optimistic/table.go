package optimistic

import (
	"context"
	"database/sql"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/optimistic"
)

// OptTables is an engine room's optimistic.Table.
type OptTables[DB any] struct {
	Kind devdb.Kind

	// Open opens a pool of so many connections to the database of dsn, all of the dialer's; begin begins transactions of it.
	Open func(dsn string, dialer *faultconn.Dialer, conns int) (
		db DB, begin func(context.Context, sql.IsolationLevel) (OptTx[DB], error), closePool func(), err error)

	// Counted counts the statements that are sent on db.
	Counted func(db DB) (counted DB, sent func() int64)

	Int    func(table, key string, version optimistic.Token[int64]) (*optimistic.Table[int64, DB], error)
	Time   func(table, key string, version optimistic.Token[time.Time]) (*optimistic.Table[time.Time, DB], error)
	UUID   func(table, key string, version optimistic.Token[[16]byte]) (*optimistic.Table[[16]byte, DB], error)
	Values func(table, key string, version optimistic.Token[optimistic.Values]) (*optimistic.Table[optimistic.Values, DB], error)
}

// OptTx is a transaction.
type OptTx[DB any] struct {
	DB               DB
	Commit, Rollback func() error
}

// Run runs the suite.
func (e OptTables[DB]) Run(t *testing.T) {
	e.run(t, map[string]func(*testing.T, *bank[DB]){
		"Contract":                 tableContract[DB],
		"InTransactions":           tableInTransactions[DB],
		"AtAnyIsolation":           tableAtAnyIsolation[DB],
		"CountsStatements":         tableCountsStatements[DB],
		"TimesGrow":                timesGrow[DB],
		"Recreated":                recreatedRows[DB],
		"NamesAreTakenAsTheyAre":   tableNames[DB],
		"RefusesBadInput":          tableRefusesBadInput[DB],
		"RefusesBadTables":         tableRefusesBadTables[DB],
		"AltersAsTold":             tableAltersAsTold[DB],
		"RefusesBadVersions":       tableRefusesBadVersions[DB],
		"NonUniqueKey":             nonUniqueKey[DB],
		"ChecksOnce":               tableChecksOnce[DB],
		"Altered":                  tableAltered[DB],
		"AlteredVersion":           alteredVersion[DB],
		"AlteredFacts":             alteredFacts[DB],
		"Columns":                  columnsCompare[DB],
		"ColumnsOfAllTypes":        columnsOfAllTypes[DB],
		"ColumnsEqualValues":       columnsEqualValues[DB],
		"Triggers":                 triggersLeaveVersions[DB],
		"TriggersOnColumns":        triggersLeaveColumns[DB],
		"BlindWritesOfOneRow":      blindWritesOfOneRow[DB],
		"Upsert":                   upserts[DB],
		"UpsertAnotherIndex":       upsertAnotherIndex[DB],
		"UpsertRace":               upsertRace[DB],
		"VersionsFromZero":         versionsFromZero[DB],
		"Many":                     manyRows[DB],
		"ManyBadInput":             manyBadInput[DB],
		"ManyTypes":                manyTypes[DB],
		"ManyWritesTheSame":        manyWritesTheSame[DB],
		"ManyNeverDeadlock":        manyNeverDeadlock[DB],
		"ManyInTransactions":       manyInTransactions[DB],
		"IncrementsOneRow":         incrementsOneRow[DB],
		"IncrementsMany":           incrementsMany[DB],
		"ControlIncrementsAreLost": controlIncrementsAreLost[DB],
		"IsACASRegister":           tableIsACASRegister[DB],
		"IncrementsByColumns":      incrementsOfColumns[DB],
		"ARepeatIsWrittenOnce":     aRepeatIsWrittenOnce[DB],
	})
}

// RunFaults runs the tests of faults and crowds.
func (e OptTables[DB]) RunFaults(t *testing.T) {
	e.run(t, map[string]func(*testing.T, *bank[DB]){
		"AWriteCutAnywhere":              tableWritesCutAnywhere[DB],
		"ControlARepeatIsTakenForOthers": controlARepeatIsTakenForOthers[DB],
		"IncrementsThousandRows":         incrementsThousandRows[DB],
	})
}

func (e OptTables[DB]) run(t *testing.T, tests map[string]func(*testing.T, *bank[DB])) {
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, e.bank(t, 16))
		})
	}
}

// RunWith works over connections with other settings than the usual: each gives the same answers.
func (e OptTables[DB]) RunWith(t *testing.T, settings map[string]func(t *testing.T, dsn string) string) {
	for name, setting := range settings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := e.bank(t, 16)
			b.open(t, setting(t, b.dsn), 16)
			tableContract(t, b)
			columnsCompare(t, b)
			columnsOfAllTypes(t, b)
			columnsEqualValues(t, b)
			upserts(t, b)
			manyRows(t, b)
			tableAltered(t, b)
			manyWritesTheSame(t, b)
			tableAtAnyIsolation(t, b)
		})
	}
}

// bank is a database with a table of accounts, which have a version of each kind.
type bank[DB any] struct {
	e     OptTables[DB]
	dsn   string
	sql   *sql.DB
	db    DB
	begin func(context.Context, sql.IsolationLevel) (OptTx[DB], error)
}

func (b *bank[DB]) postgres() bool { return b.e.Kind == devdb.Postgres }

// by is the text for Postgres, or for the others.
func (b *bank[DB]) by(postgres, others string) string {
	if b.postgres() {
		return postgres
	}
	return others
}

func (e OptTables[DB]) bank(t *testing.T, conns int) *bank[DB] {
	t.Helper()
	b := &bank[DB]{e: e, dsn: testdb.DSN(t, e.Kind)}
	b.sql = suite.Connect(t, e.Kind, b.dsn)
	b.open(t, b.dsn, conns)
	b.fresh(t, "account", 10)
	return b
}

// fresh makes a table of accounts 1 to n, each with a balance of 0.
func (b *bank[DB]) fresh(t *testing.T, table string, n int) {
	t.Helper()
	b.exec(t, "DROP TABLE IF EXISTS "+table)
	b.exec(t, "CREATE TABLE "+table+" (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL, note VARCHAR(40), version BIGINT NOT NULL DEFAULT 1, "+
		b.by("changed TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(), tag UUID NOT NULL DEFAULT gen_random_uuid())",
			"changed DATETIME(6) NOT NULL DEFAULT '2020-01-01 00:00:00', tag BINARY(16) NOT NULL DEFAULT '0123456789abcdef')"))
	for i := range n {
		b.row(t, table, int64(i+1))
	}
}

func (b *bank[DB]) row(t *testing.T, table string, id int64) {
	t.Helper()
	b.exec(t, "INSERT INTO "+table+" (id, balance) VALUES ("+itoa(id)+", 0)")
}

func (b *bank[DB]) open(t *testing.T, dsn string, conns int) {
	t.Helper()
	db, begin, closePool, err := b.e.Open(dsn, &faultconn.Dialer{}, conns)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(closePool)
	b.db, b.begin = db, begin
}

func (b *bank[DB]) exec(t *testing.T, statement string) {
	t.Helper()
	if _, err := b.sql.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%v in %.200s", err, statement)
	}
}

func (b *bank[DB]) number(t *testing.T, query string) (n int64) {
	t.Helper()
	if err := b.sql.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatalf("%v in %s", err, query)
	}
	return n
}

// tx is a transaction that is rolled back at the end of the test, if it is open by then.
func (b *bank[DB]) tx(t *testing.T, level sql.IsolationLevel) OptTx[DB] {
	t.Helper()
	tx, err := b.begin(t.Context(), level)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func (b *bank[DB]) ints(t *testing.T, table string) *optimistic.Table[int64, DB] {
	t.Helper()
	return sure(b.e.Int(table, "id", optimistic.Int("version")))(t)
}

func (b *bank[DB]) columns(t *testing.T, table string, columns ...string) *optimistic.Table[optimistic.Values, DB] {
	t.Helper()
	return sure(b.e.Values(table, "id", optimistic.Columns(columns...)))(t)
}

func sure[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// conflicts fails unless err is a conflict with a row at this version.
func conflicts(t *testing.T, what string, err error, expected, actual any) {
	t.Helper()
	var conflict *optimistic.ConflictError
	if !errors.As(err, &conflict) || !errors.Is(err, optimistic.ErrConflict) || errors.Is(err, dblock.ErrConflict) {
		t.Fatalf("%s: %v, want a conflict", what, err)
	}
	if !reflect.DeepEqual(conflict.Expected, expected) || !reflect.DeepEqual(conflict.Actual, actual) {
		t.Fatalf("%s: expected %v, actual %v: want %v, %v", what, conflict.Expected, conflict.Actual, expected, actual)
	}
}

func missing(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.As(err, new(*optimistic.NotFoundError)) || !errors.Is(err, optimistic.ErrNotFound) {
		t.Fatalf("%s: %v, want no such row", what, err)
	}
}

func badInput(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.As(err, new(*dblock.InvalidError)) {
		t.Errorf("%s: %v, want a *dblock.InvalidError", what, err)
	}
}
