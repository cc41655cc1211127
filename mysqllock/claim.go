package mysqllock

import (
	"context"
	"database/sql"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/rowlock"
)

// Claim locks rows that no other transaction has locked, at most n of those that query returns, and
// reads them: "any free seat, now". It never waits, and two concurrent claims get different rows.
// If none is free it returns none, and no error: other transactions may still have some locked, and
// release them.
//
// query is a SELECT on the table itself, without LIMIT and without a lock, which are added: "SELECT
// id, price FROM seat WHERE sold = 0 ORDER BY id". An index must serve both its WHERE and its ORDER
// BY: (sold, id). On MariaDB a row that the index finds and that WHERE refuses stays locked until
// tx ends: have the index cover all of WHERE there. args are for its question marks; scan reads a
// row. n is 1 to dblock.MaxSetKeys. A claim ends with tx: write the new holder into the row itself
// before you commit, and have query read that. Begin tx at READ COMMITTED: at REPEATABLE READ, the
// default, gaps between rows are locked as well, and block inserts. There MySQL, too, keeps rows
// locked that WHERE refuses.
//
// Behind its FROM, query may only read the row itself. The server reads other tables as they were
// before the lock, and two claims would get a row that one of them has booked in another table. A
// sub-select there is refused. A stored function that reads tables is not seen: don't use one.
//
// Errors are those of LockRow, but for ErrNoRows. An *dblock.InvalidError is for a query that
// already has a LIMIT, a lock or a semicolon, is no SELECT, or has a sub-select in or behind its
// FROM, DISTINCT, an aggregate, a window function, or not just one table. It is for one with a
// backslash before a quote, as sql_mode decides whether the string ends there: pass it as an
// argument. And it is for one that the server runs by a spatial index. A *ScanError is for one that
// reads several partitions, too, or collects rows as a hint in query asks (MRR, INDEX_MERGE).
//
// Each claim takes two round trips more: one explains query with args, as those and the rows of
// today decide about the plan, and one looks at the table. Then it has the server read the index of
// that plan. At SERIALIZABLE to explain may wait for a locked row. The first claim with a text
// takes a third one.
func Claim[T any](
	ctx context.Context, tx *sql.Tx, o dblock.RowLock, n int, scan func(*sql.Rows) (T, error), query string, args ...any,
) ([]T, error) {
	if err := rowlock.CheckClaim(o, n); err != nil {
		return nil, err
	}
	o.Wait = dblock.SkipLocked()
	lock, err := lockClause(o)
	if err != nil {
		return nil, err
	}
	known, err := checkClaim(ctx, tx, query, args)
	if err != nil {
		return nil, err
	}
	index, err := planClaim(ctx, tx, query, n, args, o.Scan)
	if err != nil {
		return nil, txError(ctx, claimed, err)
	}
	run := func(query string) ([]T, error) {
		answer, err := mysql.Query(ctx, tx, steadyMariaDB+steady(rowlock.Claim(query, n, lock)), args...)
		return collect(answer, err, scan)
	}
	if known.named {
		index = ""
	}
	rows, err := run(forced(query, index))
	if index != "" && mysql.ErrorNumber(err) == mysql.WrongUsage { // with USE INDEX
		verdicts.put(claimKey(query), access{named: true})
		rows, err = run(query)
	}
	if err != nil {
		rows = nil
	}
	return rows, txError(ctx, claimed, err)
}

const claimed = "rows of a claim"
