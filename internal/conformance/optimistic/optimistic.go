package optimistic

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/optimistic"
)

// Optimistic is an engine room whose Update and Do are under test.
type Optimistic struct {
	Kind devdb.Kind

	// Open makes a pool of so many connections, all of the dialer's.
	Open func(ctx context.Context, dsn string, dialer *faultconn.Dialer, conns int) (OptimisticPool, error)

	// Settings are what is added to a DSN to have sessions that are not as usual.
	Settings map[string]string
}

// OptimisticPool is a pool, and what runs on it.
type OptimisticPool struct {
	Accounts

	// InTx runs fn in a transaction of the driver's, and commits it where fn's error is nil.
	InTx func(ctx context.Context, isolation sql.IsolationLevel, fn func(Accounts) error) error

	Do       func(ctx context.Context, fn func(tx Accounts, attempt int) error, opts ...optimistic.Option) error
	Escalate func(n int, id int64) optimistic.Option // by the row's own lock
	Close    func()
}

// Account is a row of the table account(id, balance, version).
type Account struct{ ID, Balance, Version int64 }

// Accounts are what reads and writes them: on a pool, or in a transaction.
type Accounts struct {
	Update func(ctx context.Context, c Change, opts ...optimistic.Option) (Account, error) // the engine room's
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

// Run runs the suite.
func (e Optimistic) Run(t *testing.T) {
	e.run(t, map[string]func(*ledger){
		"RepeatsOnWhatIsThere":         repeatsOnWhatIsThere,
		"ControlOverwritesBlindly":     controlOverwritesBlindly,
		"TellsStaleFromGone":           tellsStaleFromGone,
		"UpdatesFromZero":              updatesFromZero,
		"CountsOnOneRow":               countsOnOneRow,
		"IsACASRegister":               isACASRegister,
		"ControlIsNoCASRegister":       controlIsNoCASRegister,
		"OneAttemptInACallersTx":       oneAttemptInACallersTx,
		"EscalatesAndGetsThrough":      escalatesAndGetsThrough,
		"ControlGivesUpWithoutTheLock": controlGivesUpWithoutTheLock,
		"DoWritesAllOrNothing":         doWritesAllOrNothing,
		"NestedInOppositeOrders":       nestedInOppositeOrders,
		"DoRollsBackAPanic":            doRollsBackAPanic,
		"TakesNoMoreRoundTrips":        takesNoMoreRoundTrips,
	})
	for name, setting := range e.Settings {
		t.Run("With "+name, func(t *testing.T) {
			t.Parallel()
			updatesAsUsual(e.ledger(t, setting))
		})
	}
}

// RunFaults runs the tests of faults and crowds.
func (e Optimistic) RunFaults(t *testing.T) {
	e.run(t, map[string]func(*ledger){
		"AnUpdateCutAnywhere":          anUpdateCutAnywhere,
		"AnEscalatedUpdateCutAnywhere": anEscalatedUpdateCutAnywhere,
		"ControlWritesTwice":           controlWritesTwice,
		"CountsOnManyRows":             countsOnManyRows,
	})
}

func (e Optimistic) run(t *testing.T, tests map[string]func(*ledger)) {
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(e.ledger(t, ""))
		})
	}
}

// ledger is a database with accounts 1 and 2, which have 100 each.
type ledger struct {
	*testing.T
	e      Optimistic
	dsn    string
	dialer faultconn.Dialer
	pool   OptimisticPool // of 16 connections
	db     *sql.DB        // to look at it from outside
}

func (e Optimistic) ledger(t *testing.T, setting string) *ledger {
	l := &ledger{T: t, e: e, dsn: testdb.DSN(t, e.Kind)}
	var err error
	if l.db, err = suite.ConnectOn(e.Kind, l.dsn, &faultconn.Dialer{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.db.Close() })
	l.outside("CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL, version BIGINT NOT NULL)")
	l.outside("INSERT INTO account VALUES (1, 100, 1), (2, 100, 1)")
	if setting != "" {
		l.dsn = suite.AppendQuery(l.dsn, setting)
	}
	l.pool = l.open(&l.dialer, 16)
	return l
}

func (l *ledger) open(dialer *faultconn.Dialer, conns int) OptimisticPool {
	l.Helper()
	pool, err := l.e.Open(l.Context(), l.dsn, dialer, conns)
	l.must(err)
	l.Cleanup(pool.Close)
	return pool
}

func (l *ledger) outside(query string) {
	l.Helper()
	if _, err := l.db.ExecContext(l.Context(), query); err != nil {
		l.Fatalf("%s: %v", query, err)
	}
}

func (l *ledger) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

// want is what a row must have now. Who reads it waits for whoever still writes it.
func (l *ledger) want(id, balance, version int64) {
	l.Helper()
	if got, want := l.row(id), (Account{id, balance, version}); got != want {
		l.Errorf("the row is %+v, want %+v", got, want)
	}
}

func (l *ledger) row(id int64) (a Account) {
	l.Helper()
	query := fmt.Sprintf("SELECT id, balance, version FROM account WHERE id = %d FOR UPDATE", id)
	l.must(l.db.QueryRowContext(l.Context(), query).Scan(&a.ID, &a.Balance, &a.Version))
	return a
}

// add is a change of the balance.
func add(n int64) func(context.Context, *Account) error {
	return func(_ context.Context, a *Account) error {
		a.Balance += n
		return nil
	}
}

// intrude is somebody else's update, in the midst of ours.
func (l *ledger) intrude(id, n int64) {
	l.Helper()
	l.outside(fmt.Sprintf("UPDATE account SET balance = balance + %d, version = version + 1 WHERE id = %d", n, id))
}
