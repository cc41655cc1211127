package mysqlqueue_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/testdb"
)

// TestEndsReadNoMore: a statement that ends jobs of a small table reads the rows of these jobs
// only. In a scan of the table it would wait for the row of a stranger's job, which another
// transaction has locked.
func TestEndsReadNoMore(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			db := testdb.MigratedMySQL(t, kind)
			const jobs = 12
			member := id16(0)
			for n := range jobs {
				exec(t, db, mysql.Interpolate("INSERT INTO dblock_queue_job (job_id, queue, kind, priority, max_attempts, payload) VALUES (?, 'q', 'k', 0, 1, '')", id16(n)))
				exec(t, db, mysql.Interpolate("INSERT INTO dblock_queue_claim (member_id, claim_id, job_id, queue, priority, ready_at) VALUES (?, ?, ?, 'q', 0, '2026-01-01')",
					member, member, id16(n)))
				exec(t, db, mysql.Interpolate("INSERT INTO dblock_queue_cancel (member_id, job_id) VALUES (?, ?)", member, id16(n)))
				exec(t, db, mysql.Interpolate("INSERT INTO dblock_queue_dead (job_id, queue, kind, priority, attempt, max_attempts, enqueued_at, last_error, payload) "+
					"VALUES (?, 'q', 'k', 0, 1, 1, '2026-01-01', '', '')", id16(n)))
			}
			stranger := begin(t, db)
			for _, where := range []string{"job WHERE", "dead WHERE", "claim WHERE member_id = '0000000000000000' AND claim_id = '0000000000000000' AND",
				"cancel WHERE member_id = '0000000000000000' AND"} {
				if _, err := stranger.ExecContext(t.Context(), mysql.Interpolate("SELECT 1 FROM dblock_queue_"+where+" job_id = ? FOR UPDATE", id16(jobs-1))); err != nil {
					t.Fatal(err)
				}
			}
			ours := begin(t, db)
			if _, err := ours.ExecContext(t.Context(), "SET SESSION innodb_lock_wait_timeout = 1"); err != nil {
				t.Fatal(err)
			}
			d := mysql.Inline{Conn: ours}
			var all [][]byte
			for n := range jobs - 1 {
				all = append(all, id16(n))
			}
			var keys []any
			for _, job := range all {
				keys = append(keys, job)
			}
			for name, of := range map[string]struct {
				text string
				more []any
			}{
				"BeginJobs": {mysqldb.BeginJobs, nil}, "LockClaimed": {mysqldb.LockClaimed, []any{member, member}}, "EndClaimed": {mysqldb.EndClaimed, []any{member, member}},
				"AdoptClaimed": {mysqldb.AdoptClaimed, []any{id16(1), member, member}}, "AdoptCancels": {mysqldb.AdoptCancels, []any{id16(1), member}},
				"FinishJobs": {mysqldb.FinishJobs, nil}, "PurgeDead": {mysqldb.PurgeDead, nil},
			} {
				args := slices.Clone(keys)
				if name == "BeginJobs" { // each names its claim
					args = nil
					for _, job := range all {
						args = append(args, member, member, job)
					}
				}
				if _, err := d.ExecContext(t.Context(), of.text, append(args, of.more...)...); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
}

// TestBeginningsKeepTheirClaims: while a statement records that jobs begin, their claims are
// locked, and a rescue passes over them.
func TestBeginningsKeepTheirClaims(t *testing.T) {
	t.Parallel()
	for _, kind := range family() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			db := testdb.MigratedMySQL(t, kind)
			member := id16(0)
			for n := range 3 {
				exec(t, db, mysql.Interpolate("INSERT INTO dblock_queue_job (job_id, queue, kind, priority, max_attempts, payload) VALUES (?, 'q', 'k', 0, 1, '')", id16(n)))
				exec(t, db, mysql.Interpolate("INSERT INTO dblock_queue_claim (member_id, claim_id, job_id, queue, priority, ready_at) VALUES (?, ?, ?, 'q', 0, '2026-01-01')",
					member, member, id16(n)))
			}
			ours := mysql.Inline{Conn: begin(t, db)}
			if _, err := ours.ExecContext(t.Context(), mysqldb.BeginJobs, member, member, id16(0), member, member, id16(1)); err != nil {
				t.Fatal(err)
			}
			var free int
			if err := begin(t, db).QueryRowContext(t.Context(), "SELECT COUNT(*) FROM (SELECT job_id FROM dblock_queue_claim FOR UPDATE SKIP LOCKED) AS f").Scan(&free); err != nil {
				t.Fatal(err)
			}
			if free != 1 {
				t.Errorf("%d claims are free, want 1", free)
			}
		})
	}
}

func id16(n int) []byte { return []byte(fmt.Sprintf("%016d", n)) }
