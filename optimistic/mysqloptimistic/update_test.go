package mysqloptimistic_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock"
	optimisticsuite "github.com/dblock-go/dblock/internal/conformance/optimistic"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/optimistic/internal/attempt"
	"github.com/dblock-go/dblock/optimistic/mysqloptimistic"
)

var errMine = errors.New("the caller's own")

// stale is an account that always has a newer version, and how often it was loaded.
type stale struct{ loads int }

func (s *stale) load(context.Context, mysqloptimistic.DB) (optimisticsuite.Account, error) {
	s.loads++
	return optimisticsuite.Account{ID: 1}, nil
}

func (s *stale) save(_ context.Context, _ mysqloptimistic.DB, a optimisticsuite.Account) (optimisticsuite.Account, error) {
	return a, optimistic.Rows(0, nil, a.ExpectedOf())
}

func keep(context.Context, *optimisticsuite.Account) error { return nil }

// wrapped is a host's wrapper of a pool: dblock can't see what is in it.
type wrapped struct{ mysqloptimistic.DB }

// TestWhatIsTakenForACallersTransaction: there is one attempt, and more on a pool.
func TestWhatIsTakenForACallersTransaction(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), testdb.MySQL(t)
	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	conn, err := pool.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for name, of := range map[string]struct {
		db   mysqloptimistic.DB
		want int
	}{
		"a pool": {pool, 3}, "a transaction": {tx, 1}, "a connection, which may be in one": {conn, 1}, "a wrapper": {wrapped{pool}, 1},
	} {
		var s stale
		_, err := mysqloptimistic.Update(ctx, of.db, s.load, keep, s.save, optimistic.Attempts(3))
		var conflict *optimistic.StaleError
		if !errors.As(err, &conflict) || conflict.Attempts != of.want || s.loads != of.want {
			t.Errorf("%s: %d loads, %v", name, s.loads, err)
		}
	}
}

// TestOwnErrors: what is no statement's comes as it is, unless a statement may have come before it.
func TestOwnErrors(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), testdb.MySQL(t)
	var s stale
	fails := func(context.Context, mysqloptimistic.DB, optimisticsuite.Account) (optimisticsuite.Account, error) {
		return optimisticsuite.Account{ID: 9}, errMine
	}
	update := func(db mysqloptimistic.DB) error {
		a, err := mysqloptimistic.Update(ctx, db, s.load, keep, fails)
		if a != (optimisticsuite.Account{}) {
			t.Errorf("got %+v with %v", a, err)
		}
		return err
	}
	if err := update(pool); !errors.Is(err, errMine) || !errors.Is(err, dblock.ErrOutcomeUnknown) {
		t.Errorf("save's: %v", err)
	}
	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if err := update(tx); err != errMine {
		t.Errorf("save's in a transaction: %v", err)
	}
	_, err = mysqloptimistic.Update(ctx, pool, func(context.Context, mysqloptimistic.DB) (optimisticsuite.Account, error) {
		return optimisticsuite.Account{}, errMine
	}, keep, s.save)
	if err != errMine {
		t.Errorf("load's: %v", err)
	}
	_, err = mysqloptimistic.Update(ctx, pool, s.load, func(context.Context, *optimisticsuite.Account) error { return errMine }, s.save)
	if err != errMine {
		t.Errorf("mutate's: %v", err)
	}
	_, err = mysqloptimistic.Update(ctx, pool, func(ctx context.Context, db mysqloptimistic.DB) (a optimisticsuite.Account, err error) {
		return load(ctx, db, 1) // there is no table
	}, keep, s.save)
	if server := (*mysql.MySQLError)(nil); !errors.As(err, &server) || errors.Is(err, dblock.ErrUnavailable) {
		t.Errorf("the server's: %v", err)
	}
}

func TestWithoutAServer(t *testing.T) {
	t.Parallel()
	pool, err := sql.Open("mysql", "app@tcp(127.0.0.1:1)/none")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pool.Close() }()
	var s stale
	read := func(ctx context.Context, db mysqloptimistic.DB) (optimisticsuite.Account, error) {
		return load(ctx, db, 1)
	}
	write := func(ctx context.Context, db mysqloptimistic.DB, a optimisticsuite.Account) (optimisticsuite.Account, error) {
		return save(ctx, db, a, false)
	}
	_, noLoad := mysqloptimistic.Update(t.Context(), pool, read, keep, write)
	_, noSave := mysqloptimistic.Update(t.Context(), pool, s.load, keep, write)
	noTx := mysqloptimistic.Do(t.Context(), pool, func(context.Context, *sql.Tx, int) error { return nil })
	for name, err := range map[string]error{"load": noLoad, "save": noSave, "Do": noTx} {
		if !errors.Is(err, dblock.ErrUnavailable) || errors.Is(err, dblock.ErrOutcomeUnknown) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRefusesWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), testdb.MySQL(t)
	lock := mysqloptimistic.LockRow("account", "id", 1)
	foreign := attempt.Opt(func(p *attempt.Plan) { p.EscalateAfter, p.Lock = 1, func() {} })
	for name, of := range map[string]struct {
		db   mysqloptimistic.DB
		opts []optimistic.Option
	}{
		"no database": {db: nil}, "a nil pool": {db: (*sql.DB)(nil)}, "a nil connection": {db: (*sql.Conn)(nil)},
		"a nil transaction":       {db: (*sql.Tx)(nil)},
		"Attempts":                {pool, []optimistic.Option{optimistic.Attempts(0)}},
		"a lock at once":          {pool, []optimistic.Option{mysqloptimistic.EscalateAfter(0, lock)}},
		"a lock that never comes": {pool, []optimistic.Option{mysqloptimistic.EscalateAfter(10, lock)}},
		"no lock":                 {pool, []optimistic.Option{mysqloptimistic.EscalateAfter(1, nil)}},
		"no attempt before":       {pool, []optimistic.Option{mysqloptimistic.LockRowAfter(0, "account", "id", 1)}},
		"a foreign lock":          {pool, []optimistic.Option{foreign}},
	} {
		var s stale
		_, err := mysqloptimistic.Update(ctx, of.db, s.load, keep, s.save, of.opts...)
		if !errors.As(err, new(*dblock.InvalidError)) || s.loads != 0 {
			t.Errorf("%s: %d loads, %v", name, s.loads, err)
		}
		if of.db == nil || of.opts == nil {
			continue
		}
		err = mysqloptimistic.Do(ctx, pool, func(context.Context, *sql.Tx, int) error { t.Errorf("%s: fn was called", name); return nil }, of.opts...)
		if !errors.As(err, new(*dblock.InvalidError)) {
			t.Errorf("Do: %s: %v", name, err)
		}
	}
	var s stale
	_, noLoad := mysqloptimistic.Update(ctx, pool, nil, keep, s.save)
	_, noMutate := mysqloptimistic.Update(ctx, pool, s.load, nil, s.save)
	_, noSave := mysqloptimistic.Update(ctx, pool, s.load, keep, nil)
	for name, err := range map[string]error{
		"load": noLoad, "mutate": noMutate, "save": noSave, "fn": mysqloptimistic.Do(ctx, pool, nil), "a lock without a transaction": lock(ctx, pool),
		"pool": mysqloptimistic.Do(ctx, nil, func(context.Context, *sql.Tx, int) error { return nil }),
	} {
		if !errors.As(err, new(*dblock.InvalidError)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// fake answers at once, and begins no transaction.
type fake struct{}

func (f *fake) ExecContext(context.Context, string, ...any) (sql.Result, error) { return f, nil }

func (f *fake) PrepareContext(context.Context, string) (*sql.Stmt, error) { return nil, errMine }

func (f *fake) QueryContext(context.Context, string, ...any) (*sql.Rows, error) { return nil, errMine }

func (f *fake) QueryRowContext(context.Context, string, ...any) *sql.Row { return nil }

func (f *fake) LastInsertId() (int64, error) { return 0, nil }

func (f *fake) RowsAffected() (int64, error) { return 1, nil }

// atOnce is one that the compiler does not see through, as it does not see through a pool.
var atOnce mysqloptimistic.DB = &fake{}

// TestUpdateCostsLittle: at most four allocations more than the two statements by hand.
func TestUpdateCostsLittle(t *testing.T) {
	ctx, db := t.Context(), atOnce
	read := func(ctx context.Context, db mysqloptimistic.DB) (a optimisticsuite.Account, err error) {
		a = optimisticsuite.Account{ID: 1 << 40, Balance: 1 << 40, Version: 1 << 40} // what is small would not count
		_, err = db.ExecContext(ctx, "SELECT", a.ID)                                 // a *sql.Row can't be made
		return a, err
	}
	byHand := testing.AllocsPerRun(1000, func() {
		a, err := read(ctx, db)
		a.Balance++
		if err == nil {
			var result sql.Result
			if result, err = db.ExecContext(ctx, "UPDATE", a.Balance, a.ID, a.Version, false); err == nil {
				_, err = result.RowsAffected()
			}
		}
		if err != nil {
			t.Error(err)
		}
	})
	ours := testing.AllocsPerRun(1000, func() {
		if _, err := mysqloptimistic.Update(ctx, db, read, keep, func(
			ctx context.Context, db mysqloptimistic.DB, a optimisticsuite.Account,
		) (optimisticsuite.Account, error) {
			return save(ctx, db, a, false)
		}); err != nil {
			t.Error(err)
		}
	})
	t.Logf("%v allocations, by hand %v", ours, byHand)
	if ours > byHand+4 {
		t.Errorf("%v allocations, by hand %v", ours, byHand)
	}
}

// TestMutateUsesThePool: the update that has the row's lock reads by the pool. The others wait for
// the lock, and leave it a connection.
func TestMutateUsesThePool(t *testing.T) {
	t.Parallel()
	const callers, each = 12, 4
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			pool := openPool(t, testdb.DSN(t, kind), 3)
			for _, text := range []string{
				"CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL, version BIGINT NOT NULL)", "INSERT INTO account VALUES (1, 0, 1)",
			} {
				if _, err := pool.ExecContext(ctx, text); err != nil {
					t.Fatal(err)
				}
			}
			type row struct{ balance, version int64 }
			load := func(ctx context.Context, db mysqloptimistic.DB) (r row, err error) {
				err = db.QueryRowContext(ctx, "SELECT balance, version FROM account").Scan(&r.balance, &r.version)
				return r, err
			}
			mutate := func(ctx context.Context, r *row) (err error) {
				var one int64
				err = pool.QueryRowContext(ctx, "SELECT 1").Scan(&one)
				r.balance += one
				return err
			}
			save := func(ctx context.Context, db mysqloptimistic.DB, r row) (row, error) {
				result, err := db.ExecContext(ctx, "UPDATE account SET balance = ?, version = version + 1 WHERE version = ?", r.balance, r.version)
				return r, optimistic.Result(result, err, optimistic.Row{Table: "account", Key: 1})
			}
			var all sync.WaitGroup
			for range callers {
				all.Go(func() {
					for range each {
						_, err := mysqloptimistic.Update(ctx, pool, load, mutate, save,
							mysqloptimistic.EscalateAfter(1, mysqloptimistic.LockRow("account", "id", 1)), optimistic.Attempts(100))
						if err != nil {
							t.Error(err)
						}
					}
				})
			}
			all.Wait()
			var balance int
			if err := pool.QueryRowContext(t.Context(), "SELECT balance FROM account").Scan(&balance); err != nil || balance != callers*each {
				t.Errorf("the balance is %d, %v, want %d", balance, err, callers*each)
			}
		})
	}
}
