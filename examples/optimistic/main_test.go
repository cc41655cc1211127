package examples

import (
	"database/sql"
	"errors"
	"os"
	"runtime"
	"sync"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/jackc/pgx/v5/stdlib"
	gormmysql "gorm.io/driver/mysql"
	gormpostgres "gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/dblock-go/dblock/examples/optimistic/ent"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/mysqllock"
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/pglock"
)

func TestMain(m *testing.M) { testdb.Main(m, devdb.Postgres, devdb.MariaDB, devdb.MySQL) }

// bank is a database of the kind with the accounts 1 and 2, and the services that there are for it.
func bank(t *testing.T, kind devdb.Kind) (db *sql.DB, services map[string]Deposit) {
	t.Helper()
	services = map[string]Deposit{}
	var dialector gorm.Dialector
	name, retryable := dialect.MySQL, mysqllock.Retryable
	if kind == devdb.Postgres {
		pool := testdb.Postgres(t)
		db = stdlib.OpenDBFromPool(pool)
		t.Cleanup(func() { _ = db.Close() })
		services["sqlc"] = SqlcPostgres(pool)
		dialector = gormpostgres.New(gormpostgres.Config{Conn: db})
		name, retryable = dialect.Postgres, pglock.Retryable
	} else {
		db = testdb.MySQLOn(t, kind)
		db.SetMaxOpenConns(16)
		services["sqlc"] = SqlcMySQL(db)
		dialector = gormmysql.New(gormmysql.Config{Conn: db})
	}
	g, err := gorm.Open(dialector, &gorm.Config{SkipDefaultTransaction: true, Logger: logger.Discard})
	if err != nil {
		t.Fatal(err)
	}
	services["gorm"] = Gorm(g, retryable)
	services["ent"] = Ent(ent.NewClient(ent.Driver(entsql.OpenDB(name, db))), retryable)
	create(t, db, kind)
	return db, services
}

// create makes the table as sqlc has read it.
func create(t *testing.T, db *sql.DB, kind devdb.Kind) {
	t.Helper()
	file := "sqlc/mysql/schema.sql"
	if kind == devdb.Postgres {
		file = "sqlc/postgres/schema.sql"
	}
	schema, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{string(schema), "INSERT INTO account (id, balance) VALUES (1, 100), (2, 100)"} {
		if _, err := db.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
}

func each(t *testing.T, test func(t *testing.T, kind devdb.Kind)) {
	t.Parallel()
	for _, kind := range testdb.Engines() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			test(t, kind)
		})
	}
}

func row(t *testing.T, db *sql.DB, id string) (balance, version int64) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), "SELECT balance, version FROM account WHERE id = "+id).Scan(&balance, &version); err != nil {
		t.Fatal(err)
	}
	return balance, version
}

// TestDeposits: what many deposit at once through one of them is there, and so is what they deposit
// through all.
func TestDeposits(t *testing.T) {
	each(t, func(t *testing.T, kind devdb.Kind) {
		db, services := bank(t, kind)
		var crowd sync.WaitGroup
		for name, deposit := range services {
			for range 4 {
				crowd.Go(func() {
					for range 5 {
						for {
							_, err := deposit(t.Context(), 1, 1)
							if errors.Is(err, optimistic.ErrStale) { // ten attempts are too few for some without a lock
								continue
							}
							if err != nil {
								t.Errorf("%s: %v", name, err)
							}
							break
						}
					}
				})
			}
		}
		crowd.Wait()
		want := int64(20 * len(services))
		if balance, version := row(t, db, "1"); balance != 100+want || version != 1+want {
			t.Errorf("a balance of %d at version %d, want %d more than 100 and 1", balance, version, want)
		}
		for name, deposit := range services {
			if _, err := deposit(t.Context(), 9, 1); !errors.Is(err, optimistic.ErrNotFound) && !errors.Is(err, sql.ErrNoRows) {
				t.Errorf("%s: %v of a row that is not there", name, err)
			}
			if balance, err := deposit(t.Context(), 2, 0); err != nil || balance != 100 {
				t.Errorf("%s: %d, %v", name, balance, err)
			}
		}
	})
}

// TestOverlap: a write between a service's read and its write is neither overwritten nor lost.
func TestOverlap(t *testing.T) {
	each(t, func(t *testing.T, kind devdb.Kind) {
		db, services := bank(t, kind)
		for name, deposit := range services {
			before, _ := row(t, db, "1")
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.ExecContext(t.Context(), "UPDATE account SET balance = balance + 1000, version = version + 1 WHERE id = 1"); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { // it reads what was there before, and waits with its write
				_, err := deposit(t.Context(), 1, 1)
				done <- err
			}()
			for !waits(t, db, kind) && len(done) == 0 {
				runtime.Gosched()
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if balance, _ := row(t, db, "1"); balance != before+1001 {
				t.Errorf("%s: a balance of %d, want %d", name, balance, before+1001)
			}
		}
	})
}

// waits reports whether a session waits to write a row of this database.
func waits(t *testing.T, db *sql.DB, kind devdb.Kind) bool {
	t.Helper()
	query := "SELECT COUNT(*) FROM " + devdb.Processlist + " WHERE db = DATABASE() AND id <> CONNECTION_ID() AND info LIKE '%UPDATE%'"
	if kind == devdb.Postgres {
		query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
	}
	var n int
	if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n > 0
}

// TestSqlc: the other forms of queries.
func TestSqlc(t *testing.T) {
	each(t, func(t *testing.T, kind devdb.Kind) {
		db, _ := bank(t, kind)
		transfer := func(from, to, amount int64) error { return TransferMySQL(t.Context(), db, from, to, amount) }
		remove := func(id, version int64) error { return DeleteMySQL(t.Context(), db, id, version) }
		touch := func(id, version int64) error { return TouchMySQL(t.Context(), db, id, version) }
		if kind == devdb.Postgres {
			db, transfer, remove, touch = sqlcPostgres(t)
		}
		if err := transfer(2, 1, 30); err != nil {
			t.Fatal(err)
		}
		if err := transfer(1, 2, 1000); err == nil {
			t.Error("more was moved than there was")
		}
		one, version := row(t, db, "1")
		if other, _ := row(t, db, "2"); one != 130 || other != 70 || version != 2 {
			t.Errorf("balances of %d and %d, version %d", one, other, version)
		}
		if err := touch(1, 1); !errors.Is(err, optimistic.ErrStale) {
			t.Errorf("touched at an old version: %v", err)
		}
		if err := touch(1, 2); err != nil {
			t.Error(err)
		}
		var conflict *optimistic.StaleError
		if err := remove(1, 2); !errors.As(err, &conflict) || conflict.Actual != int64(3) {
			t.Errorf("deleted at an old version: %v", err)
		}
		if err := remove(1, 3); err != nil {
			t.Error(err)
		}
		if err := remove(1, 3); !errors.Is(err, optimistic.ErrNotFound) {
			t.Errorf("deleted twice: %v", err)
		}
	})
}

func sqlcPostgres(t *testing.T) (db *sql.DB, transfer func(from, to, amount int64) error, remove, touch func(id, version int64) error) {
	t.Helper()
	pool := testdb.Postgres(t)
	db = stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { _ = db.Close() })
	create(t, db, devdb.Postgres)
	return db, func(from, to, amount int64) error { return TransferPostgres(t.Context(), pool, from, to, amount) },
		func(id, version int64) error { return DeletePostgres(t.Context(), pool, id, version) },
		func(id, version int64) error { return TouchPostgres(t.Context(), pool, id, version) }
}
