package optimistic

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
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

// Driver is a driver's Table, Update and Do. DB is what its statements run on.
type Driver[DB any] struct {
	Kind devdb.Kind

	// Open opens a pool of conns connections to the database of dsn, all of the dialer's.
	Open func(dsn string, dialer *faultconn.Dialer, conns int) (Pool[DB], error)

	// On reads and writes accounts on a pool or in a transaction.
	On func(db DB) Accounts

	// Escalate is the option that locks an account after n attempts.
	Escalate func(n int, id int64) optimistic.Option

	// Counted counts the statements that are sent on db.
	Counted func(db DB) (counted DB, sent func() int64)

	Int    func(table, key string, version optimistic.Version[int64]) (*optimistic.Table[int64, DB], error)
	Time   func(table, key string, version optimistic.Version[time.Time]) (*optimistic.Table[time.Time, DB], error)
	UUID   func(table, key string, version optimistic.Version[[16]byte]) (*optimistic.Table[[16]byte, DB], error)
	Values func(table, key string, version optimistic.Version[optimistic.Values]) (*optimistic.Table[optimistic.Values, DB], error)
}

// Pool is a pool, and what runs on it.
type Pool[DB any] struct {
	DB    DB
	Begin func(context.Context, sql.IsolationLevel) (PoolTx[DB], error)
	Do    func(ctx context.Context, fn func(tx DB, attempt int) error, opts ...optimistic.Option) error
	Close func()
}

// PoolTx is a transaction.
type PoolTx[DB any] struct {
	DB               DB
	Commit, Rollback func() error
}

// Account is a row of the table account(id, balance, version).
type Account struct{ ID, Balance, Version int64 }

// Accounts read and write accounts.
type Accounts struct {
	Update func(ctx context.Context, c Change, opts ...optimistic.Option) (Account, error) // the driver's
	Load   func(ctx context.Context, id int64) (Account, error)
	Save   func(ctx context.Context, a Account, blind bool) (Account, error)
}

// Change is an update. One that is blind is the control: it leaves the version out of its WHERE.
type Change struct {
	ID     int64
	Blind  bool
	Mutate func(context.Context, *Account) error
}

// ExpectedOf is the row as errors name it.
func (a Account) ExpectedOf() optimistic.Row {
	return optimistic.Row{Table: "account", Key: a.ID, Expected: a.Version}
}

type (
	set    = optimistic.Set
	values = optimistic.Values
	change = optimistic.Change[int64]
)

// The tests of doc.go are methods of these types.
type (
	tests[DB any]      struct{}
	faultTests[DB any] struct{}
)

// Run runs the suite.
func (e Driver[DB]) Run(t *testing.T) { suite.RunEach(t, tests[DB]{}, e.usual) }

// RunFaults runs the tests of faults and crowds.
func (e Driver[DB]) RunFaults(t *testing.T) { suite.RunEach(t, faultTests[DB]{}, e.usual) }

func (e Driver[DB]) usual(t *testing.T) *env[DB] {
	t.Helper()
	return e.env(t, func(_ *testing.T, dsn string) string { return dsn })
}

// RunWith runs with other settings of connections than the usual: each gives the same answers.
func (e Driver[DB]) RunWith(t *testing.T, settings map[string]suite.Setting) {
	suite.Each(t, settings, func(t *testing.T, setting suite.Setting) {
		b := e.env(t, setting)
		contractWith(t, b, "")
		tests[DB]{}.Altered(t, b)
		manyWritesTheSame(t, b, 5)
		tests[DB]{}.AtAnyIsolation(t, b)
		tests[DB]{}.Updates(t, b)
	})
}

// RunUpdatesWith is RunWith for settings that Tables refuse or have been run with.
func (e Driver[DB]) RunUpdatesWith(t *testing.T, settings map[string]suite.Setting) {
	suite.Each(t, settings, func(t *testing.T, setting suite.Setting) {
		tests[DB]{}.Updates(t, e.env(t, setting))
	})
}

// env is a database with the accounts 1 to 10, which have a version of each kind.
type env[DB any] struct {
	*suite.DB
	e        Driver[DB]
	dsn      string // with the setting
	pool     Pool[DB]
	db       DB // the pool's
	accounts Accounts
}

func (e Driver[DB]) env(t *testing.T, setting suite.Setting) *env[DB] {
	t.Helper()
	b := &env[DB]{DB: suite.NewDB(t, e.Kind), e: e}
	b.dsn = setting(t, b.DSN)
	b.pool = b.open(t, &faultconn.Dialer{}, 16)
	b.db, b.accounts = b.pool.DB, e.On(b.pool.DB)
	b.fresh(t, "account", 10)
	return b
}

func (b *env[DB]) open(t *testing.T, dialer *faultconn.Dialer, conns int) Pool[DB] {
	t.Helper()
	pool := must(b.e.Open(b.dsn, dialer, conns))(t)
	t.Cleanup(pool.Close)
	return pool
}

// by is the text for Postgres, or for the others.
func (b *env[DB]) by(postgres, others string) string {
	if b.Postgres() {
		return postgres
	}
	return others
}

// fresh makes a table of accounts 1 to n, each with a balance of 0.
func (b *env[DB]) fresh(t *testing.T, table string, n int) {
	t.Helper()
	b.Exec(t, "DROP TABLE IF EXISTS "+table)
	b.Exec(t, "CREATE TABLE "+table+" (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL, note VARCHAR(40), version BIGINT NOT NULL DEFAULT 1, "+
		"lock_version INT NOT NULL DEFAULT 0, "+
		b.by("changed TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(), tag UUID NOT NULL DEFAULT gen_random_uuid())",
			"changed DATETIME(6) NOT NULL DEFAULT '2020-01-01 00:00:00', tag BINARY(16) NOT NULL DEFAULT '0123456789abcdef')"))
	b.insert(t, table, n)
}

// insert inserts accounts with the balance 0.
func (b *env[DB]) insert(t *testing.T, table string, n int) {
	t.Helper()
	var rows []string
	for id := range n {
		rows = append(rows, fmt.Sprintf("(%d, 0)", id+1))
	}
	b.Exec(t, "INSERT INTO "+table+" (id, balance) VALUES "+strings.Join(rows, ", "))
}

// tx is a transaction that is rolled back at the end of the test, if it is open by then.
func (b *env[DB]) tx(t *testing.T, level sql.IsolationLevel) PoolTx[DB] {
	t.Helper()
	tx := must(b.pool.Begin(t.Context(), level))(t)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func (b *env[DB]) ints(t *testing.T, table string) *optimistic.Table[int64, DB] {
	t.Helper()
	return must(b.e.Int(table, "id", optimistic.Int("version")))(t)
}

func (b *env[DB]) times(t *testing.T, table, column string) *optimistic.Table[time.Time, DB] {
	t.Helper()
	return must(b.e.Time(table, "id", optimistic.Timestamp(column)))(t)
}

func (b *env[DB]) tags(t *testing.T, table, column string) *optimistic.Table[[16]byte, DB] {
	t.Helper()
	return must(b.e.UUID(table, "id", optimistic.UUID(column)))(t)
}

func (b *env[DB]) columns(t *testing.T, table string, columns ...string) *optimistic.Table[values, DB] {
	t.Helper()
	return must(b.e.Values(table, "id", optimistic.Columns(columns...)))(t)
}

// is fails unless a query returns a number.
func (b *env[DB]) is(t *testing.T, want int64, query string) {
	t.Helper()
	assert.Equal(t, want, b.Count(t, query), query)
}

func must[T any](v T, err error) func(testing.TB) T { return suite.Must(v, err) }

func errOf[T any](_ T, err error) error { return err }

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// conflicts fails unless err is a conflict with a row at this version.
func conflicts(t *testing.T, what string, err error, expected, actual any) {
	t.Helper()
	require.ErrorIs(t, err, optimistic.ErrStale, what)
	require.NotErrorIs(t, err, dblock.ErrConflict, what)
	conflict := suite.As[*optimistic.StaleError](t, err)
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
