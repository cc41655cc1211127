package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/mysqllock"
	"github.com/dblock-go/dblock/pglock"
)

// openSession makes session locks as another process would.
func openSession(t *testing.T, database string) (l dblock.Locker, db *sql.DB) {
	t.Helper()
	f := databaseFlags{Database: strings.TrimPrefix(database, "--database=")}
	db, err := f.open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	l, closePool, err := connect(t.Context(), f,
		func(pool *pgxpool.Pool) (dblock.Locker, error) {
			return pglock.NewSessionLocker(t.Context(), pool, pglock.SessionOptions{Namespace: "shop", Label: "the till"})
		},
		func(db *sql.DB) (dblock.Locker, error) {
			return mysqllock.NewSessionLocker(t.Context(), db, mysqllock.SessionOptions{Namespace: "shop"})
		})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closePool() })
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	return l, db
}

func TestSessionLocks(t *testing.T) {
	each(t, func(t *testing.T, kind devdb.Kind, database string) {
		invoke(t, "", "locks", "--session", database).wantFailure(t, 1, "migrate up")
		invoke(t, "", "migrate", "up", database).want(t, 0, "")
		l, db := openSession(t, database)
		lock, err := l.Acquire(t.Context(), "by \x1b[31mhand")
		if err != nil {
			t.Fatal(err)
		}
		for noted := 0; noted == 0; time.Sleep(20 * time.Millisecond) {
			if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM dblock_session_key").Scan(&noted); err != nil {
				t.Fatal(err)
			}
		}
		shown := invoke(t, "", "locks", "--session", database)
		shown.want(t, 0, "shop")
		if strings.Contains(shown.out, "\x1b") || !strings.Contains(shown.out, `by \x1b[31mhand`) {
			t.Errorf("shown as %q", shown.out)
		}
		var list []shownSessionLock
		if err := json.Unmarshal([]byte(invoke(t, "", "locks", "--session", "--json", database).out), &list); err != nil {
			t.Fatal(err)
		}
		i := 0
		for i < len(list) && list[i].Key == "" { // of other tests on the same server
			i++
		}
		if i == len(list) || list[i].Namespace != "shop" || list[i].Mode != "exclusive" || list[i].State != "held" || list[i].Session == "0" ||
			kind == devdb.Postgres && list[i].Label != "the till" {
			t.Errorf("%+v", list)
		}
		if err := lock.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if shown := invoke(t, "", "locks", "--session", database); strings.Contains(shown.out, "shop") {
			t.Errorf("released, and shown as %q", shown.out)
		}
	})
}

// TestSessionLocksOfOthers shows what other programs hold by what the server calls it, where the
// server shows it.
func TestSessionLocksOfOthers(t *testing.T) {
	each(t, func(t *testing.T, kind devdb.Kind, database string) {
		invoke(t, "", "migrate", "up", database).want(t, 0, "")
		_, db := openSession(t, database)
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		take, want := "SELECT pg_advisory_lock(424242)", "424242"
		if kind != devdb.Postgres {
			want = "others-" + strings.ToLower(string(kind))
			take = "SELECT GET_LOCK('" + want + "', 0)"
		}
		if _, err := conn.ExecContext(t.Context(), take); err != nil {
			t.Fatal(err)
		}
		shown := invoke(t, "", "locks", "--session", database)
		if shows := strings.Contains(shown.out, want); shows != (kind != devdb.MariaDB) {
			t.Errorf("%s: shown as %q", kind, shown.out)
		}
	})
}
