package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/optimistic/mysqloptimistic"
)

const (
	accountLoadMySQL   = accountLoadSQL + "?"
	accountLockMySQL   = accountLoadMySQL + " FOR UPDATE"
	accountSaveMySQL   = "UPDATE optimistic_account SET balance = ?, version = version + 1 WHERE id = ? AND version = ?"
	accountWriteMySQL  = "UPDATE optimistic_account SET balance = ?, version = version + 1 WHERE id = ?"
	accountAtomicMySQL = "UPDATE optimistic_account SET balance = balance + 1, version = version + 1 WHERE id = ?"
)

type accountsMySQL struct{ db *sql.DB }

func openAccountsMySQL(ctx context.Context, env *Env, create bool) (accounts, error) {
	db, err := env.MySQL(ctx)
	if err != nil {
		return nil, err
	}
	var statements []string
	if create {
		rows := make([]string, env.Clients)
		for i := range rows {
			rows[i] = fmt.Sprintf("(%d, 0, 1)", i)
		}
		statements = []string{accountTableSQL, "INSERT INTO optimistic_account VALUES " + strings.Join(rows, ", ")}
	}
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	return accountsMySQL{db}, nil
}

func (t accountsMySQL) byHand(ctx context.Context, id int64) error {
	var balance, version int64
	if err := t.db.QueryRowContext(ctx, accountLoadMySQL, id).Scan(&balance, &version); err != nil {
		return err
	}
	result, err := t.db.ExecContext(ctx, accountSaveMySQL, balance+1, id, version)
	return one(result, err, optimistic.ErrStale)
}

// one is nil where one row was changed, and none where none was.
func one(result sql.Result, err, none error) error {
	if err != nil {
		return err
	}
	n, err := result.RowsAffected()
	if err == nil && n != 1 {
		err = none
	}
	return err
}

func (t accountsMySQL) naive(ctx context.Context, id int64) error {
	for {
		if err := t.byHand(ctx, id); err != optimistic.ErrStale {
			return err
		}
	}
}

func (t accountsMySQL) update(ctx context.Context, id int64) error { return t.with(ctx, id) }

func (t accountsMySQL) escalating(ctx context.Context, id int64) error {
	return t.with(ctx, id, mysqloptimistic.LockRowAfter(optimisticEscalation, "optimistic_account", "id", id))
}

func (t accountsMySQL) with(ctx context.Context, id int64, opts ...optimistic.Option) error {
	_, err := mysqloptimistic.Update(ctx, t.db,
		func(ctx context.Context, db mysqloptimistic.DB) (account, error) {
			a := account{id: id}
			err := db.QueryRowContext(ctx, accountLoadMySQL, id).Scan(&a.balance, &a.version)
			return a, err
		}, raise,
		func(ctx context.Context, db mysqloptimistic.DB, a account) (account, error) {
			result, err := db.ExecContext(ctx, accountSaveMySQL, a.balance, a.id, a.version)
			return a, optimistic.Result(result, err, a.at())
		}, opts...)
	return err
}

func (t accountsMySQL) locked(ctx context.Context, id int64) error {
	tx, err := t.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	var balance, version int64
	if err := tx.QueryRowContext(ctx, accountLockMySQL, id).Scan(&balance, &version); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, accountWriteMySQL, balance+1, id); err != nil {
		return err
	}
	return tx.Commit()
}

func (t accountsMySQL) atomic(ctx context.Context, id int64) error {
	result, err := t.db.ExecContext(ctx, accountAtomicMySQL, id)
	return one(result, err, errNoAccount)
}

func (t accountsMySQL) written(ctx context.Context) (balances, versions int64, err error) {
	err = t.db.QueryRowContext(ctx, accountWrittenSQL).Scan(&balances, &versions)
	return balances, versions, err
}

func (t accountsMySQL) Close() error { return t.db.Close() }
