package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/optimistic"
)

// optimists add 1 to the balance of an account, by its version: each caller to one of its own, where the question is what Update
// costs beside the two statements that it sends; and, the hot ones, all to the same, where it is who gets through. All read and
// write what they would if the new balance were not a sum but the outcome of code; hotatomic shows what it is if it is one.
func optimists() []Scenario {
	return []Scenario{
		optimisticScenario("optimistic/byhand", "a row for each caller: SELECT, and UPDATE … WHERE version, by hand", accounts.byHand, apart),
		optimisticScenario("optimistic/update", "a row for each caller: the same two statements by Update", accounts.update, apart),
		optimisticScenario("optimistic/hotnaive", "one row for all: by hand, and again at once until it is written", accounts.naive, together),
		optimisticScenario("optimistic/hot", "one row for all: Update with LockRowAfter", accounts.escalating, together),
		optimisticScenario("optimistic/hoteight", "the same with eight pools, as of eight processes", accounts.escalating, eight),
		optimisticScenario("optimistic/hotlock", "one row for all: SELECT … FOR UPDATE, and UPDATE", accounts.locked, together),
		optimisticScenario("optimistic/hotatomic", "one row for all: UPDATE … SET balance = balance + 1", accounts.atomic, together),
	}
}

// optimisticEscalation is after how many attempts optimistic/hot takes the lock.
const optimisticEscalation = 3

// adding adds 1 to the balance of an account. Its error is optimistic.ErrStale where it was written
// by somebody else.
type adding func(a accounts, ctx context.Context, id int64) error

// accounts is a table of them.
type accounts interface {
	byHand(ctx context.Context, id int64) error
	update(ctx context.Context, id int64) error
	naive(ctx context.Context, id int64) error
	escalating(ctx context.Context, id int64) error
	locked(ctx context.Context, id int64) error
	atomic(ctx context.Context, id int64) error

	// written sums up the balances, and how often a version has changed, or would have.
	written(ctx context.Context) (balances, versions int64, err error)

	Close() error
}

// account is a row of it.
type account struct{ id, balance, version int64 }

func (a account) at() optimistic.Row {
	return optimistic.Row{Table: "optimistic_account", Key: a.id, Expected: a.version}
}

// raise is what all the callers do to an account.
func raise(_ context.Context, a *account) error {
	a.balance++
	return nil
}

func optimisticScenario(name, about string, add adding, callers optimisticCallers) Scenario {
	return Scenario{Name: name, About: about, Open: func(ctx context.Context, env *Env) (Workload, error) {
		open := openAccountsMySQL
		if env.Kind == devdb.Postgres {
			open = openAccountsPostgres
		}
		w := &optimisticWorkload{add: add, hot: callers != apart}
		pools := 1
		if callers == eight {
			pools = 8
		}
		conns := env.Conns
		defer func() { env.Conns = conns }()
		env.Conns = max(1, conns/pools)
		for range pools {
			table, err := open(ctx, env, len(w.pools) == 0)
			if err != nil {
				return nil, errors.Join(err, w.Close())
			}
			w.pools = append(w.pools, table)
		}
		return w, nil
	}}
}

// optimisticCallers are who adds to what.
type optimisticCallers int

const (
	apart    optimisticCallers = iota // each to a row of its own
	together                          // all to one
	eight                             // all to one, from eight pools, as if from as many processes
)

type optimisticWorkload struct {
	pools []accounts
	add   adding
	hot   bool
}

func (w *optimisticWorkload) Close() error {
	var all error
	for _, table := range w.pools {
		all = errors.Join(all, table.Close())
	}
	return all
}

func (w *optimisticWorkload) Round(ctx context.Context, _ int) (Round, error) {
	balances, versions, err := w.pools[0].written(ctx)
	if err != nil {
		return Round{}, err
	}
	return Round{
		Client: func(id int) (Op, error) {
			table := w.pools[id%len(w.pools)]
			if w.hot {
				id = 0
			}
			return func(ctx context.Context) (int, error) { return 1, w.add(table, ctx, int64(id)) }, nil
		},
		Check: func(ctx context.Context, ok int64) error {
			b, v, err := w.pools[0].written(ctx)
			if err == nil && (b-balances != ok || v-versions != ok) {
				err = fmt.Errorf("the callers were told of %d writes, the balances have grown by %d, the versions by %d", ok, b-balances, v-versions)
			}
			return err
		},
	}, nil
}

// The statements that both engines have alike, but for the parameters.
const (
	accountTableSQL   = "CREATE TABLE optimistic_account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL, version BIGINT NOT NULL)"
	accountWrittenSQL = "SELECT SUM(balance), SUM(version) FROM optimistic_account"
	accountLoadSQL    = "SELECT balance, version FROM optimistic_account WHERE id = "
)
