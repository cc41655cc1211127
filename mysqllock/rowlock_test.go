package mysqllock_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	locksuite "github.com/dblock-go/dblock/internal/conformance/lock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/mysqllock"
)

func rows(kind devdb.Kind) locksuite.RowLocks {
	return locksuite.RowLocks{Kind: kind, Open: openRows, Bound: time.Second, Between: 1500 * time.Millisecond}
}

func openRows(dsn string, conns int, level sql.IsolationLevel) (func(context.Context) (locksuite.RowTx, error), func(), error) {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return nil, nil, err
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return func(context.Context) (locksuite.RowTx, error) {
		conn, err := db.Conn(context.Background())
		if err != nil {
			return nil, err
		}
		tx, err := conn.BeginTx(context.Background(), &sql.TxOptions{Isolation: level})
		if err != nil {
			return nil, errors.Join(err, leave(conn, err))
		}
		return rowTx{conn, tx}, nil
	}, func() { _ = db.Close() }, nil
}

type rowTx struct {
	conn *sql.Conn
	tx   *sql.Tx
}

// leave gives a connection back to the pool. After an error of BEGIN, COMMIT or ROLLBACK its
// transaction may be open, so it is closed instead.
func leave(conn *sql.Conn, err error) error {
	if err != nil {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	}
	return conn.Close()
}

func (t rowTx) Exec(ctx context.Context, statement string) error {
	_, err := t.tx.ExecContext(ctx, statement)
	return err
}

func (t rowTx) Text(ctx context.Context, query string) (text string, err error) {
	err = t.tx.QueryRowContext(ctx, query).Scan(&text)
	return text, err
}

func (t rowTx) Commit(context.Context) error   { return t.end(t.tx.Commit()) }
func (t rowTx) Rollback(context.Context) error { return t.end(t.tx.Rollback()) }

// end is called again by a Rollback after a Commit, when the connection is closed already.
func (t rowTx) end(err error) error {
	_ = leave(t.conn, err)
	return err
}

func (t rowTx) LockRow(ctx context.Context, table, column string, key int64, o dblock.RowLock) error {
	return mysqllock.LockRow(ctx, t.tx, table, column, key, o)
}

func (t rowTx) LockText(ctx context.Context, table, column, key string, o dblock.RowLock) error {
	return mysqllock.LockRow(ctx, t.tx, table, column, key, o)
}

func (t rowTx) LockRows(ctx context.Context, table, column string, keys []int64, o dblock.RowLock) (dblock.LockedRows[int64], error) {
	return mysqllock.LockRows(ctx, t.tx, table, column, keys, o)
}

func (t rowTx) LockTexts(ctx context.Context, table, column string, keys []string, o dblock.RowLock) (dblock.LockedRows[string], error) {
	return mysqllock.LockRows(ctx, t.tx, table, column, keys, o)
}

func (t rowTx) LockTimes(ctx context.Context, table, column string, keys []time.Time, o dblock.RowLock) (dblock.LockedRows[time.Time], error) {
	return mysqllock.LockRows(ctx, t.tx, table, column, keys, o)
}

func (t rowTx) Claim(ctx context.Context, o dblock.RowLock, n int, query string) ([]int64, error) {
	return mysqllock.Claim(ctx, t.tx, o, n, one, query)
}

func one(r *sql.Rows) (id int64, err error) {
	err = r.Scan(&id)
	return id, err
}

func TestRowLocks(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			rows(kind).Run(t)
		})
	}
}

// TestRowsUnderASelectLimit: a sql_select_limit of the session hides no row that there is.
func TestRowsUnderASelectLimit(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			db, err := sql.Open("mysql", suite.Appended("sql_select_limit=1")(t, testdb.DSN(t, kind)))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = db.Close() }()
			keys := []int64{1, 2, 3, 4, 5, 6}
			for table, parts := range map[string]string{"whole": "", "parted": " PARTITION BY HASH (id) PARTITIONS 4"} {
				for _, text := range []string{
					"CREATE TABLE " + table + " (id BIGINT PRIMARY KEY, sold INT NOT NULL)" + parts,
					"INSERT INTO " + table + " VALUES (1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (6, 0)",
				} {
					if _, err := db.ExecContext(t.Context(), text); err != nil {
						t.Fatal(err)
					}
				}
				err := mysqllock.RunTx(t.Context(), db, mysqllock.TxOptions{}, func(tx *sql.Tx) error {
					rows, err := mysqllock.LockRows(t.Context(), tx, table, "id", keys, dblock.RowLock{})
					slices.Sort(rows.Locked)
					if !slices.Equal(rows.Locked, keys) {
						t.Errorf("of %s rows %v are locked, want %v", table, rows.Locked, keys)
					}
					return err
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestRowLocksSettings(t *testing.T) {
	t.Parallel()
	set := func(variable, value string) func(*testing.T, string) string {
		return suite.Appended(variable + "=" + url.QueryEscape("'"+value+"'"))
	}
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			isolation := "transaction_isolation"
			if kind == devdb.MariaDB {
				isolation = "tx_isolation"
			}
			rows(kind).RunWith(t, map[string]func(*testing.T, string) string{
				"parseTime":         suite.Appended("parseTime=true&loc=Local"),
				"columnsWithAlias":  suite.Appended("columnsWithAlias=true"),
				"clientFoundRows":   suite.Appended("clientFoundRows=true"),
				"interpolateParams": suite.Appended("interpolateParams=true"),
				"multiStatements":   suite.Appended("multiStatements=true"),
				"sql_mode":          set("sql_mode", "ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,STRICT_ALL_TABLES"),
				"collation":         suite.Appended("collation=latin1_swedish_ci"),
				"waits of 7 s":      suite.Appended("innodb_lock_wait_timeout=7"),
				"serializable":      set(isolation, "SERIALIZABLE"),
			})
		})
	}
}
