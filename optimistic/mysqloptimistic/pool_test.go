package mysqloptimistic_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/optimistic/mysqloptimistic"
)

// TestCallersThatLeaveKeepFewSessions: another transaction has a row locked. Callers give up on it
// soon, again and again. They leave no more sessions at the server than their pool may have twice,
// and a write of another row takes place. The control is the statement written by hand.
func TestCallersThatLeaveKeepFewSessions(t *testing.T) {
	t.Parallel()
	const conns, rounds = 4, 12
	set := optimistic.Set{"balance": 1}
	for _, kind := range family() {
		table, err := mysqloptimistic.NewTable("account", "id", optimistic.Int("version"))
		if err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]struct {
			least, most int
			write       func(ctx context.Context, db *sql.DB, id int) error
		}{
			"by hand": {2*conns + 1, 1000, func(ctx context.Context, db *sql.DB, id int) error {
				_, err := db.ExecContext(ctx, "UPDATE account SET balance = 1 WHERE id = ?", id)
				return err
			}},
			"Any.Update": {0, 2 * conns, func(ctx context.Context, db *sql.DB, id int) error {
				_, err := table.Any().Update(ctx, db, id, set)
				return err
			}},
			"Update": {0, 2 * conns, func(ctx context.Context, db *sql.DB, id int) error {
				_, err := table.Update(ctx, db, id, 1, set)
				return err
			}},
			"UpdateMany": {0, 2 * conns, func(ctx context.Context, db *sql.DB, id int) error {
				_, err := table.UpdateMany(ctx, db, []optimistic.Change[int64]{{Key: id, Expected: 1, Set: set}}, optimistic.UpdateAllOrNothing)
				return err
			}},
		} {
			t.Run(string(kind)+"/"+name, func(t *testing.T) {
				t.Parallel()
				ctx, dsn := t.Context(), testdb.DSN(t, kind)
				db, host := openPool(t, dsn, conns), openPool(t, dsn, 2)
				for _, text := range []string{
					"CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL, version BIGINT NOT NULL DEFAULT 1)",
					"INSERT INTO account (id, balance) VALUES (1, 0), (2, 0)",
				} {
					if _, err := host.ExecContext(ctx, text); err != nil {
						t.Fatal(err)
					}
				}
				tx, err := host.BeginTx(ctx, nil)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = tx.Rollback() }()
				if _, err := tx.ExecContext(ctx, "UPDATE account SET balance = 9 WHERE id = 1"); err != nil {
					t.Fatal(err)
				}
				for range rounds {
					var all sync.WaitGroup
					for range conns {
						all.Go(func() {
							soon, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
							defer cancel()
							err := c.write(soon, db, 1)
							known := errors.Is(err, dblock.ErrBusy) || errors.Is(err, dblock.ErrOutcomeUnknown) || errors.Is(err, dblock.ErrUnavailable)
							if err == nil || c.least == 0 && !known {
								t.Errorf("a locked row: %v", err)
							}
						})
					}
					all.Wait()
				}
				waiting := func() (sessions int) {
					if err := host.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+devdb.Processlist+
						" WHERE db = DATABASE() AND info LIKE '%account%' AND id <> CONNECTION_ID()").Scan(&sessions); err != nil {
						t.Fatal(err)
					}
					return sessions
				}
				// Those that wait for the row do so for 50 s, and the others end.
				sessions := waiting()
				for end := time.Now().Add(20 * time.Second); sessions > c.most && time.Now().Before(end); sessions = waiting() {
					time.Sleep(10 * time.Millisecond)
				}
				if sessions < c.least || sessions > c.most {
					t.Errorf("%d sessions wait, want %d to %d", sessions, c.least, c.most)
				}
				if err := c.write(ctx, db, 2); err != nil {
					t.Errorf("another row: %v", err)
				}
				if err := tx.Rollback(); err != nil {
					t.Fatal(err)
				}
				if err := c.write(ctx, db, 1); err != nil && !errors.Is(err, optimistic.ErrStale) { // one that was left may be written
					t.Errorf("the row once it is free: %v", err)
				}
			})
		}
	}
}

// TestNoConnectionIsBusy: the only connection of a pool is taken, so nothing is written.
func TestNoConnectionIsBusy(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			db := openPool(t, testdb.DSN(t, kind), 1)
			if _, err := db.ExecContext(ctx, "CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL, version BIGINT NOT NULL DEFAULT 1)"); err != nil {
				t.Fatal(err)
			}
			table, err := mysqloptimistic.NewTable("account", "id", optimistic.Int("version"))
			if err != nil {
				t.Fatal(err)
			}
			if err := table.Check(ctx, db); err != nil {
				t.Fatal(err)
			}
			conn, err := db.Conn(ctx)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			set := optimistic.Set{"balance": 1}
			for name, write := range map[string]func(ctx context.Context) error{
				"Update":     func(ctx context.Context) error { _, err := table.Update(ctx, db, 1, 1, set); return err },
				"Any.Update": func(ctx context.Context) error { _, err := table.Any().Update(ctx, db, 1, set); return err },
				"Delete":     func(ctx context.Context) error { return table.Delete(ctx, db, 1, 1) },
				"UpdateMany": func(ctx context.Context) error {
					_, err := table.UpdateMany(ctx, db, []optimistic.Change[int64]{{Key: 1, Expected: 1, Set: set}}, optimistic.UpdateAllOrNothing)
					return err
				},
			} {
				soon, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
				if err := write(soon); !errors.Is(err, dblock.ErrBusy) || errors.Is(err, dblock.ErrOutcomeUnknown) {
					t.Errorf("%s: %v, want dblock.ErrBusy", name, err)
				}
				cancel()
			}
		})
	}
}

func openPool(t *testing.T, dsn string, conns int) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(conns)
	t.Cleanup(func() { _ = db.Close() })
	return db
}
