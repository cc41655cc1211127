package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dblock-go/dblock"
)

// UnsafeCharsets are the character sets in which a backslash, a quote or a backtick can be the
// second byte of a character. If a connection uses one of them, an escaped value or a quoted name
// can end early, and its rest is read as SQL.
var UnsafeCharsets = []string{"big5", "cp932", "gb18030", "gbk", "sjis"}

// Exec is conn.ExecContext, under every character set of the connection: see bind.
func Exec(ctx context.Context, conn Conn, query string, args ...any) (sql.Result, error) {
	statement, err := bind(ctx, conn, query, args)
	if err != nil {
		return nil, err
	}
	if statement == nil {
		return conn.ExecContext(ctx, query, args...)
	}
	defer func() { _ = statement.Close() }()
	return statement.ExecContext(ctx, args...)
}

// Query is conn.QueryContext, under every character set of the connection: see bind.
func Query(ctx context.Context, conn Conn, query string, args ...any) (*Rows, error) {
	statement, err := bind(ctx, conn, query, args)
	if err != nil {
		return nil, err
	}
	if statement == nil {
		rows, err := conn.QueryContext(ctx, query, args...)
		if err != nil {
			return nil, err
		}
		return &Rows{Rows: rows}, nil
	}
	rows, err := statement.QueryContext(ctx, args...)
	if err != nil {
		_ = statement.Close()
		return nil, err
	}
	return &Rows{rows, statement}, nil
}

// Rows are the rows of a query. Close ends its prepared statement, if it has one, after the rows.
type Rows struct {
	*sql.Rows
	statement *sql.Stmt
}

func (r *Rows) Close() error {
	err := r.Rows.Close()
	if r.statement != nil {
		_ = r.statement.Close()
	}
	return err
}

// bind prepares a statement if a value of args may change its meaning as text: with
// interpolateParams the driver escapes values without a look at the character set. Values of a
// prepared statement are sent apart from its text. It returns nil if all values are safe in the
// text. A text that is not ASCII has names or literals that an unsafe character set breaks: see
// CheckText.
func bind(ctx context.Context, conn Conn, query string, args []any) (*sql.Stmt, error) {
	if err := CheckText(ctx, conn, query); err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(args, mustBind) {
		return nil, nil
	}
	return conn.PrepareContext(ctx, query)
}

// mustBind reports whether a value has both a byte that begins a character of two bytes in an
// unsafe set, and one before which the driver puts a backslash.
func mustBind(arg any) bool {
	value, err := driver.DefaultParameterConverter.ConvertValue(arg)
	if err != nil {
		return true // a uint64 of 64 bits, or an argument that the driver refuses
	}
	switch v := value.(type) {
	case nil, int64, float64, bool, time.Time:
		return false
	case string:
		return !isASCII(v) && strings.ContainsAny(v, "\x00\n\r\x1a'\"\\")
	case []byte:
		return mustBind(string(v))
	}
	return true
}

func isASCII(s string) bool { return !strings.ContainsFunc(s, func(r rune) bool { return r >= 0x80 }) }

// CheckText refuses a connection whose character set can break the names in a text. It asks only if
// the text is not ASCII.
//
// Errors: dblock.ErrUnsupported, and nothing was written; the driver's.
func CheckText(ctx context.Context, conn Querier, text string) error {
	if isASCII(text) {
		return nil
	}
	lines, err := Show(ctx, conn, "SELECT @@character_set_client AS charset LIMIT 1")
	if err != nil || len(lines) != 1 || !slices.Contains(UnsafeCharsets, lines[0]["charset"]) {
		return err
	}
	return fmt.Errorf("%w: the connection's character set is %s, in which a name that is not ASCII can end early: "+
		"use utf8mb4 (charset=utf8mb4 in the DSN)", dblock.ErrUnsupported, lines[0]["charset"])
}
