package optimistic

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/internal/testdb"
)

// Tx is an engine room whose RunTx is under test.
type Tx struct {
	Kind devdb.Kind

	// Open makes a pool of so many connections, all of the dialer's.
	Open func(ctx context.Context, dsn string, dialer *faultconn.Dialer, conns int) (TxPool, error)
}

// TxPool is a pool, and what runs on it.
type TxPool struct {
	Run   RunTx
	Plain func(ctx context.Context, fn func(Statements) error) error // a transaction of the driver's, as the session's defaults are
	Close func()
}

// RunTx is an engine room's function on one pool. fn gets what runs statements in the transaction.
type RunTx func(ctx context.Context, o TxOptions, fn func(Statements) error) error

// TxOptions are what the engines have in common.
type TxOptions struct {
	Isolation sql.IsolationLevel
	ReadOnly  bool
	Attempts  int
	OnRetry   func(attempt int, err error)
}

// Statements run in a transaction.
type Statements struct {
	Exec func(query string) error
	Int  func(query string) (int, error)
	Lock func(id int) error // the engine room's LockRow, on t

	Named func(key string) error // the driver's LockTx; nil if it has none
}

// Run runs the suite.
func (e Tx) Run(t *testing.T) {
	e.run(t, map[string]func(*txBench){
		"CommitsOrRollsBack":        commitsOrRollsBack,
		"APanicRollsBack":           aPanicRollsBack,
		"RunsAgainAfterADeadlock":   runsAgainAfterADeadlock,
		"RunsAgainAfterLocksMet":    runsAgainAfterLocksMet,
		"GivesUpWithTheConflict":    givesUpWithTheConflict,
		"KeepsInvariants":           keepsInvariants,
		"ControlBreaksInvariants":   controlBreaksInvariants,
		"LosesNoUpdates":            losesNoUpdates,
		"PinsItsIsolation":          pinsItsIsolation,
		"LeaksNoIsolation":          leaksNoIsolation,
		"WritesWhateverTheDefault":  writesWhateverTheDefault,
		"RefusesWrites":             refusesWrites,
		"ASwallowedConflict":        aSwallowedConflict,
		"ControlSwallows":           controlSwallows,
		"EndedByItsFunction":        endedByItsFunction,
		"EndsWithItsContext":        endsWithItsContext,
		"PoolsNoBrokenConnection":   poolsNoBrokenConnection,
		"ALockTimeoutIsItsCaller's": aLockTimeoutIsItsCallers,
		"TxRefusesWhatMakesNoSense": txRefusesWhatMakesNoSense,
	})
}

// RunFaults runs the tests of faults and crowds.
func (e Tx) RunFaults(t *testing.T) {
	e.run(t, map[string]func(*txBench){
		"ACommitCutAnywhere": aCommitCutAnywhere,
	})
}

func (e Tx) run(t *testing.T, tests map[string]func(*txBench)) {
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(e.bench(t))
		})
	}
}

// txBench is a database with the table t(id, v), rows 1 and 2 with the value 1.
type txBench struct {
	*testing.T
	e      Tx
	dsn    string
	dialer faultconn.Dialer
	run    RunTx   // on a pool of 4
	db     *sql.DB // to look at it from outside
}

func (e Tx) bench(t *testing.T) *txBench {
	b := &txBench{T: t, e: e, dsn: testdb.DSN(t, e.Kind)}
	var err error
	if b.db, err = suite.ConnectOn(e.Kind, b.dsn, &faultconn.Dialer{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.db.Close() })
	b.outside("CREATE TABLE t (id int PRIMARY KEY, v int NOT NULL)")
	b.outside("INSERT INTO t VALUES (1, 1), (2, 1)")
	b.run = b.open(4).Run
	return b
}

// open makes another pool.
func (b *txBench) open(conns int) TxPool {
	b.Helper()
	pool, err := b.e.Open(b.Context(), b.dsn, &b.dialer, conns)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	return pool
}

func (b *txBench) outside(query string) {
	b.Helper()
	if _, err := b.db.ExecContext(b.Context(), query); err != nil {
		b.Fatalf("%s: %v", query, err)
	}
}

func (b *txBench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// value is what a row has now, by a session that is not the tested.
func (b *txBench) value(query string) (v int) {
	b.Helper()
	b.must(b.db.QueryRowContext(b.Context(), query).Scan(&v))
	return v
}

func (b *txBench) want(v int) {
	b.Helper()
	if got := b.value("SELECT v FROM t WHERE id = 1"); got != v {
		b.Errorf("the row has %d, want %d", got, v)
	}
}

const (
	add1 = "UPDATE t SET v = v + 1 WHERE id = 1"
	add2 = "UPDATE t SET v = v + 1 WHERE id = 2"
	get1 = "SELECT v FROM t WHERE id = 1"
	sum  = "SELECT sum(v) FROM t"
)

// conflict is a statement that fails as one that conflicts with others.
func (b *txBench) conflict() string {
	if b.e.Kind == devdb.Postgres {
		return "DO $$ BEGIN RAISE SQLSTATE '40001'; END $$"
	}
	return "SIGNAL SQLSTATE '40001'"
}

func commitsOrRollsBack(b *txBench) {
	b.must(b.run(b.Context(), TxOptions{}, func(tx Statements) error { return tx.Exec(add1) }))
	b.want(2)
	mine := errors.New("fn's own")
	err := b.run(b.Context(), TxOptions{}, func(tx Statements) error {
		b.must(tx.Exec(add1))
		return mine
	})
	if err != mine {
		b.Errorf("got %v, want fn's own error as it is", err)
	}
	b.want(2)
}

func aPanicRollsBack(b *txBench) {
	run := b.open(1).Run
	func() {
		defer func() {
			if got := recover(); got != "fn's own" {
				b.Errorf("the panic came out as %v", got)
			}
		}()
		_ = run(b.Context(), TxOptions{}, func(tx Statements) error {
			b.must(tx.Exec(add1))
			panic("fn's own")
		})
	}()
	b.must(run(b.Context(), TxOptions{}, func(tx Statements) error { return tx.Exec(add2) })) // the connection is free
	b.want(1)
}

func refusesWrites(b *txBench) {
	err := b.run(b.Context(), TxOptions{ReadOnly: true}, func(tx Statements) error { return tx.Exec(add1) })
	if err == nil || !strings.Contains(strings.ToLower(err.Error()), "read-only transaction") &&
		!strings.Contains(strings.ToLower(err.Error()), "read only transaction") {
		b.Errorf("got %v", err)
	}
	b.want(1)
	b.must(b.run(b.Context(), TxOptions{ReadOnly: true}, func(tx Statements) error {
		v, err := tx.Int(get1)
		if v != 1 {
			b.Errorf("read %d", v)
		}
		return err
	}))
}

func endsWithItsContext(b *txBench) {
	ended := errors.New("the service stops")
	ctx, cancel := context.WithCancelCause(b.Context())
	err := b.run(ctx, TxOptions{}, func(tx Statements) error {
		b.must(tx.Exec(add1))
		cancel(ended)
		return nil
	})
	if !errors.Is(err, ended) || errors.Is(err, dblock.ErrOutcomeUnknown) {
		b.Errorf("it ended in fn: %v", err)
	}
	b.want(1)
	runs := 0
	err = b.run(ctx, TxOptions{}, func(Statements) error { runs++; return nil })
	if !errors.Is(err, ended) || runs != 0 {
		b.Errorf("it had ended before: %d runs, %v", runs, err)
	}
	b.must(b.run(b.Context(), TxOptions{}, func(tx Statements) error { return tx.Exec(add1) })) // the row is free
}

func txRefusesWhatMakesNoSense(b *txBench) {
	for name, o := range map[string]TxOptions{
		"Attempts": {Attempts: -1}, "more attempts": {Attempts: 1001}, "Isolation": {Isolation: sql.LevelLinearizable},
	} {
		runs := 0
		err := b.run(b.Context(), o, func(Statements) error { runs++; return nil })
		if !errors.As(err, new(*dblock.InvalidError)) || runs != 0 {
			b.Errorf("%s: %d runs, %v", name, runs, err)
		}
	}
	if err := b.run(b.Context(), TxOptions{}, nil); !errors.Is(err, dblock.ErrInvalid) {
		b.Errorf("without a function: %v", err)
	}
}
