package mysqloptimistic_test

import (
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/optimistic"
	"github.com/dblock-go/dblock/optimistic/mysqloptimistic"
)

// TestUpdateManyFitsThePacket writes rows that are longer together than the server takes in one
// statement. A row that no statement can carry fails its own call alone.
func TestUpdateManyFitsThePacket(t *testing.T) {
	t.Parallel()
	for _, kind := range testdb.Engines() {
		if kind == devdb.Postgres {
			continue
		}
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			server := testdb.Own(t, kind, "--max-allowed-packet=1M")
			if server == nil {
				return
			}
			dsn, _, err := server.CreateDatabase(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			mark := "?"
			if strings.Contains(dsn, mark) {
				mark = "&"
			}
			for name, dsn := range map[string]string{"prepared": dsn, "interpolated": dsn + mark + "interpolateParams=true"} {
				t.Run(name, func(t *testing.T) { updatesLongRows(t, dsn) })
			}
		})
	}
}

func updatesLongRows(t *testing.T, dsn string) {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	exec := func(statement string, args ...any) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), statement, args...); err != nil {
			t.Fatal(err)
		}
	}
	const rows, long = 100, 40 << 10
	exec("DROP TABLE IF EXISTS note")
	exec("CREATE TABLE note (id BIGINT PRIMARY KEY, text MEDIUMTEXT, version BIGINT NOT NULL DEFAULT 1)")
	table, err := mysqloptimistic.NewTable("note", "id", optimistic.Int("version"))
	if err != nil {
		t.Fatal(err)
	}
	changes := make([]optimistic.Change[int64], rows)
	for i := range changes {
		exec("INSERT INTO note (id) VALUES (?)", i)
		changes[i] = optimistic.Change[int64]{Key: i, Expected: 1, Set: optimistic.Set{"text": strings.Repeat("'", long)}}
	}
	written := func(want int) {
		t.Helper()
		var n int
		if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM note WHERE LENGTH(text) = ? AND version = 2", long).Scan(&n); err != nil || n != want {
			t.Errorf("%d rows are written, want %d: %v", n, want, err)
		}
	}
	changes[50].Expected = 7
	if _, err := table.UpdateMany(t.Context(), db, changes, optimistic.UpdateAllOrNothing); !errors.Is(err, optimistic.ErrStale) {
		t.Errorf("all or nothing, with one that has changed: %v", err)
	}
	written(0)
	changes[50].Expected = 1
	if _, err := table.UpdateMany(t.Context(), db, changes[:rows-1], optimistic.UpdateAllOrNothing); err != nil {
		t.Errorf("all or nothing: %v", err)
	}
	written(rows - 1)

	exec("UPDATE note SET text = NULL, version = 1")
	changes[rows-1].Set = optimistic.Set{"text": strings.Repeat("x", 2<<20)}
	var all sync.WaitGroup
	for from := 0; from < rows; from += 10 {
		all.Go(func() {
			_, err := table.UpdateMany(t.Context(), db, changes[from:from+10], optimistic.UpdateEachRow)
			if big := from+10 == rows; errors.Is(err, dblock.ErrInvalid) != big || !big && err != nil {
				t.Errorf("rows from %d: %v", from, err)
			}
		})
	}
	all.Wait()
	written(rows - 10)

	last := changes[rows-1]
	if _, err := table.Update(t.Context(), db, last.Key, last.Expected, last.Set); !errors.Is(err, dblock.ErrInvalid) {
		t.Errorf("a row that no statement can carry: %v", err)
	}
}
