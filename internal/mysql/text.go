package mysql

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/dblock-go/dblock/internal/sqlerr"
)

// Conn is what statements are sent on: *sql.DB, *sql.Conn or *sql.Tx.
type Conn interface {
	Querier
	ExecContext(context.Context, string, ...any) (sql.Result, error)
	PrepareContext(context.Context, string) (*sql.Stmt, error)
	QueryRowContext(context.Context, string, ...any) *sql.Row
}

// Inline is a Conn that puts the arguments into the statement. Its arguments can be integers, []byte and
// sql.NullString, which is all that dblock's statements take.
type Inline struct {
	Conn
	// Rewrite changes a statement before it is sent, for example to name the database of its
	// tables. May be nil.
	Rewrite func(string) string

	// Longest bounds a statement, in bytes: a longer one fails with ErrTooLong. 0: no bound. QueryRowContext, which
	// has no error to return, sends any.
	Longest int

	// BoundTables bounds on MySQL for how long a statement waits for a table that another session has
	// locked. Where it can only have been a table, the error is marked: see sqlerr.TableLocked.
	BoundTables bool
}

// PacketOverhead is how much shorter a statement is than the packet that carries it, with some to spare.
const PacketOverhead = 64

// heaviest bounds a statement of many rows, whatever the server takes: while a long one is sent and parsed, all others wait.
const heaviest = 4 << 20

// Portions cuts the arguments of a statement that repeats a part for each row into those of statements that the server
// takes. A row has `each` arguments; one statement has at most `most` rows. A row that is too long is a portion by itself.
func Portions(on any, query string, each, most int, args []any) iter.Seq[[]any] {
	bound := heaviest
	if longest := LongestOn(on); longest > 0 {
		bound = min(bound, longest)
	}
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

// LongestStatement is Longest, without the bound that is added.
func (c Inline) LongestStatement() int {
	if c.Longest > 0 && c.BoundTables {
		return c.Longest - len(TableBound)
	}
	return c.Longest
}

// LongestOn is how long a statement may be that is sent on an Inline, or on what wraps one; 0: no bound.
func LongestOn(on any) int {
	if c, ok := on.(interface{ LongestStatement() int }); ok {
		return c.LongestStatement()
	}
	return 0
}

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

// ErrTooLong reports a statement that was not sent, because it exceeds what the server takes.
var ErrTooLong = errors.New("the statement is longer than max_allowed_packet; nothing was sent")

func (c Inline) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	text := c.text(query, args)
	if c.tooLong(text) {
		return nil, fmt.Errorf("%w: %d bytes of at most %d", ErrTooLong, len(text), c.Longest)
	}
	result, err := c.Conn.ExecContext(ctx, text)
	return result, WithHint(err)
}

func (c Inline) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	text := c.text(query, args)
	if c.tooLong(text) {
		return nil, fmt.Errorf("%w: %d bytes of at most %d", ErrTooLong, len(text), c.Longest)
	}
	rows, err := c.Conn.QueryContext(ctx, text)
	if c.BoundTables && IsLocked(err) && !waitsForRows(query) {
		err = sqlerr.TableLocked(err)
	}
	return rows, WithHint(err)
}

func (c Inline) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return c.Conn.QueryRowContext(ctx, c.text(query, args))
}

func (c Inline) tooLong(text string) bool { return c.Longest > 0 && len(text) > c.Longest }

func (c Inline) text(query string, args []any) string {
	if c.Rewrite != nil {
		query = c.Rewrite(query)
	}
	if c.BoundTables {
		query = boundTables(query)
	}
	return Interpolate(query, args...)
}

// Interpolate puts args in the place of the question marks of query, but for those in a name that is
// quoted with backticks. It panics where their number or type does not fit: that is a defect of
// the caller, and never of the data.
func Interpolate(query string, args ...any) string {
	buf := make([]byte, 0, len(query)+32*len(args))
	quoted := false
	next := 0
	for i := range len(query) {
		c := query[i]
		if c == '`' {
			quoted = !quoted
		}
		if c != '?' || quoted {
			buf = append(buf, c)
			continue
		}
		if next < len(args) {
			buf = literal(buf, args[next])
		}
		next++
	}
	if next != len(args) {
		panic(fmt.Sprintf("mysql: %d arguments for %d places in %q", len(args), next, query))
	}
	return string(buf)
}

// RepeatRows repeats the one row of a statement's VALUES n times.
func RepeatRows(query string, n int) string {
	begin := strings.Index(query, "VALUES ") + len("VALUES ")
	end := begin + closing(query[begin:]) + 1
	row := query[begin:end]
	return query[:begin] + strings.Repeat(row+", ", n-1) + row + query[end:]
}

// RepeatAsks repeats the SELECT of the derived table that is called ask n times.
func RepeatAsks(query string, n int) string {
	end := strings.Index(query, ") ask\n")
	begin := strings.LastIndex(query[:end], "SELECT ")
	one := strings.TrimSpace(query[begin:end])
	return query[:begin] + strings.Repeat(one+" UNION ALL ", n-1) + query[begin:]
}

// closing returns where the parenthesis closes with which s begins.
func closing(s string) int {
	depth := 0
	for i := range len(s) {
		switch s[i] {
		case '(':
			depth++
		case ')':
			depth--
			if depth == 0 {
				return i
			}
		}
	}
	panic(fmt.Sprintf("mysql: no row of VALUES in %q", s))
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
	default:
		panic(fmt.Sprintf("mysql: an argument of type %T", arg))
	}
}
