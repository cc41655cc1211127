package bench

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/pgscript"
)

func openSQLMySQL(ctx context.Context, env *Env, script *pgscript.Script, setup string) (Workload, error) {
	if err := setUpMySQL(ctx, env.DSN, setup); err != nil {
		return nil, err
	}
	db, err := env.MySQL(ctx)
	if err != nil {
		return nil, err
	}
	return &sqlWorkload{
		env: env, script: script, done: db.Close,
		dial: func(ctx context.Context) (scriptConn, error) {
			conn, err := db.Conn(ctx)
			if err != nil {
				return nil, err
			}
			return &mysqlScript{conn: conn, stmts: make([]*sql.Stmt, len(script.Commands)), asText: make([]bool, len(script.Commands))}, nil
		},
	}, nil
}

// setUpMySQL leaves it to the server to find the ends of the statements: which bytes quote there
// depends on the product and its settings.
func setUpMySQL(ctx context.Context, dsn, setup string) error {
	if setup == "" {
		return nil
	}
	cfg, err := devdb.ParseMySQL(dsn)
	if err != nil {
		return err
	}
	cfg.MultiStatements = true
	cfg.Logger = &mysql.NopLogger{} // what it would say is in the errors too
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	_, err = db.ExecContext(ctx, setup)
	if err != nil {
		err = fmt.Errorf("setup: %w", err)
	}
	return errors.Join(err, db.Close())
}

// Error numbers, the same on MySQL and MariaDB.
const (
	mysqlLockWaitTimeout = 1205
	mysqlDeadlock        = 1213
	mysqlNotPreparable   = 1295
	mysqlInTransaction   = 1568 // "Transaction characteristics can't be changed while a transaction is in progress"
)

func mysqlNumber(err error) uint16 {
	if e := new(mysql.MySQLError); errors.As(err, &e) {
		return e.Number
	}
	return 0
}

// mysqlScript is a script on one connection.
type mysqlScript struct {
	conn   *sql.Conn
	stmts  []*sql.Stmt // by command; nil until it is prepared
	asText []bool      // the server has no prepared form of it
	args   []any
	whole  bool // the script has been seen to end without a transaction
}

// The driver itself watches the context.
func (m *mysqlScript) begin(context.Context) error { return nil }
func (m *mysqlScript) end()                        {}

func (m *mysqlScript) exec(ctx context.Context, n int, q *pgscript.SQL, vars *pgscript.Session) error {
	if err := m.prepare(ctx, n, q); err != nil {
		return err
	}
	if m.asText[n] {
		return drained(m.conn.QueryContext(ctx, q.Question))
	}
	m.args = m.args[:0]
	for _, v := range q.Vars {
		m.args = append(m.args, vars.Value(v))
	}
	return drained(m.stmts[n].QueryContext(ctx, m.args...))
}

func (m *mysqlScript) prepare(ctx context.Context, n int, q *pgscript.SQL) error {
	if m.stmts[n] != nil || m.asText[n] {
		return nil
	}
	stmt, err := m.conn.PrepareContext(ctx, q.Question)
	if mysqlNumber(err) == mysqlNotPreparable && len(q.Vars) == 0 {
		m.asText[n] = true
		return nil
	}
	m.stmts[n] = stmt
	return err
}

func drained(rows *sql.Rows, err error) error {
	if err != nil {
		return err
	}
	for more := true; more; more = rows.NextResultSet() {
		for rows.Next() {
		}
	}
	return errors.Join(rows.Err(), rows.Close())
}

func (m *mysqlScript) failure(err error) string {
	switch mysqlNumber(err) {
	case mysqlDeadlock:
		return "deadlock"
	case mysqlLockWaitTimeout:
		return "lock_wait_timeout"
	}
	return ""
}

// rollback is needed for a lock that was waited for too long: that undoes a statement only.
func (m *mysqlScript) rollback(ctx context.Context) error {
	_, err := m.conn.ExecContext(ctx, "ROLLBACK")
	return err
}

// inTransaction asks once for a connection: a script always ends in the same way, and the question
// costs a round trip. It is a statement that changes nothing, and is refused inside of a transaction.
func (m *mysqlScript) inTransaction(ctx context.Context) (bool, error) {
	if m.whole {
		return false, nil
	}
	_, err := m.conn.ExecContext(ctx, "SET TRANSACTION READ WRITE")
	if mysqlNumber(err) == mysqlInTransaction {
		return true, nil
	}
	m.whole = err == nil
	return false, err
}

// close ends the connection for good: the next round shall not find what this one left in it.
func (m *mysqlScript) close() error {
	err := m.conn.Raw(func(any) error { return driver.ErrBadConn })
	if err != nil && !errors.Is(err, driver.ErrBadConn) && !errors.Is(err, sql.ErrConnDone) {
		return err
	}
	if err := m.conn.Close(); err != nil && !errors.Is(err, sql.ErrConnDone) {
		return err
	}
	return nil
}
