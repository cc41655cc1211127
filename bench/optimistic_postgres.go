package bench

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/optimistic/pgoptimistic"
)

const (
	accountFillPostgres   = "INSERT INTO optimistic_account SELECT n, 0, 1 FROM generate_series(0, $1::bigint - 1) n"
	accountLoadPostgres   = accountLoadSQL + "$1"
	accountLockPostgres   = accountLoadPostgres + " FOR UPDATE"
	accountSavePostgres   = "UPDATE optimistic_account SET balance = $1, version = version + 1 WHERE id = $2 AND version = $3"
	accountWritePostgres  = "UPDATE optimistic_account SET balance = $1, version = version + 1 WHERE id = $2"
	accountAtomicPostgres = "UPDATE optimistic_account SET balance = balance + 1, version = version + 1 WHERE id = $1"
)

type accountsPostgres struct{ pool *pgxpool.Pool }

func openAccountsPostgres(ctx context.Context, env *Env, create bool) (accounts, error) {
	pool, err := env.Postgres(ctx)
	if err != nil {
		return nil, err
	}
	if create {
		_, err = pool.Exec(ctx, accountTableSQL)
		if err == nil {
			_, err = pool.Exec(ctx, accountFillPostgres, env.Clients)
		}
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	return accountsPostgres{pool}, nil
}

func (t accountsPostgres) byHand(ctx context.Context, id int64) error {
	var balance, version int64
	if err := t.pool.QueryRow(ctx, accountLoadPostgres, id).Scan(&balance, &version); err != nil {
		return err
	}
	tag, err := t.pool.Exec(ctx, accountSavePostgres, balance+1, id, version)
	if err == nil && tag.RowsAffected() != 1 {
		err = optimistic.ErrStale
	}
	return err
}

func (t accountsPostgres) naive(ctx context.Context, id int64) error {
	for {
		if err := t.byHand(ctx, id); err != optimistic.ErrStale {
			return err
		}
	}
}

func (t accountsPostgres) update(ctx context.Context, id int64) error { return t.with(ctx, id) }

func (t accountsPostgres) escalating(ctx context.Context, id int64) error {
	return t.with(ctx, id, pgoptimistic.LockRowAfter(optimisticEscalation, "optimistic_account", "id", id))
}

func (t accountsPostgres) with(ctx context.Context, id int64, opts ...optimistic.Option) error {
	_, err := pgoptimistic.Update(ctx, t.pool,
		func(ctx context.Context, db pgoptimistic.DB) (account, error) {
			a := account{id: id}
			err := db.QueryRow(ctx, accountLoadPostgres, id).Scan(&a.balance, &a.version)
			return a, err
		}, raise,
		func(ctx context.Context, db pgoptimistic.DB, a account) (account, error) {
			tag, err := db.Exec(ctx, accountSavePostgres, a.balance, a.id, a.version)
			return a, optimistic.Tag(tag, err, a.at())
		}, opts...)
	return err
}

func (t accountsPostgres) locked(ctx context.Context, id int64) error {
	return pgx.BeginFunc(ctx, t.pool, func(tx pgx.Tx) error {
		var balance, version int64
		if err := tx.QueryRow(ctx, accountLockPostgres, id).Scan(&balance, &version); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, accountWritePostgres, balance+1, id)
		return err
	})
}

func (t accountsPostgres) atomic(ctx context.Context, id int64) error {
	tag, err := t.pool.Exec(ctx, accountAtomicPostgres, id)
	if err == nil && tag.RowsAffected() != 1 {
		err = errNoAccount
	}
	return err
}

var errNoAccount = errors.New("there is no such account")

func (t accountsPostgres) written(ctx context.Context) (balances, versions int64, err error) {
	err = t.pool.QueryRow(ctx, accountWrittenSQL).Scan(&balances, &versions)
	return balances, versions, err
}

func (t accountsPostgres) Close() error { t.pool.Close(); return nil }
