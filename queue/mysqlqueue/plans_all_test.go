package mysqlqueue_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Statements that may read tables whole, which are small: a row for each job that is claimed now,
// for each process, or for each job that is to be cancelled.
var readsWhole = map[string][]string{
	"Claimants": {"c"}, "CountClaimed": {"c"}, "FindJob": {"c"}, "ListClaimed": {"c", "m"}, "OldCancels": {"c"},
}

// Statements that take the first ones of a key as they stand there.
var readsInOrder = []string{
	"ClaimJobs", "ClaimsOf", "DueJobs", "DueUnlocked", "DueGrouped", "PruneHistory", "OldestReady", "ListReady", "ListScheduled", "ListBlocked", "ListDead",
	"ListHistory", "OldDead",
}

var (
	named    = regexp.MustCompile(`(?m)^-- name: (\w+) :\w+$`)
	argument = regexp.MustCompile(`sqlc\.(arg|slice)\((\w+)\)|\?`)
)

// values are what stands for arguments that are no bytes.
var values = map[string]string{
	"?": "100", "day": "'2026-01-01'", "priority": "0", "attempt": "1", "records": "1", "max_attempts": "1", "most": "1", "taken": "1", "next_seq": "1", "seq": "1",
	"behind": "1", "beat": "1", "outcome": "1", "days_ago": "-1", "group_most": "1", "delay_us": "1", "retry": "0", "admitted": "1", "run_us": "1", "at_us": "1", "after_us": "1", "ready_us": "1", "since_us": "1", "ago_us": "-1",
}

// fillTheRest is what the other statements find.
func fillTheRest(t *testing.T, db *sql.DB) {
	t.Helper()
	const some = " FROM dblock_queue_ready r LIMIT 20000"
	for _, statement := range []string{
		"INSERT INTO dblock_queue_job (job_id, queue, kind, priority, max_attempts, payload) SELECT r.job_id, r.queue, 'k', 0, 1, ''",
		"INSERT INTO dblock_queue_scheduled (run_at, job_id, queue, priority) SELECT r.ready_at, r.job_id, r.queue, 0",
		"INSERT INTO dblock_queue_blocked (queue, group_key, seq, job_id, priority) SELECT r.queue, r.job_id, 1, r.job_id, 0",
		"INSERT INTO dblock_queue_key (queue, group_key, most, taken) SELECT r.queue, r.job_id, 1, 1",
		"INSERT INTO dblock_queue_unique (queue, unique_key, job_id) SELECT r.queue, r.job_id, r.job_id",
		"INSERT INTO dblock_queue_dead (job_id, queue, kind, priority, attempt, max_attempts, enqueued_at, last_error, payload) " +
			"SELECT r.job_id, r.queue, 'k', 0, 1, 1, r.ready_at, '', ''",
		"INSERT INTO dblock_queue_history (day, job_id, queue, kind, priority, attempt, outcome, enqueued_at) " +
			"SELECT '2026-01-01', r.job_id, r.queue, 'k', 0, 1, 1, r.ready_at",
	} {
		exec(t, db, statement+some)
	}
}

// planAll plans each statement on the queue's tables that there is: none reads one whole that
// grows.
func planAll(t *testing.T, db *sql.DB) {
	t.Helper()
	files, err := filepath.Glob("../../queries/mysql/queue_*.sql")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	seen := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		names := named.FindAllStringSubmatchIndex(string(text), -1)
		for i, at := range names {
			end := len(text)
			if i+1 < len(names) {
				end = names[i+1][0]
			}
			seen++
			name := string(text[at[2]:at[3]])
			query := arguments(string(text[at[1]:end]))
			if got := explain(t, db, "\n"+query); badPlan(name, query, got) {
				t.Errorf("%s:\n%s", name, got)
			}
		}
	}
	if seen < 60 {
		t.Errorf("only %d statements were found", seen)
	}
	for name, query := range map[string]string{ // the control
		"JobRow": "SELECT j.job_id FROM dblock_queue_job j WHERE j.kind = 'a'", "ListReady": "SELECT r.job_id FROM dblock_queue_ready r ORDER BY r.job_id",
	} {
		if got := explain(t, db, "\n"+query); !badPlan(name, query, got) {
			t.Errorf("nothing is wrong with\n%s", got)
		}
	}
}

// arguments puts values into a statement as sqlc reads it.
func arguments(query string) string {
	query = argument.ReplaceAllStringFunc(query, func(arg string) string {
		name := strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(arg, "sqlc.arg("), "sqlc.slice("), ")")
		switch {
		case values[name] != "":
			return values[name]
		case strings.HasPrefix(arg, "sqlc.slice"):
			return "X'61626364656667686162636465666768', X'61626364656667686162636465666769'"
		}
		return "X'61626364656667686162636465666768'"
	})
	return strings.TrimSpace(query[:strings.Index(query, ";")])
}

// badPlan reports whether a plan reads a table whole that it must not, or sorts what is in order.
// What begins with < is a table that the statement itself has made, and one without an alias of its
// own is where an INSERT goes.
func badPlan(name, query, plan string) bool {
	for line := range strings.Lines(plan) {
		of := strings.Fields(line)
		whole := slices.Contains(of, "ALL") && !strings.HasPrefix(of[0], "<") && !slices.Contains(readsWhole[name], of[0]) &&
			!(strings.HasPrefix(query, "INSERT") && strings.HasPrefix(of[0], "dblock_queue"))
		if whole || strings.Contains(line, "filesort") && slices.Contains(readsInOrder, name) && !strings.HasPrefix(line, "<") {
			return true
		}
	}
	return false
}
