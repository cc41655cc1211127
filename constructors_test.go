package dblock_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/mysqlinventory"
	"github.com/dblock-go/dblock/inventory/pginventory"
	"github.com/dblock-go/dblock/migrations"
	"github.com/dblock-go/dblock/mysqllock"
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/optimistic/mysqloptimistic"
	"github.com/dblock-go/dblock/optimistic/pgoptimistic"
	"github.com/dblock-go/dblock/pglock"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/mysqlqueue"
	"github.com/dblock-go/dblock/queue/pgqueue"
)

// refusal is a call that is to be refused, before a server is asked, because of a field.
type refusal struct {
	name, field string
	call        func() error
}

func second[T any](_ T, err error) error { return err }

// nowhere are pools that reach no server: a call that asks one fails with another error.
func nowhere(t *testing.T) (*pgxpool.Pool, *sql.DB) {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/none?connect_timeout=1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	connector, err := mysql.NewConnector(&mysql.Config{Net: "tcp", Addr: "127.0.0.1:1", AllowNativePasswords: true})
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	return pool, db
}

// TestConstructorsRefuse passes each constructor a nil pool or a value out of range. The error is
// dblock.ErrInvalid and names the field.
func TestConstructorsRefuse(t *testing.T) {
	t.Parallel()
	pool, db := nowhere(t)
	ctx := t.Context()
	for _, all := range [][]refusal{
		ofPostgres(ctx, pool), ofMySQL(ctx, db), ofMigrations(ctx, pool, db), ofTables(), ofLockers(),
	} {
		for _, r := range all {
			t.Run(r.name+"/"+r.field, func(t *testing.T) {
				err := r.call()
				var invalid *dblock.InvalidError
				if !errors.As(err, &invalid) || !errors.Is(err, dblock.ErrInvalid) || invalid.Field != r.field {
					t.Errorf("the error is %v, want dblock.ErrInvalid of %s", err, r.field)
				}
			})
		}
	}
}

func ofPostgres(ctx context.Context, pool *pgxpool.Pool) []refusal {
	lease := func(pool *pgxpool.Pool, o pglock.LeaseOptions) func() error {
		return func() error { return second(pglock.NewLeaseLocker(ctx, pool, o)) }
	}
	session := func(pool *pgxpool.Pool, o pglock.SessionOptions) func() error {
		return func() error { return second(pglock.NewSessionLocker(ctx, pool, o)) }
	}
	store := func(pool *pgxpool.Pool, o inventory.Options) func() error {
		return func() error { return second(pginventory.New(ctx, pool, o)) }
	}
	jobs := func(pool *pgxpool.Pool, o queue.Options) func() error {
		return func() error { return second(pgqueue.New(ctx, pool, o)) }
	}
	fn := func(pgx.Tx) error { return nil }
	attempt := func(context.Context, pgx.Tx, int) error { return nil }
	var conn *pgx.Conn
	return []refusal{
		{"pglock.NewLeaseLocker", "pool", lease(nil, pglock.LeaseOptions{})},
		{"pglock.NewLeaseLocker", "LeaseOptions.TTL", lease(pool, pglock.LeaseOptions{TTL: -1})},
		{"pglock.NewLeaseLocker", "LeaseOptions.MaxQueue", lease(pool, pglock.LeaseOptions{MaxQueue: -1})},
		{"pglock.NewLeaseLocker", "LeaseOptions.Schema", lease(pool, pglock.LeaseOptions{Schema: "a.b"})},
		{"pglock.NewSessionLocker", "pool", session(nil, pglock.SessionOptions{})},
		{"pglock.NewSessionLocker", "SessionOptions.MaxConns", session(pool, pglock.SessionOptions{MaxConns: -1})},
		{"pglock.NewSessionLocker", "SessionOptions.Schema", session(pool, pglock.SessionOptions{Schema: "a.b"})},
		{"pglock.SessionLocks", "pool", func() error { return second(pglock.SessionLocks(ctx, nil, "")) }},
		{"pglock.RunTx", "pool", func() error { return pglock.RunTx(ctx, (*pgxpool.Pool)(nil), pglock.TxOptions{}, fn) }},
		{"pglock.RunTx of a connection", "pool", func() error { return pglock.RunTx(ctx, conn, pglock.TxOptions{}, fn) }},
		{"pglock.RunTx", "TxOptions.Attempts", func() error { return pglock.RunTx(ctx, pool, pglock.TxOptions{Attempts: -1}, fn) }},
		{"pginventory.New", "pool", store(nil, inventory.Options{})},
		{"pginventory.New", "Options.Timeout", store(pool, inventory.Options{Timeout: -1})},
		{"pginventory.New", "Options.Schema", store(pool, inventory.Options{Schema: "a.b"})},
		{"pginventory.New", "options", func() error { return second(pginventory.New(ctx, pool, inventory.Options{}, nil)) }},
		{"pgqueue.New", "pool", jobs(nil, queue.Options{})},
		{"pgqueue.New", "Options.MaxQueue", jobs(pool, queue.Options{MaxQueue: -1})},
		{"pgqueue.New", "Options.TTL", jobs(pool, queue.Options{TTL: -1})},
		{"pgqueue.New", "Options.Schema", jobs(pool, queue.Options{Schema: "a.b"})},
		{"pgoptimistic.Do", "pool", func() error { return pgoptimistic.Do(ctx, nil, attempt) }},
	}
}

func ofMySQL(ctx context.Context, db *sql.DB) []refusal {
	lease := func(db *sql.DB, o mysqllock.LeaseOptions) func() error {
		return func() error { return second(mysqllock.NewLeaseLocker(ctx, db, o)) }
	}
	session := func(db *sql.DB, o mysqllock.SessionOptions) func() error {
		return func() error { return second(mysqllock.NewSessionLocker(ctx, db, o)) }
	}
	store := func(db *sql.DB, o inventory.Options) func() error {
		return func() error { return second(mysqlinventory.New(ctx, db, o)) }
	}
	jobs := func(db *sql.DB, o queue.Options) func() error {
		return func() error { return second(mysqlqueue.New(ctx, db, o)) }
	}
	fn := func(*sql.Tx) error { return nil }
	attempt := func(context.Context, *sql.Tx, int) error { return nil }
	return []refusal{
		{"mysqllock.NewLeaseLocker", "pool", lease(nil, mysqllock.LeaseOptions{})},
		{"mysqllock.NewLeaseLocker", "LeaseOptions.TTL", lease(db, mysqllock.LeaseOptions{TTL: -1})},
		{"mysqllock.NewLeaseLocker", "LeaseOptions.Watch", lease(db, mysqllock.LeaseOptions{Watch: time.Hour})},
		{"mysqllock.NewLeaseLocker", "LeaseOptions.Schema", lease(db, mysqllock.LeaseOptions{Schema: "a.b"})},
		{"mysqllock.NewSessionLocker", "pool", session(nil, mysqllock.SessionOptions{})},
		{"mysqllock.NewSessionLocker", "SessionOptions.MaxConns", session(db, mysqllock.SessionOptions{MaxConns: -1})},
		{"mysqllock.NewSessionLocker", "SessionOptions.Schema", session(db, mysqllock.SessionOptions{Schema: "a.b"})},
		{"mysqllock.SessionLocks", "pool", func() error { return second(mysqllock.SessionLocks(ctx, nil, "")) }},
		{"mysqllock.RunTx", "db", func() error { return mysqllock.RunTx(ctx, nil, mysqllock.TxOptions{}, fn) }},
		{"mysqllock.RunTx", "TxOptions.Attempts", func() error { return mysqllock.RunTx(ctx, db, mysqllock.TxOptions{Attempts: -1}, fn) }},
		{"mysqlinventory.New", "db", store(nil, inventory.Options{})},
		{"mysqlinventory.New", "Options.SoldOutTTL", store(db, inventory.Options{SoldOutTTL: -1})},
		{"mysqlinventory.New", "Options.Schema", store(db, inventory.Options{Schema: "a.b"})},
		{"mysqlinventory.New", "options", func() error { return second(mysqlinventory.New(ctx, db, inventory.Options{}, nil)) }},
		{"mysqlqueue.New", "db", jobs(nil, queue.Options{})},
		{"mysqlqueue.New", "Options.History", jobs(db, queue.Options{History: -1})},
		{"mysqlqueue.New", "Options.Schema", jobs(db, queue.Options{Schema: "a.b"})},
		{"mysqloptimistic.Do", "db", func() error { return mysqloptimistic.Do(ctx, nil, attempt) }},
	}
}

func ofMigrations(ctx context.Context, pool *pgxpool.Pool, db *sql.DB) []refusal {
	var noPool *pgxpool.Pool
	var noDB *sql.DB
	late := migrations.Options{LockTimeout: -1}
	return []refusal{
		{"migrations.Up", "db", func() error { return second(migrations.Up(ctx, noPool, migrations.Options{})) }},
		{"migrations.Up of database/sql", "db", func() error { return second(migrations.Up(ctx, noDB, migrations.Options{})) }},
		{"migrations.Up", "Options.LockTimeout", func() error { return second(migrations.Up(ctx, pool, late)) }},
		{"migrations.Down", "db", func() error { return second(migrations.Down(ctx, noDB, migrations.Options{})) }},
		{"migrations.DownTo", "db", func() error { return second(migrations.DownTo(ctx, noDB, 0, migrations.Options{})) }},
		{"migrations.DownTo", "version", func() error { return second(migrations.DownTo(ctx, db, -1, migrations.Options{})) }},
		{"migrations.Status", "db", func() error { return second(migrations.Status(ctx, noPool, migrations.Options{})) }},
		{"migrations.Status", "Options.LockTimeout", func() error { return second(migrations.Status(ctx, db, late)) }},
		{"pglock.NewMigrationLocker", "MigrationOptions.Name", func() error {
			return second(pglock.NewMigrationLocker(pglock.MigrationOptions{}))
		}},
		{"mysqllock.NewMigrationLocker", "MigrationOptions.Timeout", func() error {
			return second(mysqllock.NewMigrationLocker(mysqllock.MigrationOptions{Name: "service", Timeout: -1}))
		}},
	}
}

func ofTables() []refusal {
	return []refusal{
		{"pgoptimistic.NewTable", "table", func() error {
			return second(pgoptimistic.NewTable("", "id", optimistic.Int("version")))
		}},
		{"mysqloptimistic.NewTable", "key", func() error {
			return second(mysqloptimistic.NewTable("account", "", optimistic.Int("version")))
		}},
	}
}

func ofLockers() []refusal {
	var none *pglock.LeaseLocker
	return []refusal{
		{"dblock.NewElector", "Locker", func() error { return second(dblock.NewElector(nil, "key", dblock.ElectorOptions{})) }},
		{"dblock.NewElector of a typed nil", "Locker", func() error {
			return second(dblock.NewElector(none, "key", dblock.ElectorOptions{}))
		}},
		{"dblock.NewQuorum", "nodes", func() error { return second(dblock.NewQuorum(nil, dblock.QuorumOptions{})) }},
		{"dblock.NewQuorum", "QuorumOptions.Drift", func() error {
			return second(dblock.NewQuorum(nil, dblock.QuorumOptions{Drift: -1}))
		}},
	}
}
