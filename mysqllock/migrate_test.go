package mysqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/pressly/goose/v3/lock"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/answers"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/mysqllock"
)

func TestMigrationLocker(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			answers.Migrations{Kind: kind, Locker: func(name string, timeout time.Duration) (answers.SessionLocker, error) {
				return mysqllock.NewMigrationLocker(mysqllock.MigrationOptions{Name: name, Timeout: timeout})
			}}.Run(t)
		})
	}
}

// TestLockersAcrossTimeZones: goose's lock for MySQL is a row with an expiry in the session's local
// time, so that a process in a zone further east finds the lock of one further west expired, and
// both have it. Ours goes by no time of day.
func TestLockersAcrossTimeZones(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			dsn := testdb.DSN(t, kind)
			london, cairo := openZone(t, dsn, "+00:00"), openZone(t, dsn, "+02:00")
			t.Run("dblock's excludes", func(t *testing.T) { oursExcludes(t, london, cairo) })
			t.Run("goose's lets both in", func(t *testing.T) { goosesLetsBothIn(t, london, cairo) })
			t.Run("goose's excludes in one zone", func(t *testing.T) { goosesExcludes(t, london) })
		})
	}
}

// openZone is a pool of sessions of a time zone. goose's lock scans times, and needs parseTime.
func openZone(t *testing.T, dsn, zone string) *sql.DB {
	t.Helper()
	cfg, err := devdb.ParseMySQL(dsn)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ParseTime, cfg.Params = true, map[string]string{"time_zone": "'" + zone + "'"}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func oursExcludes(t *testing.T, one, other *sql.DB) {
	l, err := mysqllock.NewMigrationLocker(mysqllock.MigrationOptions{Name: "zones", Timeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]*sql.Conn
	for i, db := range []*sql.DB{one, other} {
		if conns[i], err = db.Conn(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conns[i].Close() }()
	}
	if err := l.SessionLock(t.Context(), conns[0]); err != nil {
		t.Fatal(err)
	}
	if err := l.SessionLock(t.Context(), conns[1]); !errors.Is(err, dblock.ErrBusy) {
		t.Errorf("the second got %v, want ErrBusy", err)
	}
	if err := l.SessionUnlock(t.Context(), conns[0]); err != nil {
		t.Error(err)
	}
}

func goosesLetsBothIn(t *testing.T, one, other *sql.DB) {
	if err := lockGoose(t, one, "goose_lock_zones"); err != nil {
		t.Fatal(err)
	}
	if err := lockGoose(t, other, "goose_lock_zones"); err != nil {
		t.Errorf("goose's lock excludes across time zones (%v): say so in docs/migrations.md", err)
	}
}

// goosesExcludes is the control: it is the zone that lets both in.
func goosesExcludes(t *testing.T, db *sql.DB) {
	if err := lockGoose(t, db, "goose_lock_zone"); err != nil {
		t.Fatal(err)
	}
	if err := lockGoose(t, db, "goose_lock_zone"); err == nil {
		t.Error("goose's lock lets two in within one time zone")
	}
}

// lockGoose is a process of its own that takes goose's lock, and tries once. It keeps it till the
// test ends.
func lockGoose(t *testing.T, db *sql.DB, table string) error {
	l, err := lock.NewMySQLTableLocker(lock.WithTableName(table),
		lock.WithTableLockTimeout(time.Millisecond, 1), lock.WithTableUnlockTimeout(time.Millisecond, 1))
	if err != nil {
		t.Fatal(err)
	}
	err = l.Lock(t.Context(), db)
	if err == nil {
		t.Cleanup(func() {
			_ = l.Unlock(context.WithoutCancel(t.Context()), db) // fails for the one whose lock was taken away
		})
	}
	return err
}
