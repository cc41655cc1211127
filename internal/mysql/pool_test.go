package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/testdb"
)

func TestMain(m *testing.M) { testdb.Main(m, devdb.MariaDB, devdb.MySQL) }

// TestWaitsEndOnTheServer has callers of little patience come for a row that is locked. The server
// must not keep a session for each of them that has left. Afterwards each session of the pool has
// the values that the host gave it.
func TestWaitsEndOnTheServer(t *testing.T) {
	t.Parallel()
	for _, kind := range testdb.Engines() {
		if kind == devdb.Postgres {
			continue
		}
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			const size, callers, rounds = 4, 8, 6
			p := mysql.NewDatabase(open(t, kind), "")
			p.MariaDB = kind == devdb.MariaDB
			p.SetMaxOpenConns(size)
			p.SetMaxIdleConns(size)
			db := testdb.MySQLOn(t, kind) // a stranger's, in another database
			var mine, of string
			if err := db.QueryRowContext(t.Context(), "SELECT DATABASE()").Scan(&of); err != nil {
				t.Fatal(err)
			}
			if err := p.QueryRowContext(t.Context(), "SELECT DATABASE()").Scan(&mine); err != nil {
				t.Fatal(err)
			}
			for _, statement := range []string{"CREATE TABLE held (id INT PRIMARY KEY, n INT)", "INSERT INTO held VALUES (1, 0), (2, 0)"} {
				if _, err := db.ExecContext(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
			}
			holder, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = holder.Rollback() }()
			if _, err := holder.ExecContext(t.Context(), "SELECT id FROM held WHERE id = 1 FOR UPDATE"); err != nil {
				t.Fatal(err)
			}
			lock := func(ctx context.Context, row int) error {
				return p.In(ctx, func(conn *sql.Conn) (bool, error) {
					_, err := mysql.Briefly(p.On(conn)).ExecContext(ctx, fmt.Sprintf("UPDATE %s.held SET n = n + 1 WHERE id = %d", of, row))
					return true, err
				})
			}
			most := 0
			for range rounds {
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				var all sync.WaitGroup
				for range callers {
					all.Go(func() {
						if err := lock(ctx, 1); err == nil {
							t.Error("a locked row was written")
						}
					})
				}
				all.Wait()
				cancel()
				sessions := 0
				if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+devdb.Processlist+" WHERE db = ?", mine).Scan(&sessions); err != nil {
					t.Fatal(err)
				}
				most = max(most, sessions)
			}
			if most > size {
				t.Errorf("the server had %d sessions, the pool is of %d", most, size)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := lock(ctx, 1); !mysql.IsLocked(err) {
				t.Errorf("a caller of more patience: %v", err)
			}
			for range 2 * size {
				if err := lock(ctx, 2); err != nil {
					t.Error(err)
				}
			}
			for range size {
				conn, err := p.Conn(ctx)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = conn.Close() }()
				rows, tables := 0, 0
				err = conn.QueryRowContext(ctx, "SELECT @@SESSION.innodb_lock_wait_timeout, @@SESSION.lock_wait_timeout").Scan(&rows, &tables)
				if err != nil || rows != 33 || tables != 44 {
					t.Errorf("a session of the host's waits for %d s, and for tables for %d s, %v", rows, tables, err)
				}
			}
		})
	}
}

// open returns a pool in a database of its own, whose sessions wait for 33 s, and for tables for 44
// s.
func open(t *testing.T, kind devdb.Kind) *sql.DB {
	t.Helper()
	dsn, mark := testdb.DSN(t, kind), "?"
	if strings.Contains(dsn, "?") {
		mark = "&"
	}
	db, err := sql.Open("mysql", dsn+mark+"innodb_lock_wait_timeout=33&lock_wait_timeout=44")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}
