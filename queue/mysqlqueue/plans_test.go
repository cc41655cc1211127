package mysqlqueue_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/testdb"
)

// TestPlans: with a hundred thousand jobs a claim takes the first ones of the key, without a sort,
// and locks no others: a second claimer gets the next.
func TestPlans(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			db := testdb.MigratedMySQL(t, kind)
			digits := "(SELECT 0 AS d" + strings.Repeat(" UNION ALL SELECT 1", 9) + ")"
			exec(t, db, "INSERT INTO dblock_queue_ready (queue, priority, job_id) SELECT 'default', 0, UNHEX(REPLACE(UUID(), '-', '')) FROM "+
				digits+" a CROSS JOIN "+digits+" b CROSS JOIN "+digits+" c CROSS JOIN "+digits+" d CROSS JOIN "+digits+" e")
			member := []byte("0123456789abcdef")
			exec(t, db, mysql.Interpolate("INSERT INTO dblock_member (member_id, label, expires_at) VALUES (?, '', '2999-01-01')", member))
			claim := func(id string) string {
				return mysql.Interpolate(mysqldb.ClaimJobs, member, []byte(id), []byte("default"), int16(0), int16(0), int16(0), int64(1),
					make([]byte, 16), member, int64(0), []byte("default"), int32(100))
			}
			if plan := explain(t, db, claim("1")); !strings.Contains(plan, "r PRIMARY") || strings.Contains(plan, "filesort") {
				t.Errorf("the claim is run so:\n%s", plan)
			}
			first, second := begin(t, db), begin(t, db)
			for i, tx := range []*sql.Tx{first, second} {
				result, err := tx.ExecContext(t.Context(), claim(fmt.Sprintf("000000000000000%d", i)))
				if err != nil {
					t.Fatal(err)
				}
				if n, err := result.RowsAffected(); err != nil || n != 100 {
					t.Errorf("claimer %d got %d, %v", i, n, err)
				}
			}
			for _, tx := range []*sql.Tx{first, second} {
				if err := tx.Commit(); err != nil {
					t.Error(err)
				}
			}
			if plan := explain(t, db, mysql.Interpolate(mysqldb.TakeReady, member, []byte("0000000000000000"))); !strings.Contains(plan, "c PRIMARY") ||
				!strings.Contains(plan, "r PRIMARY") || strings.Contains(plan, "ALL") {
				t.Errorf("what was claimed is taken so:\n%s", plan)
			}
			planAll(t, db) // with tables that are empty, but for those that are ready
			fillTheRest(t, db)
			planAll(t, db)
			word, one := []byte("a"), int64(1)
			two := func(query string, ask ...any) string {
				return mysql.Interpolate(query, append(ask, ask...)...)
			}
			for _, of := range []struct{ alias, statement string }{
				{"b", two(mysqldb.BlockedHeads, word, word, one)}, {"x", two(mysqldb.BlockedHeads, word, word, one)},
				{"k", two(mysqldb.LockGroups, word, word)}, {"u", two(mysqldb.LockedHolders, word, word)},
				{"u", two(mysqldb.FreeUnique, word, word, member)}, {"b", two(mysqldb.Unblock, word, word, one)},
				{"k", two(mysqldb.CountGroups, word, word, one, one, one)}, {"k", two(mysqldb.EndGroups, word, word)},
			} {
				if plan := explain(t, db, of.statement); !strings.Contains(plan, of.alias+" PRIMARY") {
					t.Errorf("%s\nis run so:\n%s", of.statement, plan)
				}
			}
			readsFirstOnly(t, db)
		})
	}
}

// readsFirstOnly has many jobs wait in two groups, and counts the rows that the server reads for
// the next ones. The control reads all rows of a group.
func readsFirstOnly(t *testing.T, db *sql.DB) {
	t.Helper()
	const waiting, next, bound = 10_000, 10, 200
	for _, group := range []string{"g", "h"} {
		exec(t, db, fmt.Sprintf("INSERT INTO dblock_queue_blocked (queue, group_key, seq, job_id, priority) "+
			"SELECT 'default', '%s', ROW_NUMBER() OVER (), j.job_id, 0 FROM dblock_queue_job j LIMIT %d", group, waiting))
	}
	var ask []any
	for behind := range int64(next) {
		ask = append(ask, []byte("default"), []byte("g"), behind, []byte("default"), []byte("h"), behind)
	}
	heads := mysql.Interpolate(mysqldb.BlockedHeads, ask...)
	if rows, read := rowsRead(t, db, heads); rows != 2*next || read > bound {
		t.Errorf("the next %d jobs: %d rows, for which %d are read", 2*next, rows, read)
	}
	locked := mysql.Interpolate(mysqldb.LockBlocked, []byte("default"), []byte("g"), int64(next))
	if rows, read := rowsRead(t, db, locked); rows != next || read > bound {
		t.Errorf("the next %d jobs of a group: %d rows, for which %d are read", next, rows, read)
	}
	all := "SELECT MAX(b.job_id) FROM dblock_queue_blocked b WHERE b.queue = 'default' AND b.group_key = 'g'"
	if _, read := rowsRead(t, db, all); read < waiting {
		t.Errorf("the control reads only %d rows", read)
	}
}

// rowsRead runs a query. It returns how many rows the result has, and how many the server has read
// for it.
func rowsRead(t *testing.T, db *sql.DB, query string) (rows, read int) {
	t.Helper()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	scan := func(query string, each func(*sql.Rows) error) {
		t.Helper()
		found, err := conn.QueryContext(t.Context(), query)
		if err != nil {
			t.Fatalf("%v in %s", err, query)
		}
		defer func() { _ = found.Close() }()
		for found.Next() {
			if err := each(found); err != nil {
				t.Fatal(err)
			}
		}
		if err := found.Err(); err != nil {
			t.Fatal(err)
		}
	}
	handlers := func() (sum int) {
		scan("SHOW SESSION STATUS LIKE 'Handler_read%'", func(found *sql.Rows) error {
			var name string
			var n int
			err := found.Scan(&name, &n)
			sum += n
			return err
		})
		return sum
	}
	overhead := handlers()
	overhead = handlers() - overhead // on MySQL, SHOW STATUS reads rows of its own
	before := handlers()
	scan(query, func(*sql.Rows) error { rows++; return nil })
	return rows, handlers() - before - overhead
}

func exec(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

func begin(t *testing.T, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(context.Background(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// explain is the plan of a statement: of each table its alias, its key, its access and what else
// there is to say.
func explain(t *testing.T, db *sql.DB, statement string) string {
	t.Helper()
	query := "EXPLAIN FORMAT=TRADITIONAL " + statement[strings.Index(statement, "\n")+1:]
	rows, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatalf("%v in %s", err, query)
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for rows.Next() {
		values, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		of := make(map[string]string)
		for i, c := range columns {
			of[strings.ToLower(c)] = values[i].String
		}
		lines = append(lines, strings.Join([]string{of["table"], of["key"], of["type"], of["extra"]}, " "))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}
