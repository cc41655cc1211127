package pgqueue

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Statements that read a table whole, one that is small: a row for each batch that is claimed now,
// or for each job to be cancelled.
var readsWhole = map[string]string{
	"Claimants": "dblock_queue_claim", "CountClaimed": "dblock_queue_claim", "FindJob": "dblock_queue_claim", "ListClaimed": "dblock_queue_claim",
	"AdoptClaims": "dblock_queue_claim", "RecordedClaims": "dblock_queue_claim", "PruneCancels": "dblock_queue_cancel",
}

// Statements that take the first ones of an index as they stand there. ListHistory sorts those that
// it takes.
var readsInOrder = []string{
	"ClaimJobs", "PromoteJobs", "TakeDueGrouped", "PruneHistory", "OldestReady", "CountQueue", "ListReady", "ListScheduled", "ListBlocked", "ListDead",
	"PurgeDead",
}

// fillTheRest is what the other statements find.
func fillTheRest(analyzed bool) []string {
	fill := []string{
		`INSERT INTO dblock_queue_scheduled (run_at, job_id, queue, priority)
		 SELECT now() - n * interval '1 s', gen_random_uuid(), 'default', 0 FROM generate_series(1, 20000) n`,
		`INSERT INTO dblock_queue_dead (job_id, queue, kind, priority, attempt, max_attempts, enqueued_at, last_error, payload)
		 SELECT gen_random_uuid(), 'default', 'k', 0, 1, 1, now(), 'x', '' FROM generate_series(1, 20000) n`,
		`INSERT INTO dblock_queue_history (day, job_id, queue, kind, priority, attempt, outcome, enqueued_at)
		 SELECT current_date - n % 30, gen_random_uuid(), 'default', 'k', 0, 1, 1, now() FROM generate_series(1, 20000) n`,
	}
	if analyzed {
		fill = append(fill, "ANALYZE dblock_queue_scheduled", "ANALYZE dblock_queue_dead", "ANALYZE dblock_queue_history")
	}
	return fill
}

var (
	named    = regexp.MustCompile(`(?m)^-- name: (\w+) :\w+$`)
	argument = regexp.MustCompile(`sqlc\.arg\((\w+)\)`)
)

// planAll plans each statement on the queue's tables that there is: none reads one whole that
// grows, and none hashes one.
func planAll(t *testing.T, d *database) {
	t.Helper()
	files, err := filepath.Glob("../../queries/postgres/queue_*.sql")
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
			checkPlan(t, d, string(text[at[2]:at[3]]), string(text[at[1]:end]))
		}
	}
	if seen < 50 {
		t.Errorf("only %d statements were found", seen)
	}
	for name, query := range map[string]string{ // the control
		"JobRow": "SELECT j.job_id FROM dblock_queue_job j WHERE j.kind = $1", "ListReady": "SELECT r.job_id FROM dblock_queue_ready r ORDER BY r.job_id, $1::text",
	} {
		if got := plan(t, d, query, "NULL"); !badPlan(name, got) {
			t.Errorf("nothing is wrong with\n%s", got)
		}
	}
}

// checkPlan plans one statement as sqlc reads it.
func checkPlan(t *testing.T, d *database, name, query string) {
	t.Helper()
	var args []string
	query = argument.ReplaceAllStringFunc(query, func(arg string) string {
		if !slices.Contains(args, arg) {
			args = append(args, arg)
		}
		return fmt.Sprint("$", slices.Index(args, arg)+1)
	})
	query = strings.TrimSpace(query[:strings.Index(query, ";")])
	if got := plan(t, d, query, slices.Repeat([]string{"NULL"}, len(args))...); badPlan(name, got) {
		t.Errorf("%s:\n%s", name, got)
	}
}

// badPlan reports whether a plan reads a table whole that it must not, hashes or merges any, or
// sorts what is in order.
func badPlan(name, plan string) bool {
	for line := range strings.Lines(plan) {
		_, table, whole := strings.Cut(line, "Seq Scan on dblock_queue")
		whole = whole && (readsWhole[name] == "" || !strings.HasPrefix("dblock_queue"+table, readsWhole[name]))
		sorts := strings.Contains(line, "Sort") && slices.Contains(readsInOrder, name)
		if whole || sorts || strings.Contains(line, "Hash Join") || strings.Contains(line, "Merge Join") {
			return true
		}
	}
	return false
}
