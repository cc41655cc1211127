package bench

import (
	"context"
	"fmt"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/optimistic"
)

// optimists add 1 to the balance of an account, by its version: each caller to one of its own, where the question is what Update
// costs beside the two statements that it sends; and, the hot ones, all to the same, where it is who gets through. All read and
// write what they would if the new balance were not a sum but the outcome of code; hotatomic shows what it is if it is one.
func optimists() []Scenario {
	return []Scenario{
		optimisticScenario("optimistic/byhand", "a row for each caller: SELECT, and UPDATE … WHERE version, by hand", accounts.byHand, false),
		optimisticScenario("optimistic/update", "a row for each caller: the same two statements by Update", accounts.update, false),
		optimisticScenario("optimistic/table", "a row for each caller: SELECT by hand, and Table.Update", accounts.table, false),
		optimisticScenario("optimistic/hotnaive", "one row for all: by hand, and again at once until it is written", accounts.naive, true),
		optimisticScenario("optimistic/hot", "one row for all: Update, with the row's lock after the first attempts", accounts.escalating, true),
		optimisticScenario("optimistic/hotlock", "one row for all: SELECT … FOR UPDATE, and UPDATE", accounts.locked, true),
		optimisticScenario("optimistic/hotatomic", "one row for all: UPDATE … SET balance = balance + 1", accounts.atomic, true),
	}
}

// optimisticEscalation is after how many attempts optimistic/hot takes the lock, as the examples do.
const optimisticEscalation = 3

// adding adds 1 to the balance of an account. Its error is optimistic.ErrConflict where it was written by somebody else.
type adding func(ctx context.Context, id int64) error

// accounts is a table of them.
type accounts interface {
	byHand(ctx context.Context, id int64) error
	update(ctx context.Context, id int64) error
	table(ctx context.Context, id int64) error
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

func optimisticScenario(name, about string, add func(accounts, context.Context, int64) error, hot bool) Scenario {
	return Scenario{
		Name: name, About: about,
		Open: func(ctx context.Context, env *Env) (Workload, error) {
			open := openAccountsMySQL
			if env.Kind == devdb.Postgres {
				open = openAccountsPostgres
			}
			table, err := open(ctx, env)
			if err != nil {
				return nil, err
			}
			return &optimisticWorkload{table, func(ctx context.Context, id int64) error { return add(table, ctx, id) }, hot}, nil
		},
	}
}

type optimisticWorkload struct {
	accounts
	add adding
	hot bool
}

func (w *optimisticWorkload) Round(ctx context.Context, _ int) (Round, error) {
	balances, versions, err := w.written(ctx)
	if err != nil {
		return Round{}, err
	}
	return Round{
		Client: func(id int) (Op, error) {
			if w.hot {
				id = 0
			}
			return func(ctx context.Context) (int, error) { return 1, w.add(ctx, int64(id)) }, nil
		},
		Check: func(ctx context.Context, ok int64) error {
			b, v, err := w.written(ctx)
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
