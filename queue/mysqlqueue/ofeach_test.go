package mysqlqueue

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// TestPromoteOfEach: beside the backlog of one queue some jobs of each are promoted, whose time has
// come, first tries and retries.
func TestPromoteOfEach(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, db *sql.DB, d *database) {
		id := 0
		fill := func(queue, group string, rows, seconds int) {
			for n := range rows {
				id++
				query := fmt.Sprintf("INSERT INTO dblock_queue_scheduled (run_at, job_id, queue, priority, retry, group_key) "+
					"VALUES (UTC_TIMESTAMP(6) + INTERVAL %d SECOND, '%016d', '%s', 0, %v, %s)", seconds, id, queue, n%2 == 0, group)
				if _, err := db.ExecContext(t.Context(), query); err != nil {
					t.Fatal(err)
				}
			}
		}
		fill("a", "NULL", 100, -3600)
		fill("b", "NULL", 5, -1)
		fill("c", "NULL", 5, 3600)
		fill("d", "'group'", 5, -1)
		for _, most := range []int{100, 7} {
			n, err := maintenance{d}.Promote(t.Context(), &driver.PromoteRequest{OfEach: 10, Max: most})
			if err != nil {
				t.Fatal(err)
			}
			if want := min(most, 25); n != want {
				t.Errorf("promoted %d, want %d", n, want)
			}
			if most < 100 {
				continue
			}
			ready := map[string]int{}
			for _, queue := range []string{"a", "b", "c", "d"} {
				var n int
				if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM dblock_queue_ready WHERE queue = ?", queue).Scan(&n); err != nil {
					t.Fatal(err)
				}
				ready[queue] = n
			}
			if ready["a"] != 20 || ready["b"] != 5 || ready["c"]+ready["d"] != 0 {
				t.Errorf("ready are %v", ready)
			}
		}
	})
}

// onEach runs a test on each engine of the family.
func onEach(t *testing.T, test func(t *testing.T, db *sql.DB, d *database)) {
	t.Helper()
	for _, kind := range testdb.Engines() {
		if kind == devdb.Postgres {
			continue
		}
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			db := testdb.MigratedMySQL(t, kind)
			d, err := open(t.Context(), db, "")
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			test(t, db, d)
		})
	}
}
