package pgoptimistic_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	optimisticsuite "github.com/dblock-go/dblock/internal/conformance/optimistic"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/optimistic/internal/attempt"
	"github.com/dblock-go/dblock/optimistic/pgoptimistic"
)

var errMine = errors.New("the caller's own")

// stale is an account that always has a newer version, and how often it was loaded.
type stale struct{ loads int }

func (s *stale) load(context.Context, pgoptimistic.DB) (optimisticsuite.Account, error) {
	s.loads++
	return optimisticsuite.Account{ID: 1}, nil
}

func (s *stale) save(_ context.Context, _ pgoptimistic.DB, a optimisticsuite.Account) (optimisticsuite.Account, error) {
	return a, optimistic.Rows(0, nil, a.ExpectedOf())
}

func keep(context.Context, *optimisticsuite.Account) error { return nil }

// wrapped is a host's wrapper of a pool: dblock can't see what is in it.
type wrapped struct{ pgoptimistic.DB }

// TestWhatIsTakenForACallersTransaction: there is one attempt, and more on whatever can begin a
// transaction.
func TestWhatIsTakenForACallersTransaction(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), testdb.Postgres(t)
	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	free, err := pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer free.Release()
	busy, err := pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Release()
	if _, err := busy.Exec(ctx, "BEGIN"); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = busy.Exec(context.WithoutCancel(ctx), "ROLLBACK") }()
	for name, of := range map[string]struct {
		db   pgoptimistic.DB
		want int
	}{
		"a pool": {pool, 3}, "a pool's connection": {free, 3}, "a connection": {free.Conn(), 3}, "a transaction": {tx, 1},
		"a connection in one": {busy.Conn(), 1}, "a pool's connection in one": {busy, 1}, "a wrapper": {wrapped{pool}, 1},
	} {
		var s stale
		_, err := pgoptimistic.Update(ctx, of.db, s.load, keep, s.save, optimistic.Attempts(3))
		var conflict *optimistic.StaleError
		if !errors.As(err, &conflict) || conflict.Attempts != of.want || s.loads != of.want {
			t.Errorf("%s: %d loads, %v", name, s.loads, err)
		}
	}
}

// TestOwnErrors: what is no statement's comes as it is, unless a statement may have come before it.
func TestOwnErrors(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), testdb.Postgres(t)
	var s stale
	fails := func(context.Context, pgoptimistic.DB, optimisticsuite.Account) (optimisticsuite.Account, error) {
		return optimisticsuite.Account{ID: 9}, errMine
	}
	update := func(db pgoptimistic.DB) error {
		a, err := pgoptimistic.Update(ctx, db, s.load, keep, fails)
		if a != (optimisticsuite.Account{}) {
			t.Errorf("got %+v with %v", a, err)
		}
		return err
	}
	if err := update(pool); !errors.Is(err, errMine) || !errors.Is(err, dblock.ErrOutcomeUnknown) {
		t.Errorf("save's: %v", err)
	}
	if err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return update(tx) }); err != errMine {
		t.Errorf("save's in a transaction: %v", err)
	}
	_, err := pgoptimistic.Update(ctx, pool, func(context.Context, pgoptimistic.DB) (optimisticsuite.Account, error) {
		return optimisticsuite.Account{}, errMine
	}, keep, s.save)
	if err != errMine {
		t.Errorf("load's: %v", err)
	}
	_, err = pgoptimistic.Update(ctx, pool, s.load, func(context.Context, *optimisticsuite.Account) error { return errMine }, s.save)
	if err != errMine {
		t.Errorf("mutate's: %v", err)
	}
	_, err = pgoptimistic.Update(ctx, pool, func(ctx context.Context, db pgoptimistic.DB) (a optimisticsuite.Account, err error) {
		return load(ctx, db, 1) // there is no table
	}, keep, s.save)
	if server := (*pgconn.PgError)(nil); !errors.As(err, &server) || errors.Is(err, dblock.ErrUnavailable) {
		t.Errorf("the server's: %v", err)
	}
}

func TestWithoutAServer(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/none?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	var s stale
	read := func(ctx context.Context, db pgoptimistic.DB) (optimisticsuite.Account, error) {
		return load(ctx, db, 1)
	}
	write := func(ctx context.Context, db pgoptimistic.DB, a optimisticsuite.Account) (optimisticsuite.Account, error) {
		return save(ctx, db, a, false)
	}
	_, noLoad := pgoptimistic.Update(t.Context(), pool, read, keep, write)
	_, noSave := pgoptimistic.Update(t.Context(), pool, s.load, keep, write)
	noTx := pgoptimistic.Do(t.Context(), pool, func(context.Context, pgx.Tx, int) error { return nil })
	for name, err := range map[string]error{"load": noLoad, "save": noSave, "Do": noTx} {
		if !errors.Is(err, dblock.ErrUnavailable) || errors.Is(err, dblock.ErrOutcomeUnknown) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRefusesWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), testdb.Postgres(t)
	lock := pgoptimistic.LockRow("account", "id", 1)
	foreign := attempt.Opt(func(p *attempt.Plan) { p.EscalateAfter, p.Lock = 1, func() {} })
	for name, of := range map[string]struct {
		db   pgoptimistic.DB
		opts []optimistic.Option
	}{
		"no database": {db: nil}, "a nil pool": {db: (*pgxpool.Pool)(nil)}, "a nil connection": {db: (*pgx.Conn)(nil)},
		"a nil pool's connection": {db: (*pgxpool.Conn)(nil)},
		"Attempts":                {pool, []optimistic.Option{optimistic.Attempts(0)}},
		"a lock at once":          {pool, []optimistic.Option{pgoptimistic.EscalateAfter(0, lock)}},
		"a lock that never comes": {pool, []optimistic.Option{pgoptimistic.EscalateAfter(10, lock)}},
		"no lock":                 {pool, []optimistic.Option{pgoptimistic.EscalateAfter(1, nil)}},
		"no attempt before":       {pool, []optimistic.Option{pgoptimistic.LockRowAfter(0, "account", "id", 1)}},
		"a foreign lock":          {pool, []optimistic.Option{foreign}},
	} {
		var s stale
		_, err := pgoptimistic.Update(ctx, of.db, s.load, keep, s.save, of.opts...)
		if !errors.As(err, new(*dblock.InvalidError)) || s.loads != 0 {
			t.Errorf("%s: %d loads, %v", name, s.loads, err)
		}
		if of.db == nil || of.opts == nil {
			continue
		}
		err = pgoptimistic.Do(ctx, pool, func(context.Context, pgx.Tx, int) error { t.Errorf("%s: fn was called", name); return nil }, of.opts...)
		if !errors.As(err, new(*dblock.InvalidError)) {
			t.Errorf("Do: %s: %v", name, err)
		}
	}
	var s stale
	_, noLoad := pgoptimistic.Update(ctx, pool, nil, keep, s.save)
	_, noMutate := pgoptimistic.Update(ctx, pool, s.load, nil, s.save)
	_, noSave := pgoptimistic.Update(ctx, pool, s.load, keep, nil)
	for name, err := range map[string]error{
		"load": noLoad, "mutate": noMutate, "save": noSave, "fn": pgoptimistic.Do(ctx, pool, nil), "a lock without a transaction": lock(ctx, pool),
		"pool": pgoptimistic.Do(ctx, nil, func(context.Context, pgx.Tx, int) error { return nil }),
	} {
		if !errors.As(err, new(*dblock.InvalidError)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// fake answers at once, and begins no transaction.
type fake struct{ pgx.Row }

func (f *fake) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return pgconn.NewCommandTag("UPDATE 1"), nil
}

func (f *fake) Query(context.Context, string, ...any) (pgx.Rows, error) { return nil, nil }

func (f *fake) QueryRow(context.Context, string, ...any) pgx.Row { return f }

func (f *fake) Scan(dest ...any) error {
	for _, d := range dest {
		*d.(*int64) = 1 << 40 // what is small would not count
	}
	return nil
}

// atOnce is one that the compiler does not see through, as it does not see through a pool.
var atOnce pgoptimistic.DB = &fake{}

// TestUpdateCostsLittle: at most four allocations more than the two statements by hand.
func TestUpdateCostsLittle(t *testing.T) {
	ctx, db := t.Context(), atOnce
	read := func(ctx context.Context, db pgoptimistic.DB) (optimisticsuite.Account, error) {
		return load(ctx, db, 1<<40)
	}
	write := func(ctx context.Context, db pgoptimistic.DB, a optimisticsuite.Account) (optimisticsuite.Account, error) {
		tag, err := db.Exec(ctx, "UPDATE", a.ID, a.Balance, a.Version)
		return a, optimistic.Tag(tag, err, a.ExpectedOf())
	}
	byHand := testing.AllocsPerRun(1000, func() {
		a, err := load(ctx, db, 1<<40)
		a.Balance++
		if err == nil {
			var tag pgconn.CommandTag
			tag, err = db.Exec(ctx, "UPDATE", a.ID, a.Balance, a.Version)
			if tag.RowsAffected() != 1 {
				err = errMine
			}
		}
		if err != nil {
			t.Error(err)
		}
	})
	ours := testing.AllocsPerRun(1000, func() {
		if _, err := pgoptimistic.Update(ctx, db, read, keep, write); err != nil {
			t.Error(err)
		}
	})
	t.Logf("%v allocations, by hand %v", ours, byHand)
	if ours > byHand+4 {
		t.Errorf("%v allocations, by hand %v", ours, byHand)
	}
}

// TestNestedUpdatesOfAFullPool: two updates under locks and the host have all connections of the
// pool, and each update makes another one. One of the two rolls back, and both are done.
func TestNestedUpdatesOfAFullPool(t *testing.T) {
	t.Parallel()
	ctx, host := t.Context(), testdb.Postgres(t)
	if _, err := host.Exec(ctx, "CREATE TABLE account (id BIGINT PRIMARY KEY, n BIGINT NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	if _, err := host.Exec(ctx, "INSERT INTO account SELECT i, 0 FROM generate_series(1, 4) i"); err != nil {
		t.Fatal(err)
	}
	cfg := host.Config()
	cfg.MaxConns = 3
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	taken, err := pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Release()
	var loads, locked sync.WaitGroup
	locked.Add(2)
	type row struct{ id int64 }
	load := func(id int64) func(context.Context, pgoptimistic.DB) (row, error) {
		return func(context.Context, pgoptimistic.DB) (row, error) { return row{id}, nil }
	}
	save := func(_ context.Context, db pgoptimistic.DB, r row) (row, error) {
		_, err := db.Exec(ctx, "UPDATE account SET n = n + 1 WHERE id = $1", r.id)
		return r, err
	}
	for id := range int64(2) {
		loads.Go(func() {
			saves, attempts := 0, 0
			outer := func(ctx context.Context, r *row) error {
				if attempts++; attempts == 1 {
					return nil
				}
				if attempts == 2 {
					locked.Done()
					locked.Wait()
				}
				inner := func(context.Context, *row) error { return nil }
				_, err := pgoptimistic.Update(ctx, pool, load(r.id+2), inner, save, pgoptimistic.LockRowAfter(1, "account", "id", r.id+2))
				return err
			}
			saveAgain := func(ctx context.Context, db pgoptimistic.DB, r row) (row, error) {
				if saves++; saves == 1 { // the next attempt is under the lock
					return r, &optimistic.StaleError{Table: "account", Key: r.id}
				}
				return save(ctx, db, r)
			}
			_, err := pgoptimistic.Update(ctx, pool, load(id+1), outer, saveAgain, pgoptimistic.LockRowAfter(1, "account", "id", id+1))
			if err != nil {
				t.Error(err)
			}
		})
	}
	loads.Wait()
	var n int
	if err := host.QueryRow(ctx, "SELECT sum(n) FROM account WHERE n > 0").Scan(&n); err != nil || n < 4 {
		t.Errorf("%d updates, %v, want 4", n, err)
	}
}

// TestMutateUsesThePool: the update that has the row's lock reads by the pool. The others wait for
// the lock, and leave it a connection.
func TestMutateUsesThePool(t *testing.T) {
	t.Parallel()
	const callers, each = 12, 4
	host := testdb.Postgres(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, text := range []string{
		"CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL, version BIGINT NOT NULL)", "INSERT INTO account VALUES (1, 0, 1)",
	} {
		if _, err := host.Exec(ctx, text); err != nil {
			t.Fatal(err)
		}
	}
	cfg := host.Config()
	cfg.MaxConns = 3
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	type row struct{ balance, version int64 }
	load := func(ctx context.Context, db pgoptimistic.DB) (r row, err error) {
		err = db.QueryRow(ctx, "SELECT balance, version FROM account").Scan(&r.balance, &r.version)
		return r, err
	}
	mutate := func(ctx context.Context, r *row) (err error) {
		var one int64
		err = pool.QueryRow(ctx, "SELECT 1").Scan(&one)
		r.balance += one
		return err
	}
	save := func(ctx context.Context, db pgoptimistic.DB, r row) (row, error) {
		tag, err := db.Exec(ctx, "UPDATE account SET balance = $1, version = version + 1 WHERE version = $2", r.balance, r.version)
		return r, optimistic.Tag(tag, err, optimistic.Row{Table: "account", Key: 1})
	}
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range each {
				_, err := pgoptimistic.Update(ctx, pool, load, mutate, save,
					pgoptimistic.EscalateAfter(1, pgoptimistic.LockRow("account", "id", 1)), optimistic.Attempts(100))
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	var balance int
	if err := host.QueryRow(context.WithoutCancel(ctx), "SELECT balance FROM account").Scan(&balance); err != nil || balance != callers*each {
		t.Errorf("the balance is %d, %v, want %d", balance, err, callers*each)
	}
}

// TestDoNestsUpdates: each function of Do changes a row of its own, and makes an update of another
// row by the pool. All may lock their rows. They leave one connection, which the nested updates
// use.
func TestDoNestsUpdates(t *testing.T) {
	t.Parallel()
	const callers, each = 3, 10
	host := testdb.Postgres(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := host.Exec(ctx, "CREATE TABLE account AS SELECT id::bigint, 0::bigint AS balance FROM generate_series(0, 5) AS id"); err != nil {
		t.Fatal(err)
	}
	cfg := host.Config()
	cfg.MaxConns = callers + 1
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	add := func(ctx context.Context, db pgoptimistic.DB, id int) error {
		tag, err := db.Exec(ctx, "UPDATE account SET balance = balance + 1 WHERE id = $1", id)
		return optimistic.Tag(tag, err, optimistic.Row{Table: "account", Key: id})
	}
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for range each {
				err := pgoptimistic.Do(ctx, pool, func(ctx context.Context, tx pgx.Tx, _ int) error {
					if err := add(ctx, tx, 2*i); err != nil {
						return err
					}
					return pgoptimistic.Do(ctx, pool, func(ctx context.Context, tx pgx.Tx, _ int) error {
						return add(ctx, tx, 2*i+1)
					}, pgoptimistic.LockRowAfter(1, "account", "id", 2*i+1))
				}, pgoptimistic.LockRowAfter(1, "account", "id", 2*i))
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	var done int
	if err := host.QueryRow(t.Context(), "SELECT count(*) FROM account WHERE balance >= $1", each).Scan(&done); err != nil || done != 2*callers {
		t.Errorf("%d rows have all their updates, %v, want %d", done, err, 2*callers)
	}
}
