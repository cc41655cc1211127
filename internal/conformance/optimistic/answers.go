package optimistic

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/answers"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// RunAnswers replaces the server's answers while transactions run.
func (e Tx) RunAnswers(t *testing.T) {
	answers.Run(t, e.Kind, []answers.User{{Name: "RunTx", Use: e.use}})
}

func (e Tx) use(ctx context.Context, x *answers.Trial) error {
	for _, statement := range []string{"CREATE TABLE IF NOT EXISTS t (id int PRIMARY KEY, v int NOT NULL)", "DELETE FROM t", "INSERT INTO t VALUES (1, 0)"} {
		if _, err := x.DB.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	pool, err := e.Open(ctx, x.DSN, &faultconn.Dialer{}, 4)
	if err != nil {
		return err // it opens no connection
	}
	defer pool.Close()
	var acknowledged, unknown int
	once := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		err := pool.Run(ctx, TxOptions{Attempts: 3}, func(tx Statements) error {
			err := tx.Lock(1)
			if err == nil && tx.Named != nil {
				err = tx.Named(x.Key)
			}
			if err != nil {
				return err
			}
			v, err := tx.Int(get1)
			if err != nil {
				return err
			}
			return tx.Exec(fmt.Sprintf("UPDATE t SET v = %d WHERE id = 1", v+1))
		})
		if err == nil {
			acknowledged++
		} else if errors.Is(err, dblock.ErrOutcomeUnknown) {
			unknown++
		}
		return err
	}
	for range x.Crowd {
		x.Returned(once(ctx))
	}
	x.Heal()
	err = x.Again(ctx, "a transaction", once)
	if x.Lied {
		return err
	}
	var v int
	if err := x.DB.QueryRowContext(ctx, get1).Scan(&v); err != nil {
		return err
	}
	if v < acknowledged || v > acknowledged+unknown {
		err = errors.Join(err, fmt.Errorf("%d were written, %d acknowledged, and %d unknown", v, acknowledged, unknown))
	}
	return err
}
