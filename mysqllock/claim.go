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
// BY: (sold, id). args are for its question marks; scan reads a row. n is 1 to dblock.MaxSetKeys. A
// claim ends with tx: write the new holder into the row itself before you commit, and have query
// read that. Begin tx at READ COMMITTED: at REPEATABLE READ, the default, gaps between rows are
// locked as well, and block inserts.
//
// Behind its FROM, query may only read the row itself. The server reads other tables as they were
// before the lock, and two claims would get a row that one of them has booked in another table. A
// sub-select there is refused. A stored function that reads tables is not seen: don't use one.
//
// Errors are those of LockRow, but for ErrNoRows. An *dblock.InvalidError is for a query that
// already has a LIMIT, a lock or a semicolon, is no SELECT, or has a sub-select in or behind its
// FROM, DISTINCT, an aggregate, a window function, or not just one table. It is for one with a
// backslash before a quote, as sql_mode decides whether the string ends there: pass it as an
// argument. And it is for one that the server runs by a spatial index. A *ScanError is for one
// that reads several partitions, too. The table and the plan are looked at the first time that a
// text is seen. Then each claim has the server read the index of that plan. At SERIALIZABLE that
// look may wait for a locked row. Later claims take one round trip more, which reads whether the
// table has changed since. The first claim after such a change may be refused with rows locked
// until tx ends.
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
	const name = "rows of a claim"
	kept, known := verdicts.get(claimVerdict(query, o.Scan))
	if !known {
		if err := rowlock.MySQL.CheckQuery(query); err != nil {
			return nil, err
		}
		if kept, err = allow(ctx, tx, query, n, args, o.Scan); err != nil {
			return nil, txError(ctx, name, err)
		}
	}
	run := func() ([]T, error) {
		answer, err := mysql.Query(ctx, tx, steadyMariaDB+steady(rowlock.Claim(forced(query, kept.index), n, lock)), args...)
		return collect(answer, err, scan)
	}
	rows, err := run()
	if known && mysql.ErrorNumber(err) == mysql.NoSuchIndex { // it was dropped, or this is a view
		verdicts.remove(claimVerdict(query, o.Scan))
		if kept, err = allow(ctx, tx, query, n, args, o.Scan); err == nil {
			known = false
			rows, err = run()
		}
	}
	if err == nil && known {
		err = kept.stillAllowed(ctx, tx, query, n, args, o.Scan)
	}
	if err != nil {
		rows = nil
	}
	return rows, txError(ctx, name, err)
}
