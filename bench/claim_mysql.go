package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/mysqllock"
)

type claimMySQL struct {
	db *sql.DB
	claiming
}

func openClaimMySQL(ctx context.Context, env *Env, how claiming) (claimTable, error) {
	db, err := env.MySQL(ctx)
	if err != nil {
		return nil, err
	}
	rows := make([]string, claimSeats)
	for i := range rows {
		rows[i] = fmt.Sprintf("(%d, 0, 0)", i+1)
	}
	for _, statement := range []string{claimTableSQL, claimIndexSQL, "INSERT INTO claim_seat VALUES " + strings.Join(rows, ", ")} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	return &claimMySQL{db, how}, nil
}

func (c *claimMySQL) sell(ctx context.Context) (seat int64, err error) {
	tx, err := c.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }()
	seat, err = c.claim(ctx, tx)
	time.Sleep(c.work)
	if err == nil {
		_, err = tx.ExecContext(ctx, claimSellSQL+strconv.FormatInt(seat, 10)) // as text it is one round trip
	}
	if err == nil {
		err = tx.Commit()
	}
	if mysqllock.Retryable(err) {
		err = &Failure{Kind: "conflict", Err: err}
	}
	return seat, err
}

func (c *claimMySQL) claim(ctx context.Context, tx *sql.Tx) (seat int64, err error) {
	if c.skip {
		read := func(row *sql.Rows) (id int64, err error) {
			err = row.Scan(&id)
			return id, err
		}
		seats, err := mysqllock.Claim(ctx, tx, dblock.RowLock{}, 1, read, claimFreeSQL)
		if err == nil && len(seats) == 0 {
			err = &Failure{Kind: "none_free", Err: errNoSeat}
		}
		if err != nil {
			return 0, err
		}
		return seats[0], nil
	}
	err = tx.QueryRowContext(ctx, claimByHand).Scan(&seat)
	if errors.Is(err, sql.ErrNoRows) {
		err = &Failure{Kind: "none_free", Err: errNoSeat}
	}
	return seat, err
}

func (c *claimMySQL) free(ctx context.Context) error {
	_, err := c.db.ExecContext(ctx, claimResetSQL)
	return err
}

func (c *claimMySQL) sold(ctx context.Context) (sold int64, err error) {
	err = c.db.QueryRowContext(ctx, claimSumSQL).Scan(&sold)
	return sold, err
}

func (c *claimMySQL) Close() error { return c.db.Close() }
