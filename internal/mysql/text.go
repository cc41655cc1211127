package mysql

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// Conn is what statements are sent on: *sql.DB, *sql.Conn or *sql.Tx.
type Conn interface {
	Querier
	ExecContext(context.Context, string, ...any) (sql.Result, error)
	PrepareContext(context.Context, string) (*sql.Stmt, error)
	QueryRowContext(context.Context, string, ...any) *sql.Row
}

// Inline is a Conn that puts the arguments into the statement, and repeats its marked part for a
// batch. Its arguments can be integers, booleans, []byte, sql.NullString and List, which is all
// that dblock's statements take.
type Inline struct {
	Conn

	tables      *tables       // nil: statements are sent as they are.
	longest     int           // bytes of a statement, 0: no bound; a longer one fails with ErrTooLong.
	mariaDB     bool          // the server is known to be MariaDB.
	boundTables bool          // bounds waits for tables, on MySQL; such an error is marked: see sqlerr.TableLocked.
	rowWait     rowWait       // on MariaDB.
	tableWait   bool          // a wait for a table is bounded, too, on MariaDB.
	maxTime     time.Duration // of a query.
}

// List is an argument in the place of one of sqlc's slices.
type List []any

// ErrTooLong reports a statement that was not sent, because it exceeds what the server takes.
var ErrTooLong = errors.New("the statement is longer than max_allowed_packet; nothing was sent")

func (c Inline) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	text, err := c.checked(query, args, false)
	if err != nil {
		return nil, err
	}
	result, err := c.Conn.ExecContext(ctx, text)
	return result, WithHint(err)
}

func (c Inline) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	text, err := c.checked(query, args, true)
	if err != nil {
		return nil, err
	}
	rows, err := c.Conn.QueryContext(ctx, text)
	if c.boundTables && ErrorNumber(err) == lockWaitTimeout && !waitsForRows(query) {
		err = sqlerr.TableLocked(err)
	}
	return rows, WithHint(err)
}

// QueryRowContext sends statements of any length: it has no error to return.
func (c Inline) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return c.Conn.QueryRowContext(ctx, c.text(query, args, true))
}

func (c Inline) checked(query string, args []any, reads bool) (string, error) {
	text := c.text(query, args, reads)
	if c.longest > 0 && len(text) > c.longest {
		return "", fmt.Errorf("%w: %d bytes of at most %d", ErrTooLong, len(text), c.longest)
	}
	return text, nil
}

func (c Inline) text(query string, args []any, reads bool) string {
	hint := ""
	if reads && c.maxTime > 0 && !c.mariaDB {
		hint = fmt.Sprintf("MAX_EXECUTION_TIME(%d)", c.maxTime.Milliseconds())
	}
	return c.template(query).text(c.settings(reads), hint, args)
}

func (c Inline) template(query string) *template {
	if c.tables == nil {
		return parse(query, c.boundTables)
	}
	return c.tables.template(query, c.boundTables)
}

// maxText is how long a statement may be without what is added to it; 0: no bound.
func (c Inline) maxText() int {
	if c.longest == 0 {
		return 0
	}
	room := c.longest - len(c.settings(false))
	if c.boundTables {
		room -= len(TableBound)
	}
	return room
}

// Within bounds how long the server works on a query.
func Within(on mysqldb.DBTX, d time.Duration) mysqldb.DBTX {
	c := on.(Inline)
	c.maxTime = max(d, time.Millisecond).Round(time.Millisecond)
	return c
}

// Interpolate puts args in the place of the question marks of query, but for those in a name that
// is quoted with backticks, and repeats its marked part.
func Interpolate(query string, args ...any) string { return Inline{}.text(query, args, false) }

// size is at least what literal makes of an argument.
func size(arg any) int {
	switch v := arg.(type) {
	case []byte:
		return len("x''") + 2*len(v)
	case sql.NullString:
		return len("x''NULL") + 2*len(v.String)
	}
	return len("-9223372036854775808")
}

func literal(buf []byte, arg any) []byte {
	switch v := arg.(type) {
	case int64:
		return strconv.AppendInt(buf, v, 10)
	case int32:
		return strconv.AppendInt(buf, int64(v), 10)
	case int16:
		return strconv.AppendInt(buf, int64(v), 10)
	case bool:
		return strconv.AppendBool(buf, v)
	case []byte:
		buf = append(buf, "x'"...)
		return append(hex.AppendEncode(buf, v), '\'')
	case sql.NullString:
		if !v.Valid {
			return append(buf, "NULL"...)
		}
		return literal(buf, []byte(v.String))
	case List:
		if len(v) == 0 {
			return append(buf, "NULL"...)
		}
		for i, one := range v {
			if i > 0 {
				buf = append(buf, ", "...)
			}
			buf = literal(buf, one)
		}
		return buf
	default:
		panic(fmt.Sprintf("mysql: an argument of type %T", arg))
	}
}
