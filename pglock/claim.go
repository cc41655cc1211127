package pglock

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/rowlock"
)

// Claim locks rows that no other transaction has locked, at most n of those that query returns, and
// reads them: "any free seat, now". It never waits, and two concurrent claims get different rows.
// If none is free it returns none, and no error: other transactions may still have some locked, and
// release them.
//
// query is a SELECT on the table itself, without LIMIT and without a lock, which are added: "SELECT
// id, price FROM seat WHERE buyer IS NULL ORDER BY id". args are its $1, $2, …; row is what reads a
// row, as pgx.RowTo, pgx.RowToStructByName; over SQLTx it reads what database/sql can. n is 1 to
// dblock.MaxSetKeys. A claim ends with tx: write the new holder into the row itself before you
// commit, and have query read that.
//
// Behind its FROM, query may only read the row itself. The server reads other tables as they were
// before the lock, and two claims would get a row that one of them has booked in another table. A
// sub-select there is refused. A function of your own that reads tables is not seen, whether query
// calls it or an operator, a cast, a domain or a policy of row level security: don't use one.
//
// Errors are those of LockRow, but for ErrNoRows and HeldError. An *dblock.InvalidError is for a
// query that already has a LIMIT, a lock or a semicolon, is no SELECT, or has a sub-select in or
// behind its FROM, an aggregate, or not just one table. It is also for one with a backslash before
// a quote (pass the string as an argument), and for a name in its FROM that has a capital letter
// other than A to Z without quotes.
func Claim[T any](
	ctx context.Context, tx Tx, o dblock.RowLock, n int, row pgx.RowToFunc[T], query string, args ...any,
) ([]T, error) {
	if err := rowlock.CheckClaim(o, n); err != nil {
		return nil, err
	}
	if err := rowlock.Postgres.CheckQuery(query); err != nil {
		return nil, err
	}
	o.Wait = dblock.SkipLocked()
	lock, err := lockClause(o)
	if err != nil {
		return nil, err
	}
	tables, _ := rowlock.Postgres.Tables(query)
	v, err := viewOf(ctx, tx, tables[0], "")
	if err != nil {
		return nil, txError(ctx, "rows of a claim", err)
	}
	var rows []T
	read := func(answer pgx.Rows) error {
		rows, err = pgx.CollectRows(answer, row)
		return err
	}
	if err := aroundSavepoint(ctx, tx, v, nil, nil, read, rowlock.Claim(query, n, lock), args); err != nil {
		return nil, txError(ctx, "rows of a claim", v.unlockable(err))
	}
	return rows, nil
}
