package mysqllock_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/migrations"
	"github.com/dblock-go/dblock/mysqllock"
)

// refusing makes connections whose server rolls a transaction back when its savepoint is released,
// as a cluster does whose certification fails, and says number then; 0: it does what is sent.
type refusing struct {
	driver.Connector
	number *atomic.Int32
}

func (c refusing) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return refusingConn{conn, conn.(wire), c.number}, nil
}

// wire is what database/sql uses of a connection.
type wire interface {
	driver.ExecerContext
	driver.QueryerContext
	driver.ConnPrepareContext
	driver.ConnBeginTx
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

type refusingConn struct {
	driver.Conn
	wire
	number *atomic.Int32
}

func (c refusingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	number := c.number.Load()
	if number == 0 || !strings.HasPrefix(query, "RELEASE SAVEPOINT") {
		return c.wire.QueryContext(ctx, query, args)
	}
	if _, err := c.wire.ExecContext(ctx, "ROLLBACK", nil); err != nil {
		return nil, err
	}
	return nil, &mysql.MySQLError{Number: uint16(number), Message: "refused by a test"}
}

// TestGuardedTxIsNotAcknowledged: whatever the server says at the release of the savepoint,
// GuardedTx and RunTx say nil only for what is written.
func TestGuardedTxIsNotAcknowledged(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			config, err := mysql.ParseDSN(testdb.DSN(t, kind))
			if err != nil {
				t.Fatal(err)
			}
			connector, err := mysql.NewConnector(config)
			if err != nil {
				t.Fatal(err)
			}
			plain := sql.OpenDB(connector)
			defer func() { _ = plain.Close() }()
			if _, err := migrations.Up(t.Context(), plain, migrations.Options{}); err != nil {
				t.Fatal(err)
			}
			if _, err := plain.ExecContext(t.Context(), "CREATE TABLE written (n INT)"); err != nil {
				t.Fatal(err)
			}
			var number atomic.Int32
			db := sql.OpenDB(refusing{connector, &number})
			defer func() { _ = db.Close() }()
			l, err := mysqllock.NewLeaseLocker(t.Context(), db, mysqllock.LeaseOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Close(context.Background()) }()
			lock, err := l.Acquire(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = lock.Release(context.Background()) }()
			for no, want := range map[int32]error{1213: dblock.ErrConflict, 1180: nil, 1317: nil, 1047: nil, 1305: dblock.ErrTxEnded} {
				number.Store(no)
				err := l.GuardedTx(t.Context(), lock, func(ctx context.Context, tx *sql.Tx) error {
					_, err := tx.ExecContext(ctx, "INSERT INTO written VALUES (1)")
					return err
				})
				if err == nil || want != nil && !errors.Is(err, want) {
					t.Errorf("GuardedTx, error %d: got %v, want %v", no, err, want)
				}
				err = mysqllock.RunTx(t.Context(), db, mysqllock.TxOptions{Attempts: 1}, func(tx *sql.Tx) error {
					_, err := tx.ExecContext(t.Context(), "INSERT INTO written VALUES (1)")
					return err
				})
				if err == nil || want != nil && !errors.Is(err, want) {
					t.Errorf("RunTx, error %d: got %v, want %v", no, err, want)
				}
			}
			number.Store(0)
			var n int
			if err := plain.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM written").Scan(&n); err != nil || n != 0 {
				t.Errorf("%d rows are written, %v", n, err)
			}
		})
	}
}
