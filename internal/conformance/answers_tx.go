package conformance

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/migrations"
)

// RunAnswers replaces the server's answers while transactions run.
func (e Tx) RunAnswers(t *testing.T) { runAnswers(t, e.Kind, []answersUser{{"RunTx", e.use}}) }

func (e Tx) use(ctx context.Context, x *answersTrial) error {
	for _, statement := range []string{"CREATE TABLE IF NOT EXISTS t (id int PRIMARY KEY, v int NOT NULL)", "DELETE FROM t", "INSERT INTO t VALUES (1, 0)"} {
		if _, err := x.db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	pool, err := e.Open(ctx, x.dsn, &faultconn.Dialer{}, 4)
	if err != nil {
		return err // it opens no connection
	}
	defer pool.Close()
	var acknowledged, unknown int
	once := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		err := pool.Run(ctx, TxOptions{Attempts: 3}, func(tx Statements) error {
			if err := tx.Lock(1); err != nil {
				return err
			}
			if tx.Named != nil {
				if err := tx.Named(x.key); err != nil {
					return err
				}
			}
			v, err := tx.Int("SELECT v FROM t WHERE id = 1")
			if err != nil {
				return err
			}
			return tx.Exec(fmt.Sprintf("UPDATE t SET v = %d WHERE id = 1", v+1))
		})
		switch {
		case err == nil:
			acknowledged++
		case errors.Is(err, dblock.ErrOutcomeUnknown):
			unknown++
		}
		return err
	}
	for range x.crowd {
		x.told(once(ctx))
	}
	x.heal()
	err = x.again(ctx, "a transaction", once)
	var v int
	if x.lied {
		return err
	}
	if err := x.db.QueryRowContext(ctx, "SELECT v FROM t WHERE id = 1").Scan(&v); err != nil {
		return err
	}
	if v < acknowledged || v > acknowledged+unknown {
		err = errors.Join(err, fmt.Errorf("%d were written, %d acknowledged, and %d unknown", v, acknowledged, unknown))
	}
	return err
}

// RunAnswers replaces the server's answers while rows are locked.
func (e RowLocks) RunAnswers(t *testing.T) {
	runAnswers(t, e.Kind, []answersUser{{"rows", e.use}})
}

func (e RowLocks) use(ctx context.Context, x *answersTrial) error {
	for _, statement := range []string{
		"CREATE TABLE IF NOT EXISTS seat (id BIGINT PRIMARY KEY, sold INT NOT NULL)", "DELETE FROM seat", "INSERT INTO seat VALUES (1, 0), (2, 0), (3, 0)",
	} {
		if _, err := x.db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	begin, closePool, err := e.Open(x.dsn, 4, sql.LevelReadCommitted)
	if err != nil {
		return err
	}
	defer closePool()
	once := func(ctx context.Context, told func(error)) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		tx, err := begin(ctx)
		if err != nil {
			return err // the driver's
		}
		err = tx.LockRow(ctx, "seat", "id", 1, dblock.RowLock{Wait: e.Bound})
		told(err)
		if err == nil {
			_, err = tx.LockRows(ctx, "seat", "id", []int64{1, 2, 3}, dblock.RowLock{Wait: dblock.SkipLocked})
			told(err)
		}
		if err == nil {
			_, err = tx.Claim(ctx, dblock.RowLock{}, 1, "SELECT id FROM seat ORDER BY id")
			told(err)
		}
		if err != nil {
			return errors.Join(err, tx.Rollback(ctx))
		}
		return tx.Commit(ctx)
	}
	for range x.crowd {
		_ = once(ctx, x.told)
	}
	x.heal()
	return x.again(ctx, "locking rows", func(ctx context.Context) error { return once(ctx, func(error) {}) })
}

// RunMigrationAnswers replaces the server's answers while a schema is migrated.
func RunMigrationAnswers(t *testing.T, kind devdb.Kind) {
	runAnswers(t, kind, []answersUser{{"migrations", func(ctx context.Context, x *answersTrial) error { return useMigrations(ctx, x, kind) }}})
}

var answersSchemas int

func useMigrations(ctx context.Context, x *answersTrial, kind devdb.Kind) error {
	answersSchemas++
	name := fmt.Sprintf("answers_%d_%d", time.Now().UnixNano(), answersSchemas)
	what := "DATABASE "
	if kind == devdb.Postgres {
		what = "SCHEMA "
	}
	if _, err := x.db.ExecContext(ctx, "CREATE "+what+name); err != nil {
		return err
	}
	drop := "DROP " + what + name
	if kind == devdb.Postgres {
		drop += " CASCADE"
	}
	defer func() { _, _ = x.db.ExecContext(context.WithoutCancel(ctx), drop) }()
	db, err := connectOn(kind, x.dsn, &faultconn.Dialer{})
	if err != nil {
		return err
	}
	defer db.Close()
	o := migrations.Options{Schema: name}
	bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err = migrations.Up(bounded, db, o)
	x.told(err)
	_, err = migrations.Status(bounded, db, o)
	x.told(err)
	x.heal()
	return x.again(ctx, "migrating", func(ctx context.Context) error {
		if _, err := migrations.Up(ctx, db, o); err != nil {
			return err
		}
		all, err := migrations.Status(ctx, db, o)
		for _, m := range all {
			if !m.Applied {
				err = errors.Join(err, fmt.Errorf("%d is not applied", m.Version))
			}
		}
		return err
	})
}
