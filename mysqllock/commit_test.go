package mysqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/migrations"
	"github.com/dblock-go/dblock/mysqllock"
)

// TestNoTransactionStaysOpen: if the server refuses or does not answer the end of a transaction,
// the error says so. No row stays locked by a connection of the pool, and the next transaction on
// the pool commits nothing of it.
func TestNoTransactionStaysOpen(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			x := newRefusedEnd(t, kind)
			refused := faultconn.Answer{Code: "1290", State: "HY000", StaysOpen: true}
			ended := faultconn.Answer{Code: "1053", State: "08S01", Fatal: true}
			executed := ended
			executed.After = true
			for _, c := range []struct {
				name, request string
				answer        faultconn.Answer
				own           error
			}{
				{"a refused commit", "COMMIT", refused, nil},
				{"an interrupted commit", "COMMIT", faultconn.Answer{Code: "1317", State: "70100", StaysOpen: true}, nil},
				{"a commit that ends the connection", "COMMIT", ended, nil},
				{"a commit without an answer", "COMMIT", executed, nil},
				{"a refused rollback", "ROLLBACK", refused, errOwn},
				{"a rollback that ends the connection", "ROLLBACK", ended, errOwn},
				{"a refused release", "RELEASE SAVEPOINT dblock_tx", refused, nil},
				{"a release that ends the connection", "RELEASE SAVEPOINT dblock_tx", ended, nil},
			} {
				written := 0
				if c.answer.After {
					written = 1
				}
				for name, run := range x.helpers {
					x.proxy.Next(c.request, c.answer)
					err := run(func(tx *sql.Tx) error {
						_, err := tx.ExecContext(t.Context(), "UPDATE row_of SET v = v + 1")
						return errors.Join(err, c.own)
					})
					if err == nil || c.own != nil && !errors.Is(err, c.own) || written > 0 && !errors.Is(err, dblock.ErrOutcomeUnknown) {
						t.Errorf("%s, %s: %v", name, c.name, err)
					}
					x.checkRow(t, name+", "+c.name, written)
				}
			}
		})
	}
}

var errOwn = errors.New("the function's own")

// refusedEnd is a pool whose server refuses the end of transactions, and a table with one row.
type refusedEnd struct {
	proxy   *faultconn.Proxy
	plain   *sql.DB // without the proxy
	pool    *sql.DB
	helpers map[string]func(func(*sql.Tx) error) error
}

func newRefusedEnd(t *testing.T, kind devdb.Kind) *refusedEnd {
	t.Helper()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	config, err := mysql.ParseDSN(testdb.DSN(t, kind))
	ok(err)
	config.Params = map[string]string{"innodb_lock_wait_timeout": "2"}
	x := &refusedEnd{}
	x.plain, err = sql.Open("mysql", config.FormatDSN())
	ok(err)
	t.Cleanup(func() { _ = x.plain.Close() })
	x.proxy, err = faultconn.ProxyMySQL(config.Addr)
	ok(err)
	t.Cleanup(x.proxy.Close)
	config.Addr = x.proxy.Addr()
	x.pool, err = sql.Open("mysql", config.FormatDSN())
	ok(err)
	t.Cleanup(func() { _ = x.pool.Close() })
	_, err = migrations.Up(t.Context(), x.plain, migrations.Options{})
	ok(err)
	for _, statement := range []string{"CREATE TABLE row_of (v INT NOT NULL)", "INSERT INTO row_of VALUES (0)"} {
		_, err = x.plain.ExecContext(t.Context(), statement)
		ok(err)
	}
	l, err := mysqllock.NewLeaseLocker(t.Context(), x.pool, mysqllock.LeaseOptions{})
	ok(err)
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	lock, err := l.Acquire(t.Context(), "k")
	ok(err)
	t.Cleanup(func() { _ = lock.Release(context.Background()) })
	x.helpers = map[string]func(func(*sql.Tx) error) error{
		"RunTx": func(fn func(*sql.Tx) error) error {
			return mysqllock.RunTx(t.Context(), x.pool, mysqllock.TxOptions{Attempts: 1}, fn)
		},
		"GuardedTx": func(fn func(*sql.Tx) error) error {
			return l.GuardedTx(t.Context(), lock, func(_ context.Context, tx *sql.Tx) error { return fn(tx) })
		},
	}
	return x
}

// checkRow has the row written so many times. It is not locked, and stays so when the pool's
// connections begin again.
func (x *refusedEnd) checkRow(t *testing.T, after string, written int) {
	t.Helper()
	if _, err := x.plain.ExecContext(t.Context(), "UPDATE row_of SET v = v + 10"); err != nil {
		t.Errorf("%s: the row stays locked: %v", after, err)
	}
	if err := x.helpers["RunTx"](func(*sql.Tx) error { return nil }); err != nil {
		t.Errorf("%s: the next transaction: %v", after, err)
	}
	var v int
	if err := x.plain.QueryRowContext(t.Context(), "SELECT v FROM row_of").Scan(&v); err != nil || v != 10+written {
		t.Errorf("%s: the row has %d, %v; want %d", after, v, err, 10+written)
	}
	if _, err := x.plain.ExecContext(t.Context(), "UPDATE row_of SET v = 0"); err != nil {
		t.Fatal(err)
	}
}
