package mysqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// These servers take longer to read a statement than to lock what it names. So what is asked for
// most is prepared, in a few sizes, and the rest of a batch is one more statement: text.

// batch is a prepared statement: so many locks that are taken, or released.
type batch struct {
	takes bool
	n     int
}

// sizes are those of batches. Fewer than the smallest one are not worth a statement of their own,
// unless there is nothing else.
var sizes = [...]int{
	8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 20, 22, 24, 26, 28, 30, 32, 36, 40, 44, 48, 52, 56, 60, 64, 72, 80, 88, 96, 104, 112, 120, 128,
}

// fit is the size of the next batch for n locks; 0: none.
func fit(n int) (size int) {
	for _, s := range sizes {
		if s <= n {
			size = s
		}
	}
	return size
}

// Run does the steps in one statement, or a few.
func (c *sessionConn) Run(ctx context.Context, steps []session.Step) ([]bool, error) {
	done := make([]bool, len(steps))
	takes, frees, rest := make([]int, 0, len(steps)), make([]int, 0, len(steps)), make([]int, 0, len(steps))
	for i, s := range steps {
		switch s.Op {
		case session.Take:
			takes = append(takes, i)
		case session.Free, session.Drop:
			frees = append(frees, i)
		default:
			rest = append(rest, i)
		}
	}
	for _, kind := range [][]int{takes, frees} {
		left, err := c.batches(ctx, steps, kind, done)
		if err != nil {
			return nil, err
		}
		rest = append(rest, left...)
	}
	if len(rest) == 0 {
		return done, nil
	}
	texts := make([]string, len(rest))
	for i, at := range rest {
		text, err := step(steps[at])
		if err != nil {
			return nil, err
		}
		texts[i] = text
	}
	results, err := c.query(ctx, texts)
	for i, yes := range results {
		done[rest[i]] = yes
	}
	return done, err
}

// batches does those steps that stand at some places, and are all of one kind, as far as they fill
// batches. It returns the places that are left.
func (c *sessionConn) batches(ctx context.Context, steps []session.Step, at []int, done []bool) (left []int, err error) {
	for len(at) > 0 {
		b := batch{steps[at[0]].Op == session.Take, fit(len(at))}
		if len(steps) == 1 {
			b.n = 1
		}
		statement, err := c.prepare(ctx, b)
		if err != nil || statement == nil {
			return at, err
		}
		names := make([]any, b.n)
		for i := range names {
			names[i] = string(steps[at[i]].ID)
		}
		results, err := c.read(statement.QueryRowContext(ctx, names...), b.n)
		if err != nil {
			return nil, err
		}
		for i, yes := range results {
			done[at[i]] = yes
		}
		at = at[b.n:]
	}
	return nil, nil
}

// prepare returns the statement of a batch; nil: there is none, as of a batch of nothing, or the
// server prepares no more.
func (c *sessionConn) prepare(ctx context.Context, b batch) (*sql.Stmt, error) {
	if statement := c.prepared[b]; statement != nil || b.n == 0 || c.plain {
		return statement, nil
	}
	function := freed("?")
	if b.takes {
		function = "GET_LOCK(?, 0)"
	}
	statement, err := c.conn.PrepareContext(ctx, concat(slices.Repeat([]string{function}, b.n)))
	var refused *mysqldriver.MySQLError
	if errors.As(err, &refused) && mysql.Classify(err) != sqlerr.Unavailable { // max_prepared_stmt_count, say
		c.plain = true
		return nil, nil
	}
	if err != nil {
		return nil, c.failed(err)
	}
	c.prepared[b] = statement
	return statement, nil
}

// step returns the expression that does a step: 1 if it was done.
func step(s session.Step) (string, error) {
	switch s.Op {
	case session.Take:
		return "GET_LOCK(" + quote(string(s.ID)) + ", 0)", nil
	case session.Free, session.Drop:
		return freed(quote(string(s.ID))), nil
	case session.Show:
		return "GET_LOCK(" + quote(waiterLockName(s.ID)) + ", 0)", nil
	case session.Hide:
		return freed(quote(waiterLockName(s.ID))), nil
	case session.HasWaiters:
		return "IFNULL(IS_USED_LOCK(" + quote(waiterLockName(s.ID)) + ") <> CONNECTION_ID(), 0)", nil
	}
	return "", fmt.Errorf("%w: step %d with a session lock", dblock.ErrUnsupported, s.Op)
}

// freed is 0 for a lock that does not exist. RELEASE_LOCK alone is NULL then, which reads as a
// failure of the whole statement.
func freed(name string) string { return "IFNULL(RELEASE_LOCK(" + name + "), 0)" }

// waiterLockName is the name of the lock that a waiting session has.
func waiterLockName(id session.ID) string { return NameOf("", "dblock/waits", string(id)) }

func quote(name string) string { return "'" + name + "'" }

// Has looks the locks up.
func (c *sessionConn) Has(ctx context.Context, steps []session.Step) ([]bool, error) {
	texts := make([]string, len(steps))
	for i, s := range steps {
		name := string(s.ID)
		if s.Op == session.Show || s.Op == session.Hide {
			name = waiterLockName(s.ID)
		}
		texts[i] = "IFNULL(IS_USED_LOCK(" + quote(name) + ") = CONNECTION_ID(), 0)"
	}
	return c.query(ctx, texts)
}

// query has expressions evaluated, in their order.
func (c *sessionConn) query(ctx context.Context, texts []string) ([]bool, error) {
	return c.read(c.conn.QueryRowContext(ctx, concat(texts)), len(texts))
}

// concat has the answers be one text of a character each, so that however many cost one column.
func concat(texts []string) string { return "SELECT CONCAT(" + strings.Join(texts, ", ") + ") AS done" }

// read takes n answers apart.
func (c *sessionConn) read(row *sql.Row, n int) ([]bool, error) {
	var answer sql.NullString // where one of the functions could not say, there is none
	if err := row.Scan(&answer); err != nil {
		return nil, c.failed(err)
	}
	if len(answer.String) != n {
		return nil, fmt.Errorf("dblock: the server could not say what became of session locks: it answered %q to %d steps", answer.String, n)
	}
	done := make([]bool, n)
	for i := range done {
		done[i] = answer.String[i] == '1'
	}
	return done, nil
}

// failed closes the connection unless it is the server itself that says that something failed.
func (c *sessionConn) failed(err error) error {
	var server *mysqldriver.MySQLError
	if !errors.As(err, &server) || mysql.Classify(err) == sqlerr.Unavailable {
		c.Close()
	}
	return err
}
