package migrations_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/schema"
	"github.com/dblock-go/dblock/migrations"
)

// reader reads a table again and again, each time on its own connection. It counts the reads and
// knows the longest.
type reader struct {
	reads   atomic.Int64
	longest atomic.Int64
	end     context.CancelFunc
	ended   chan struct{}
}

func (e env) reader(table string) *reader {
	e.Helper()
	ctx, cancel := context.WithCancel(e.Context())
	r := &reader{end: cancel, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		for ctx.Err() == nil {
			began := time.Now()
			var n int64
			if err := e.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+table).Scan(&n); err != nil {
				continue
			}
			r.reads.Add(1)
			r.longest.Store(max(r.longest.Load(), int64(time.Since(began))))
		}
	}()
	e.Cleanup(func() { cancel(); <-r.ended })
	return r
}

// holder opens a transaction that has read a table, and says which session that is.
func (e env) holder(statement string) (tx *sql.Tx, session string) {
	e.Helper()
	tx, err := e.db.BeginTx(context.Background(), nil)
	e.must(err)
	e.Cleanup(func() { _ = tx.Rollback() }) // it may have ended
	_, err = tx.ExecContext(e.Context(), statement)
	e.must(err)
	query := "SELECT CONNECTION_ID()"
	if e.engine == migrations.Postgres {
		query = "SELECT pg_backend_pid()"
	}
	e.must(tx.QueryRowContext(e.Context(), query).Scan(&session))
	return tx, session
}

// TestAnOpenTransactionKeepsNoReaders: while Up waits for a transaction that has read a table,
// those that read it now wait for a moment at a time; Up ends after its LockTimeout and names the
// session, and works once that has ended.
func TestAnOpenTransactionKeepsNoReaders(t *testing.T) {
	each(t, func(e env) {
		e.up(migrations.Options{})
		_, err := migrations.DownTo(e.Context(), e.db, 2, migrations.Options{})
		e.must(err)
		tx, session := e.holder("SELECT * FROM dblock_lease")
		r := e.reader("dblock_lease")
		ctx, cancel := context.WithTimeout(e.Context(), time.Minute)
		defer cancel()
		before := r.reads.Load()
		_, err = migrations.Up(ctx, e.db, migrations.Options{LockTimeout: 10 * time.Second})
		if !errors.Is(err, dblock.ErrBusy) || !strings.Contains(err.Error(), "dblock_lease") || !strings.Contains(err.Error(), session) {
			e.Errorf("Up behind a transaction: %v, want ErrBusy that names dblock_lease and session %s", err, session)
		}
		r.end()
		<-r.ended
		e.Logf("%d reads, the longest took %v", r.reads.Load()-before, time.Duration(r.longest.Load()))
		if longest := time.Duration(r.longest.Load()); longest > 8*time.Second {
			e.Errorf("a reader waited for %v", longest)
		}
		e.must(tx.Rollback())
		e.up(migrations.Options{})
		e.wantApplied(migrations.Options{})
	})
}

// TestNamesTheOldestTransaction: of sessions that use a table, the one that began first is in the
// way.
func TestNamesTheOldestTransaction(t *testing.T) {
	each(t, func(e env) {
		e.up(migrations.Options{})
		_, err := migrations.DownTo(e.Context(), e.db, 2, migrations.Options{})
		e.must(err)
		tx, session := e.holder("SELECT * FROM dblock_lease")
		for range 8 {
			later, _ := e.holder("SELECT * FROM dblock_lease")
			defer func() { _ = later.Rollback() }()
		}
		_, err = tx.ExecContext(e.Context(), "SELECT * FROM dblock_lease") // its last statement is not the oldest
		e.must(err)
		_, err = migrations.Up(e.Context(), e.db, migrations.Options{LockTimeout: 3 * time.Second})
		if !errors.Is(err, dblock.ErrBusy) {
			e.Errorf("Up behind nine transactions: %v", err)
		}
		// MariaDB does not show which session uses a table: the oldest transaction of the server
		// may be another test's.
		if e.kind != devdb.MariaDB && !strings.Contains(err.Error(), "session "+session+" ") {
			e.Errorf("Up behind nine transactions: %v, want it to name session %s", err, session)
		}
	})
}

// TestUpWaitsForATransaction: one that ends in time is no error.
func TestUpWaitsForATransaction(t *testing.T) {
	each(t, func(e env) {
		e.up(migrations.Options{})
		fresh := e.dump()
		_, err := migrations.DownTo(e.Context(), e.db, 2, migrations.Options{})
		e.must(err)
		tx, _ := e.holder("SELECT * FROM dblock_lease")
		done := make(chan error, 1)
		go func() {
			_, err := migrations.Up(e.Context(), e.db, migrations.Options{})
			done <- err
		}()
		time.Sleep(700 * time.Millisecond) // for longer than one try of Postgres
		e.must(tx.Commit())
		e.must(<-done)
		e.wantDump("after a wait", fresh)
	})
}

// TestALockedRowBoundsUp: a migration that changes rows waits for one that is locked no longer than
// for a table.
func TestALockedRowBoundsUp(t *testing.T) {
	each(t, func(e env) {
		e.toVersion(10)
		lock := "LOCK TABLE dblock_lease IN SHARE MODE"
		table := "dblock_lease"
		if e.engine == migrations.Postgres {
			e.exec("INSERT INTO dblock_lease (lease_key, token, held_until) VALUES ('ever', 1, 'infinity')")
		} else {
			e.exec("INSERT INTO dblock_semaphore (lease_key, permits) VALUES ('two', 2)")
			lock, table = "SELECT * FROM dblock_semaphore FOR UPDATE", "dblock_semaphore"
		}
		tx, _ := e.holder(lock)
		ctx, cancel := context.WithTimeout(e.Context(), 30*time.Second) // that of InnoDB is 50 s by default
		defer cancel()
		_, err := migrations.Up(ctx, e.db, migrations.Options{LockTimeout: 2 * time.Second})
		if !errors.Is(err, dblock.ErrBusy) || !strings.Contains(err.Error(), table) {
			e.Errorf("Up behind a locked row: %v, want ErrBusy that names %s", err, table)
		}
		e.must(tx.Rollback())
		e.up(migrations.Options{})
		e.wantApplied(migrations.Options{})
	})
}

// TestSettingsOfTheHostStay: what a run sets on the host's connection is as before, after an error,
// too. autocommit off is no obstacle, nor is a limit of rows.
func TestSettingsOfTheHostStay(t *testing.T) {
	each(t, func(e env) {
		set, want := "SET SESSION autocommit = 0, SESSION lock_wait_timeout = 77, SESSION innodb_lock_wait_timeout = 78, SESSION sql_select_limit = 3", "0 77 78 3"
		get := "SELECT CONCAT(CAST(@@autocommit AS SIGNED), ' ', @@lock_wait_timeout, ' ', @@innodb_lock_wait_timeout, ' ', @@sql_select_limit)"
		if e.engine == migrations.Postgres {
			set, get, want = "SET lock_timeout = '77s'", "SELECT current_setting('lock_timeout')", "77s"
		}
		db := e.open(e.dsn)
		db.SetMaxOpenConns(1)
		_, err := db.ExecContext(e.Context(), set)
		e.must(err)
		for _, try := range []func() error{
			func() error { _, err := migrations.Up(e.Context(), db, migrations.Options{}); return err },
			func() error { _, err := migrations.DownTo(e.Context(), db, 3, migrations.Options{}); return err },
			func() error {
				e.wantVersions(schema.VersionTable, map[int64]int{0: 1, 1: 1, 2: 1, 3: 1})
				return nil
			},
			func() error { _, err := migrations.Up(e.Context(), db, migrations.Options{}); return err },
			func() error {
				list, err := migrations.Status(e.Context(), db, migrations.Options{})
				for _, m := range list {
					if !m.Applied {
						e.Errorf("Status says %+v", m)
					}
				}
				return err
			},
		} {
			e.must(try())
			var got string
			e.must(db.QueryRowContext(e.Context(), get).Scan(&got))
			if got != want {
				e.Errorf("the session has %q, want %q", got, want)
			}
		}
		e.wantApplied(migrations.Options{})
	})
}

// TestIndexesAreBuiltApart: on Postgres writers of a table go on while it gets an index, and a
// build that was cut off leaves nothing that the next Up does not replace.
func TestIndexesAreBuiltApart(t *testing.T) {
	each(t, func(e env) {
		if e.engine != migrations.Postgres {
			return // InnoDB builds an index while writers go on
		}
		e.up(migrations.Options{})
		fresh := e.dump()
		_, err := migrations.DownTo(e.Context(), e.db, 6, migrations.Options{})
		e.must(err)
		e.exec("INSERT INTO dblock_stock (sku, available) VALUES ('a', 9), ('b', 9)")
		for _, cut := range []bool{true, false} {
			tx, _ := e.holder("UPDATE dblock_stock SET available = 8 WHERE sku = 'a'")
			done := make(chan error, 1)
			go func() {
				_, err := migrations.Up(e.Context(), e.db, migrations.Options{})
				done <- err
			}()
			const builder = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE '% INDEX CONCURRENTLY %' AND wait_event_type = 'Lock'"
			ctx, cancel := context.WithTimeout(e.Context(), 30*time.Second)
			defer cancel()
			for n := 0; n == 0; {
				e.must(e.db.QueryRowContext(ctx, "SELECT count(*) "+builder).Scan(&n))
			}
			e.exec("UPDATE dblock_stock SET available = 7 WHERE sku = 'b'") // would wait for a plain build
			if cut {
				e.exec("SELECT pg_terminate_backend(pid) " + builder)
				if err := <-done; err == nil {
					e.Error("Up on a connection that ended has no error")
				}
				e.must(tx.Rollback())
				if n := len(e.strings("SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid")); n != 1 {
					e.Errorf("%d indexes are invalid, want 1", n)
				}
				if _, found := e.versions(schema.VersionTable + " WHERE NOT is_applied")[7]; !found {
					e.Error("version 7 is not recorded as begun")
				}
				continue
			}
			e.must(tx.Commit())
			e.must(<-done)
		}
		e.wantDump("after a build that was cut off", fresh)
		e.wantVersions(schema.VersionTable, everyVersion())
	})
}

// sent counts the statements that begin with a text.
type sent struct{ drops, creates atomic.Int64 }

func (s *sent) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	switch {
	case strings.HasPrefix(q.SQL, "DROP INDEX CONCURRENTLY "):
		s.drops.Add(1)
	case strings.HasPrefix(q.SQL, "CREATE INDEX CONCURRENTLY "):
		s.creates.Add(1)
	}
	return ctx
}

func (s *sent) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TestLockTimeoutBoundsABuildApart: the first attempt waits for all of LockTimeout, so there is no
// second one. This holds for the index, and for the invalid one that it replaces.
func TestLockTimeoutBoundsABuildApart(t *testing.T) {
	each(t, func(e env) {
		if e.engine != migrations.Postgres {
			return // InnoDB builds no index apart
		}
		e.up(migrations.Options{})
		e.exec("DROP INDEX dblock_queue_scheduled_queue")
		tx, session := e.holder("DELETE FROM dblock_queue_scheduled WHERE false")
		config, err := devdb.ParsePostgres(e.dsn)
		e.must(err)
		var s sent
		config.ConnConfig.Tracer = &s
		db := stdlib.OpenDB(*config.ConnConfig)
		defer func() { _ = db.Close() }()
		ctx, cancel := context.WithTimeout(e.Context(), time.Minute)
		defer cancel()
		for _, want := range [][2]int64{{0, 1}, {1, 1}} { // the second run finds the index that the first has left
			_, err := migrations.Up(ctx, db, migrations.Options{LockTimeout: 3100 * time.Millisecond})
			if !errors.Is(err, dblock.ErrBusy) || !strings.Contains(err.Error(), "dblock_queue_scheduled") || !strings.Contains(err.Error(), session) {
				e.Errorf("Up behind a transaction: %v, want ErrBusy that names dblock_queue_scheduled and session %s", err, session)
			}
			if got := [2]int64{s.drops.Load(), s.creates.Load()}; got != want {
				e.Errorf("%v indexes were dropped and created, want %v", got, want)
			}
		}
		e.must(tx.Rollback())
		e.up(migrations.Options{})
		e.wantApplied(migrations.Options{})
	})
}
