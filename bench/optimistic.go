package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/optimistic/mysqloptimistic"
	"github.com/dblock-go/dblock/optimistic/pgoptimistic"
)

// optimists add 1 to the balance of an account, by its version. Either each client has an account:
// then the question is what Update costs beside the two statements that it sends. Or all clients
// have the same: then it is which update gets through. All read and write what they would if the
// new balance were the outcome of code; hotatomic shows the case of a plain sum.
func optimists() []Scenario {
	return []Scenario{
		optimisticScenario("optimistic/byhand", "a row for each client: SELECT, and UPDATE … WHERE version, by hand", accounts.byHand, 0),
		optimisticScenario("optimistic/update", "a row for each client: the same two statements by Update", accounts.update, 0),
		optimisticScenario("optimistic/hotnaive", "one row for all: by hand, and again at once until it is written", accounts.naive, 1),
		optimisticScenario("optimistic/hot", "one row for all: Update with LockRowAfter", accounts.escalating, 1),
		optimisticScenario("optimistic/hoteight", "the same with eight pools, as of eight processes", accounts.escalating, 8),
		optimisticScenario("optimistic/hotlock", "one row for all: SELECT … FOR UPDATE, and UPDATE", accounts.locked, 1),
		optimisticScenario("optimistic/hotatomic", "one row for all: UPDATE … SET balance = balance + 1", accounts.atomic, 1),
	}
}

// adding adds 1 to the balance of an account. Its error is optimistic.ErrStale if another client
// wrote it.
type adding func(a accounts, ctx context.Context, id int64) error

// optimisticScenario has all clients write one row from so many pools, or each a row of its own if
// hotPools is 0.
func optimisticScenario(name, about string, add adding, hotPools int) Scenario {
	return Scenario{Name: name, About: about, Open: func(ctx context.Context, env *Env) (Workload, error) {
		w := &optimisticWorkload{add: add, hot: hotPools > 0}
		pools := max(1, hotPools)
		for range pools {
			db, err := env.database(ctx, max(1, env.Conns/pools))
			if err != nil {
				return nil, errors.Join(err, w.Close())
			}
			w.pools = append(w.pools, accounts{db})
		}
		if err := w.pools[0].create(ctx, env.Clients); err != nil {
			return nil, errors.Join(err, w.Close())
		}
		w.written = w.pools[0].written
		return w, nil
	}}
}

type optimisticWorkload struct {
	pools   []accounts
	add     adding
	hot     bool
	written func(context.Context) (balances, versions int64, err error)
}

func (w *optimisticWorkload) Close() error {
	var all error
	for _, pool := range w.pools {
		all = errors.Join(all, pool.Close())
	}
	return all
}

func (w *optimisticWorkload) Round(ctx context.Context, _ int) (Round, error) {
	balances, versions, err := w.written(ctx)
	if err != nil {
		return Round{}, err
	}
	return Round{
		Client: func(id int) (Op, error) {
			pool := w.pools[id%len(w.pools)]
			if w.hot {
				id = 0
			}
			return func(ctx context.Context) (int, error) { return 1, w.add(pool, ctx, int64(id)) }, nil
		},
		Check: func(ctx context.Context, ok int64) error {
			b, v, err := w.written(ctx)
			if err == nil && (b-balances != ok || v-versions != ok) {
				err = fmt.Errorf("%d writes were reported to the clients, but the balances have grown by %d, and the versions by %d", ok, b-balances, v-versions)
			}
			return err
		},
	}, nil
}

// accounts is a table of them. On MySQL the driver prepares each statement, for Update and by hand.
type accounts struct{ *Database }

const (
	accountLoad  = "SELECT balance, version FROM optimistic_account WHERE id = $1"
	accountSave  = "UPDATE optimistic_account SET balance = $1, version = version + 1 WHERE id = $2 AND version = $3"
	accountWrite = "UPDATE optimistic_account SET balance = $1, version = version + 1 WHERE id = $2"
	accountAdd   = "UPDATE optimistic_account SET balance = balance + 1, version = version + 1 WHERE id = $1"
)

func (t accounts) create(ctx context.Context, n int) error {
	rows := make([]string, n)
	for i := range rows {
		rows[i] = fmt.Sprintf("(%d, 0, 1)", i)
	}
	return execAll(ctx, t,
		"CREATE TABLE optimistic_account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL, version BIGINT NOT NULL)",
		"INSERT INTO optimistic_account VALUES "+strings.Join(rows, ", "))
}

// written sums up the balances, and how often a version has changed, or would have.
func (t accounts) written(ctx context.Context) (balances, versions int64, err error) {
	err = t.Query(ctx, "SELECT SUM(balance), SUM(version) FROM optimistic_account").Scan(&balances, &versions)
	return balances, versions, err
}

// account is a row.
type account struct{ id, balance, version int64 }

func loadAccount(ctx context.Context, conn Conn, query string, id int64) (account, error) {
	a := account{id: id}
	err := conn.Query(ctx, query, id).Scan(&a.balance, &a.version)
	return a, err
}

// saveAccount writes the account if it still has its version.
func saveAccount(ctx context.Context, conn Conn, a account) (account, error) {
	rows, err := conn.Exec(ctx, accountSave, a.balance, a.id, a.version)
	return a, optimistic.Rows(rows, err, optimistic.Row{Table: "optimistic_account", Key: a.id, Expected: a.version})
}

// raise is what all the clients do to an account.
func raise(_ context.Context, a *account) error {
	a.balance++
	return nil
}

func (t accounts) byHand(ctx context.Context, id int64) error {
	a, err := loadAccount(ctx, t, accountLoad, id)
	if err != nil {
		return err
	}
	a.balance++
	_, err = saveAccount(ctx, t, a)
	return err
}

func (t accounts) naive(ctx context.Context, id int64) error {
	for {
		if err := t.byHand(ctx, id); !errors.Is(err, optimistic.ErrStale) {
			return err
		}
	}
}

func (t accounts) update(ctx context.Context, id int64) (err error) { return t.with(ctx, id) }

// escalating locks the row from the third attempt on.
func (t accounts) escalating(ctx context.Context, id int64) error {
	const attempts, table, key = 3, "optimistic_account", "id"
	return t.with(ctx, id, pick(t.kind, pgoptimistic.LockRowAfter(attempts, table, key, id), mysqloptimistic.LockRowAfter(attempts, table, key, id)))
}

func (t accounts) with(ctx context.Context, id int64, opts ...optimistic.Option) (err error) {
	if t.pool != nil {
		_, err = pgoptimistic.Update(ctx, t.pool,
			func(ctx context.Context, db pgoptimistic.DB) (account, error) {
				return loadAccount(ctx, postgresConn{db}, accountLoad, id)
			}, raise,
			func(ctx context.Context, db pgoptimistic.DB, a account) (account, error) {
				return saveAccount(ctx, postgresConn{db}, a)
			}, opts...)
		return err
	}
	_, err = mysqloptimistic.Update(ctx, t.db,
		func(ctx context.Context, db mysqloptimistic.DB) (account, error) {
			return loadAccount(ctx, mysqlConn{db}, accountLoad, id)
		}, raise,
		func(ctx context.Context, db mysqloptimistic.DB, a account) (account, error) {
			return saveAccount(ctx, mysqlConn{db}, a)
		}, opts...)
	return err
}

func (t accounts) locked(ctx context.Context, id int64) error {
	return t.Tx(ctx, func(tx Conn) error {
		a, err := loadAccount(ctx, tx, accountLoad+" FOR UPDATE", id)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, accountWrite, a.balance+1, id)
		return err
	})
}

func (t accounts) atomic(ctx context.Context, id int64) error {
	rows, err := t.Exec(ctx, accountAdd, id)
	if err == nil && rows != 1 {
		err = errors.New("there is no such account")
	}
	return err
}
