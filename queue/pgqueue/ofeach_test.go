package pgqueue

import (
	"testing"

	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// TestPromoteOfEach: beside the backlog of one queue some jobs of each are promoted, whose time has
// come, first tries and retries.
func TestPromoteOfEach(t *testing.T) {
	t.Parallel()
	host := testdb.MigratedPostgres(t)
	d, err := open(t.Context(), host, "")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	const insert = "INSERT INTO dblock_queue_scheduled (run_at, job_id, queue, priority, retry, group_key) " +
		"SELECT now() + $2 * interval '1 second', gen_random_uuid(), $1, 0, n % 2 = 0, $4::text FROM generate_series(1, $3::integer) n"
	for _, rows := range [][]any{{"a", -3600, 1000, nil}, {"b", -1, 5, nil}, {"c", 3600, 5, nil}, {"d", -1, 5, "group"}} {
		if _, err := host.Exec(t.Context(), insert, rows...); err != nil {
			t.Fatal(err)
		}
	}
	for _, most := range []int{100, 7} {
		n, err := maintenance{d}.Promote(t.Context(), &driver.PromoteRequest{OfEach: 10, Max: most})
		if err != nil {
			t.Fatal(err)
		}
		if want := min(most, 25); n != want {
			t.Errorf("promoted %d, want %d", n, want)
		}
		if most == 100 {
			ready := map[string]int{}
			for _, queue := range []string{"a", "b", "c", "d"} {
				var n int
				if err := host.QueryRow(t.Context(), "SELECT count(*) FROM dblock_queue_ready WHERE queue = $1", queue).Scan(&n); err != nil {
					t.Fatal(err)
				}
				ready[queue] = n
			}
			if ready["a"] != 20 || ready["b"] != 5 || ready["c"]+ready["d"] != 0 {
				t.Errorf("ready are %v", ready)
			}
		}
	}
}
