package optimistic

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/optimistic"
)

// OptTables is a driver's optimistic.Table.
type OptTables[DB any] struct {
	Kind devdb.Kind

	// Open opens a pool of conns connections to the database of dsn, all of the dialer's; begin
	// begins transactions of it.
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

type (
	set    = optimistic.Set
	values = optimistic.Values
	change = optimistic.Change[int64]
)

// Run runs the suite.
func (e OptTables[DB]) Run(t *testing.T) {
	e.run(t, map[string]func(*testing.T, *tables[DB]){
		"Contract":                 contract[DB],
		"InTransactions":           inTransactions[DB],
		"AtAnyIsolation":           atAnyIsolation[DB],
		"CountsStatements":         countsStatements[DB],
		"TimesGrow":                timesGrow[DB],
		"Recreated":                recreated[DB],
		"NamesAreTakenAsTheyAre":   namesAreTakenAsTheyAre[DB],
		"RefusesBadInput":          refusesBadInput[DB],
		"RefusesBadTables":         refusesBadTables[DB],
		"AltersAsTold":             altersAsTold[DB],
		"RefusesBadVersions":       refusesBadVersions[DB],
		"NonUniqueKey":             nonUniqueKey[DB],
		"ChecksOnce":               checksOnce[DB],
		"Altered":                  altered[DB],
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
		"ManyWritesTheSame":        func(t *testing.T, b *tables[DB]) { manyWritesTheSame(t, b, 2) },
		"ManyNeverDeadlock":        manyNeverDeadlock[DB],
		"ManyInTransactions":       manyInTransactions[DB],
		"IncrementsOneRow":         func(t *testing.T, b *tables[DB]) { incrementsRows(t, b, 1) },
		"IncrementsMany":           incrementsMany[DB],
		"ControlIncrementsAreLost": controlIncrementsAreLost[DB],
		"IsACASRegister":           tableIsACASRegister[DB],
		"IncrementsByColumns":      incrementsByColumns[DB],
		"ARepeatIsWrittenOnce":     aRepeatIsWrittenOnce[DB],
	})
}

// RunFaults runs the tests of faults and crowds.
func (e OptTables[DB]) RunFaults(t *testing.T) {
	e.run(t, map[string]func(*testing.T, *tables[DB]){
		"AWriteCutAnywhere":              aWriteCutAnywhere[DB],
		"ControlARepeatIsTakenForOthers": controlARepeatIsTakenForOthers[DB],
		"IncrementsThousandRows":         func(t *testing.T, b *tables[DB]) { incrementsRows(t, b, 1000) },
	})
}

func (e OptTables[DB]) run(t *testing.T, tests map[string]func(*testing.T, *tables[DB])) {
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, e.tables(t))
		})
	}
}

// RunWith runs with other settings of connections than the usual: each gives the same answers.
func (e OptTables[DB]) RunWith(t *testing.T, settings map[string]func(t *testing.T, dsn string) string) {
	for name, setting := range settings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := e.tables(t)
			b.open(t, setting(t, b.DSN))
			contract(t, b)
			columnsCompare(t, b)
			columnsOfAllTypes(t, b)
			columnsEqualValues(t, b)
			upserts(t, b)
			manyRows(t, b)
			altered(t, b)
			manyWritesTheSame(t, b, 5)
			atAnyIsolation(t, b)
		})
	}
}

// tables is a database with a table of accounts, which have a version of each kind.
type tables[DB any] struct {
	*suite.DB
	e     OptTables[DB]
	db    DB
	begin func(context.Context, sql.IsolationLevel) (OptTx[DB], error)
}

func (e OptTables[DB]) tables(t *testing.T) *tables[DB] {
	t.Helper()
	b := &tables[DB]{DB: suite.NewDB(t, e.Kind), e: e}
	b.open(t, b.DSN)
	b.fresh(t, "account", 10)
	return b
}

func (b *tables[DB]) open(t *testing.T, dsn string) {
	t.Helper()
	db, begin, closePool, err := b.e.Open(dsn, &faultconn.Dialer{}, 16)
	require.NoError(t, err)
	t.Cleanup(closePool)
	b.db, b.begin = db, begin
}

// by is the text for Postgres, or for the others.
func (b *tables[DB]) by(postgres, others string) string {
	if b.Postgres() {
		return postgres
	}
	return others
}

// fresh makes a table of accounts 1 to n, each with a balance of 0.
func (b *tables[DB]) fresh(t *testing.T, table string, n int) {
	t.Helper()
	b.Exec(t, "DROP TABLE IF EXISTS "+table)
	b.Exec(t, "CREATE TABLE "+table+" (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL, note VARCHAR(40), version BIGINT NOT NULL DEFAULT 1, "+
		b.by("changed TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(), tag UUID NOT NULL DEFAULT gen_random_uuid())",
			"changed DATETIME(6) NOT NULL DEFAULT '2020-01-01 00:00:00', tag BINARY(16) NOT NULL DEFAULT '0123456789abcdef')"))
	b.insert(t, table, 1, n)
}

// insert inserts accounts with the balance 0.
func (b *tables[DB]) insert(t *testing.T, table string, from, to int) {
	t.Helper()
	text := ""
	for id := from; id <= to; id++ {
		text += fmt.Sprintf(", (%d, 0)", id)
	}
	b.Exec(t, "INSERT INTO "+table+" (id, balance) VALUES "+text[2:])
}

// tx is a transaction that is rolled back at the end of the test, if it is open by then.
func (b *tables[DB]) tx(t *testing.T, level sql.IsolationLevel) OptTx[DB] {
	t.Helper()
	tx := must(b.begin(t.Context(), level))(t)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func (b *tables[DB]) ints(t *testing.T, table string) *optimistic.Table[int64, DB] {
	t.Helper()
	return must(b.e.Int(table, "id", optimistic.Int("version")))(t)
}

func (b *tables[DB]) times(t *testing.T, table, column string) *optimistic.Table[time.Time, DB] {
	t.Helper()
	return must(b.e.Time(table, "id", optimistic.Timestamp(column)))(t)
}

func (b *tables[DB]) tags(t *testing.T, table, column string) *optimistic.Table[[16]byte, DB] {
	t.Helper()
	return must(b.e.UUID(table, "id", optimistic.UUID(column)))(t)
}

func (b *tables[DB]) columns(t *testing.T, table string, columns ...string) *optimistic.Table[values, DB] {
	t.Helper()
	return must(b.e.Values(table, "id", optimistic.Columns(columns...)))(t)
}

// is fails unless a query returns a number.
func (b *tables[DB]) is(t *testing.T, want int64, query string) {
	t.Helper()
	assert.Equal(t, want, b.Count(t, query), query)
}

func must[T any](v T, err error) func(testing.TB) T { return suite.Must(v, err) }

func errOf[T any](_ T, err error) error { return err }

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// conflicts fails unless err is a conflict with a row at this version.
func conflicts(t *testing.T, what string, err error, expected, actual any) {
	t.Helper()
	require.ErrorIs(t, err, optimistic.ErrConflict, what)
	require.NotErrorIs(t, err, dblock.ErrConflict, what)
	conflict := suite.As[*optimistic.ConflictError](t, err)
	require.Equal(t, []any{expected, actual}, []any{conflict.Expected, conflict.Actual}, what)
}

func missing(t *testing.T, what string, err error) {
	t.Helper()
	require.ErrorIs(t, err, optimistic.ErrNotFound, what)
	suite.As[*optimistic.NotFoundError](t, err)
}

// badInput fails unless err is about input, and says some texts.
func badInput(t *testing.T, what string, err error, says ...string) {
	t.Helper()
	assert.ErrorAs(t, err, new(*dblock.InvalidError), what)
	for _, text := range says {
		assert.ErrorContains(t, err, text, what)
	}
}
