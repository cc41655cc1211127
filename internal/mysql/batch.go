package mysql

import (
	"context"
	"database/sql"
	"iter"

	"github.com/dblock-go/dblock/db/mysqldb"
)

// heaviest bounds a statement of many rows, whatever the server takes: while a long one is sent and
// parsed, all others wait.
const heaviest = 4 << 20

// Portions cuts the arguments of a statement that repeats a part into those of statements that the
// server takes. One statement repeats the part at most `most` times. A row that is too long is a
// portion by itself.
func Portions(on mysqldb.DBTX, query string, most int, args []any) iter.Seq[[]any] {
	c, _ := on.(Inline)
	bound := heaviest
	if room := c.maxText(); room > 0 {
		bound = min(bound, room)
	}
	each := c.template(query).inside
	return func(yield func([]any) bool) {
		from, bytes := 0, len(query)
		for i := 0; i < len(args); i += each {
			row := len(query)
			for _, arg := range args[i : i+each] {
				row += size(arg)
			}
			if i > from && (bytes+row > bound || i-from == most*each) {
				if !yield(args[from:i]) {
					return
				}
				from, bytes = i, len(query)
			}
			bytes += row
		}
		if from < len(args) {
			yield(args[from:])
		}
	}
}

// ExecAll runs a statement that repeats a part for all of args, in portions. It sends nothing if
// there are none.
func ExecAll(ctx context.Context, on mysqldb.DBTX, query string, most int, args []any) (affected int64, err error) {
	for some := range Portions(on, query, most, args) {
		result, err := on.ExecContext(ctx, query, some...)
		if err != nil {
			return affected, err
		}
		n, err := result.RowsAffected()
		if err != nil {
			return affected, err
		}
		affected += n
	}
	return affected, nil
}

// QueryAll is ExecAll for a query. It calls scan with every row.
func QueryAll(ctx context.Context, on mysqldb.DBTX, query string, most int, args []any, scan func(*sql.Rows) error) error {
	for some := range Portions(on, query, most, args) {
		if err := QueryEach(ctx, on, query, some, scan); err != nil {
			return err
		}
	}
	return nil
}

// QueryEach runs a query, and calls scan with every row.
func QueryEach(ctx context.Context, on mysqldb.DBTX, query string, args []any, scan func(*sql.Rows) error) error {
	rows, err := on.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
