package bench

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/pglock"
)

const claimFillPostgres = "INSERT INTO claim_seat SELECT n, 0, 0 FROM generate_series(1, $1::bigint) n"

type claimPostgres struct {
	pool *pgxpool.Pool
	claiming
}

func openClaimPostgres(ctx context.Context, env *Env, how claiming) (claimTable, error) {
	pool, err := env.Postgres(ctx)
	if err != nil {
		return nil, err
	}
	for _, statement := range []string{claimTableSQL, claimIndexSQL} {
		if _, err := pool.Exec(ctx, statement); err != nil {
			pool.Close()
			return nil, err
		}
	}
	if _, err := pool.Exec(ctx, claimFillPostgres, claimSeats); err != nil {
		pool.Close()
		return nil, err
	}
	return &claimPostgres{pool, how}, nil
}

func (c *claimPostgres) sell(ctx context.Context) (seat int64, err error) {
	err = pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error {
		if seat, err = c.claim(ctx, tx); err != nil {
			return err
		}
		time.Sleep(c.work)
		_, err := tx.Exec(ctx, claimSellSQL+"$1", seat)
		return err
	})
	if pglock.Retryable(err) {
		err = &Failure{Kind: "conflict", Err: err}
	}
	return seat, err
}

func (c *claimPostgres) claim(ctx context.Context, tx pgx.Tx) (seat int64, err error) {
	if c.skip {
		seats, err := pglock.Claim(ctx, tx, dblock.RowLock{}, 1, pgx.RowTo[int64], claimFreeSQL)
		if err == nil && len(seats) == 0 {
			err = &Failure{Kind: "none_free", Err: errNoSeat}
		}
		if err != nil {
			return 0, err
		}
		return seats[0], nil
	}
	err = tx.QueryRow(ctx, claimByHand).Scan(&seat)
	if errors.Is(err, pgx.ErrNoRows) {
		err = &Failure{Kind: "none_free", Err: errNoSeat}
	}
	return seat, err
}

func (c *claimPostgres) free(ctx context.Context) error {
	_, err := c.pool.Exec(ctx, claimResetSQL)
	return err
}

func (c *claimPostgres) sold(ctx context.Context) (sold int64, err error) {
	err = c.pool.QueryRow(ctx, claimSumSQL).Scan(&sold)
	return sold, err
}

func (c *claimPostgres) Close() error { c.pool.Close(); return nil }
