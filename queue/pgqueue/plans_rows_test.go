package pgqueue

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/testdb"
)

// TestPlansReadNoMore bounds the rows that each statement of a batch reads, index scans included,
// to a small multiple of the batch. The other rows of the tables are forty times as many. With
// stale statistics the plans are made while all tables are empty and vacuumed.
func TestPlansReadNoMore(t *testing.T) {
	t.Parallel()
	for _, stale := range []bool{false, true} {
		t.Run(fmt.Sprintf("stale=%v", stale), func(t *testing.T) {
			t.Parallel()
			host := testdb.MigratedPostgres(t)
			d, err := open(t.Context(), host, "")
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			conn, err := d.pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Release()
			statements := d.statementsOfBatches()
			prepareAll := func() {
				for _, table := range batchTables {
					simple(t, conn, "VACUUM ANALYZE dblock_queue_"+table)
				}
				for name, s := range statements {
					simple(t, conn, "PREPARE "+name+" AS "+s.text)
					simple(t, conn, "EXPLAIN EXECUTE "+name+"("+s.args+")")
				}
			}
			for _, table := range batchTables {
				simple(t, conn, "ALTER TABLE dblock_queue_"+table+" SET (autovacuum_enabled = off)")
			}
			if stale {
				prepareAll()
			}
			fillBatch(t, host) // by another session, so that this one keeps its plans
			if !stale {
				prepareAll()
			}
			for name, s := range statements {
				simple(t, conn, "begin; set local statement_timeout = '5s'")
				results, err := conn.Conn().PgConn().Exec(t.Context(),
					"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, FORMAT JSON) EXECUTE "+name+"("+s.args+")").ReadAll()
				simple(t, conn, "rollback")
				if err != nil {
					t.Errorf("%s: %v\n%s", name, err, simple(t, conn, "EXPLAIN (COSTS OFF) EXECUTE "+name+"("+s.args+")"))
					continue
				}
				if got := rowsRead(t, results[0].Rows[0][0]); got > mostRowsRead*batchOf || got < batchOf/10 && !s.few {
					t.Errorf("%s reads %d rows for a batch of %d", name, got, batchOf)
				}
			}
			control := d.control()
			simple(t, conn, "PREPARE control AS "+control)
			plan := simple(t, conn, "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, FORMAT JSON) EXECUTE control("+batchIDs(jobPrefix)+")")
			if got := rowsRead(t, []byte(plan)); got <= mostRowsRead*batchOf {
				t.Errorf("the control reads only %d rows:\n%s", got, plan)
			}
		})
	}
}

const (
	batchOf      = 250 // jobs in a statement
	mostRowsRead = 25  // for each of them
	batchClaims  = 10  // of which they are

	jobPrefix, deadPrefix, newPrefix, claimPrefix = "10000000", "20000000", "30000000", "40000000"

	batchMember = "'50000000-0000-7000-8000-000000000000'"
	heir        = "'60000000-0000-7000-8000-000000000000'"
)

var batchTables = []string{"job", "ready", "scheduled", "claim", "cancel", "key", "blocked", "unique", "dead", "history"}

// batchStatement is a statement of workers or producers, and its arguments as text.
type batchStatement struct {
	text, args string
	few        bool // it reads a row a claim, or fewer
}

// statementsOfBatches are those that carry many jobs.
func (d *database) statementsOfBatches() map[string]batchStatement {
	jobs, dead, made := batchIDs(jobPrefix), batchIDs(deadPrefix), batchIDs(newPrefix)
	of := array(func(i int) string { return batchID(claimPrefix, i%batchClaims) })
	var all []string
	for i := range batchClaims {
		all = append(all, batchID(claimPrefix, i))
	}
	claims := "'{" + strings.Join(all, ",") + "}'"
	each := func(s string) string { return array(func(int) string { return s }) }
	groups := array(func(i int) string { return fmt.Sprintf("g%d", i/2) })
	taken, free := array(func(i int) string { return fmt.Sprintf("u%d", i) }), array(func(i int) string { return fmt.Sprintf("new%d", i) })
	args := func(a ...string) string { return strings.Join(a, ", ") }
	return map[string]batchStatement{
		"EnqueueJobs":      {text: pgdb.EnqueueJobs, args: args("''", "'50'", made, each("default"), each("k"), each("0"), each("1"), each("0"), each("x"))},
		"EnqueueReadyJobs": {text: pgdb.EnqueueReadyJobs, args: args("''", "'50'", made, each("default"), each("k"), each("0"), each("1"), each("x"))},
		"EnqueueKeyed":     {text: pgdb.EnqueueKeyed, args: args(made, each("default"), each("k"), each("0"), each("1"), each("0"), each("x"), free, groups, each("1"), "''")},
		"EnqueueRefused":   {text: pgdb.EnqueueKeyed, args: args(made, each("default"), each("k"), each("0"), each("1"), each("0"), each("x"), taken, groups, each("1"), "''")},
		"KeyHolders":       {text: pgdb.KeyHolders, args: args(each("default"), taken)},
		"OpenGroups":       {text: pgdb.OpenGroups, args: args(each("default"), array(func(i int) string { return fmt.Sprintf("g%d", i) }), each("1"), each("false"), "false")},
		"AssignJobs":       {text: pgdb.AssignJobs, args: args(jobs, each("default"), groups, each("0"))},
		"ClaimJobs": {text: d.SQL(pgdb.ClaimJobs), args: args("2000", "'{0}'", "'{-infinity}'", "'{32767}'", "'default'", jobs, heir, "1", fmt.Sprint(batchOf),
			"'"+batchID(newPrefix, 0)+"'")},
		"FinishJobs":     {text: d.SQL(pgdb.FinishJobs), args: args(claims, batchMember, jobs, of)},
		"RescheduleJobs": {text: d.SQL(pgdb.RescheduleJobs), args: args(claims, batchMember, jobs, of, each("1"), each("x"), each("1"), each("now"), each("true"))},
		"DiscardJobs":    {text: d.SQL(pgdb.DiscardJobs), args: args(claims, batchMember, jobs, of, each("1"), each("x"))},
		"FreeUnique":     {text: d.SQL(pgdb.FreeUnique), args: args(claims, batchMember, jobs, of)},
		"LockGroups":     {text: d.SQL(pgdb.LockGroups), args: jobs},
		"FreeGroupSlots": {text: d.SQL(pgdb.FreeGroupSlots), args: args(claims, batchMember, jobs, of)},
		"AdmitJobs":      {text: d.SQL(pgdb.AdmitJobs), args: args(claims, batchMember, jobs, of)},
		"OrphanJobs":     {text: pgdb.OrphanJobs, args: args(jobs, of)},
		"CountJobs":      {text: pgdb.CountJobs, args: jobs},
		"ReadPayloads":   {text: pgdb.ReadPayloads, args: jobs},
		"KeepFinished":   {text: d.SQL(pgdb.KeepFinished), args: args(jobs, of, each("1"), each("1"), each("x"), claims, batchMember)},
		"KeepDead":       {text: d.SQL(pgdb.KeepDead), args: dead},
		"RetryJob":       {text: pgdb.RetryJob, args: dead},
		"PromoteJobs":    {text: pgdb.PromoteJobs, args: args("1e15", fmt.Sprint(batchOf))},
		"PromoteThese":   {text: pgdb.PromoteThese, args: args(each("2000-01-01"), jobs)},
		"PromoteUrgent":  {text: pgdb.PromoteUrgent, args: fmt.Sprint(batchOf)},
		"PromoteOfEach":  {text: pgdb.PromoteOfEach, args: args(fmt.Sprint(batchOf), fmt.Sprint(batchOf))},
		"TakeDueGrouped": {text: pgdb.TakeDueGrouped, args: args("'-infinity'", batchMember, each("default"), array(func(i int) string { return fmt.Sprintf("g%d", i) }), fmt.Sprint(batchOf))},
		"PurgeDead":      {text: pgdb.PurgeDead, args: args("'default'", "0", fmt.Sprint(batchOf))},
		"PruneHistory":   {text: pgdb.PruneHistory, args: args("0", fmt.Sprint(batchOf))},
		"BeginJobs":      {text: pgdb.BeginJobs, args: args(claims, batchMember, jobs, of)},
		"LockClaims":     {text: d.SQL(pgdb.LockClaims), args: args(claims, batchMember), few: true},
		"LockJobs":       {text: d.SQL(pgdb.LockJobs), args: args(jobs, of, claims, batchMember)},
		"CloseClaims":    {text: d.SQL(pgdb.CloseClaims), args: args(claims, batchMember, "0"), few: true},
		"CancelsHeld":    {text: d.SQL(pgdb.CancelsHeld), args: args(jobs, of, batchMember, claims)},
		"DropCancels":    {text: pgdb.DropCancels, args: args(batchMember, jobs)},
		"AdoptClaims":    {text: pgdb.AdoptClaims, args: args(heir, batchMember, "true", heir, fmt.Sprint(batchClaims))},
		"AdoptCancels":   {text: pgdb.AdoptCancels, args: args(heir, batchMember, jobs)},
		"DueGroups":      {text: pgdb.DueGroups, args: args("'-infinity'", batchMember, fmt.Sprint(batchOf))},
		"LivingMembers":  {text: pgdb.LivingMembers, args: jobs, few: true},
		"JobsOf":         {text: pgdb.JobsOf, args: jobs},
	}
}

// control joins the jobs of a batch with each other, without a key.
func (d *database) control() string {
	return "WITH a AS MATERIALIZED (SELECT pg_catalog.unnest($1::uuid[]) AS id), b AS MATERIALIZED (SELECT a.id FROM a) SELECT count(*) FROM a JOIN b ON a.id = b.id"
}

// fillBatch fills the tables: the rows of a batch, and many others.
func fillBatch(t *testing.T, host *pgxpool.Pool) {
	t.Helper()
	id := func(prefix, n string) string {
		return "('" + prefix + "-0000-7000-8000-' || lpad((" + n + ")::text, 12, '0'))::uuid"
	}
	const others = "generate_series(1, 10000) n"
	batch := fmt.Sprintf("generate_series(0, %d) n", batchOf-1)
	for _, statement := range []string{
		"INSERT INTO dblock_member (member_id, label, beat, expires_at) VALUES (" + heir + ", '', 1, now() + interval '1 hour')",
		`INSERT INTO dblock_queue_job (job_id, queue, kind, priority, max_attempts, payload)
		 SELECT gen_random_uuid(), 'default', 'k', 0, 1, '' FROM ` + others,
		`INSERT INTO dblock_queue_key (queue, group_key, most, taken) SELECT 'default', n::text, 1, 1 FROM ` + others,
		`INSERT INTO dblock_queue_unique (queue, unique_key, job_id) SELECT 'default', n::text, gen_random_uuid() FROM ` + others,
		`INSERT INTO dblock_queue_blocked (queue, group_key, seq, job_id, priority) SELECT 'default', n::text, 1, gen_random_uuid(), 0 FROM ` + others,
		`INSERT INTO dblock_queue_ready (queue, priority, job_id) SELECT 'default', 0, gen_random_uuid() FROM ` + others,
		`INSERT INTO dblock_queue_scheduled (run_at, job_id, queue, priority) SELECT now() + interval '1 day', gen_random_uuid(), 'default', 0 FROM ` + others,
		`INSERT INTO dblock_queue_dead (job_id, queue, kind, priority, attempt, max_attempts, enqueued_at, last_error, payload)
		 SELECT gen_random_uuid(), 'default', 'k', 0, 1, 1, now(), 'x', '' FROM ` + others,
		`INSERT INTO dblock_queue_claim (claim_id, member_id, queue, job_ids)
		 SELECT gen_random_uuid(), gen_random_uuid(), 'default', ARRAY[gen_random_uuid(), gen_random_uuid()] FROM generate_series(1, 1000) n`,
		`INSERT INTO dblock_queue_cancel (member_id, job_id) SELECT gen_random_uuid(), gen_random_uuid() FROM ` + others,
		`INSERT INTO dblock_queue_history (day, job_id, queue, kind, priority, attempt, outcome, enqueued_at)
		 SELECT current_date - n % 30, gen_random_uuid(), 'default', 'k', 0, 1, 1, now() FROM ` + others,

		`INSERT INTO dblock_queue_job (job_id, queue, kind, priority, max_attempts, unique_key, group_key, group_most, payload)
		 SELECT ` + id(jobPrefix, "n") + `, 'default', 'k', 0, 1 + n % 2, 'u' || n, 'g' || n / 2, 1, '' FROM ` + batch,
		`INSERT INTO dblock_queue_unique (queue, unique_key, job_id) SELECT 'default', 'u' || n, ` + id(jobPrefix, "n") + ` FROM ` + batch,
		`INSERT INTO dblock_queue_key (queue, group_key, most, taken) SELECT DISTINCT 'default', 'g' || n / 2, 3, 2 FROM ` + batch,
		`INSERT INTO dblock_queue_blocked (queue, group_key, seq, job_id, priority)
		 SELECT 'default', 'g0', -1000 - n, gen_random_uuid(), 0 FROM ` + others,
		`INSERT INTO dblock_queue_blocked (queue, group_key, seq, job_id, priority) SELECT 'default', 'g' || n / 2, -n, gen_random_uuid(), 0 FROM ` + batch,
		fmt.Sprintf(`INSERT INTO dblock_queue_claim (claim_id, member_id, queue, job_ids)
		 SELECT %s, %s, 'default', array_agg(%s) FROM %s GROUP BY n %% %d`, id(claimPrefix, fmt.Sprintf("n %% %d", batchClaims)), batchMember,
			id(jobPrefix, "n"), batch, batchClaims),
		`INSERT INTO dblock_queue_cancel (member_id, job_id) SELECT ` + batchMember + `, ` + id(jobPrefix, "n") + ` FROM ` + batch,
		`INSERT INTO dblock_queue_dead (job_id, queue, kind, priority, attempt, max_attempts, enqueued_at, unique_key, last_error, payload)
		 SELECT ` + id(deadPrefix, "n") + `, 'default', 'k', 0, 1, 1, now(), 'dead' || n, 'x', '' FROM ` + batch,
		`INSERT INTO dblock_queue_scheduled (run_at, job_id, queue, priority, group_key)
		 SELECT '2000-01-01', ` + id(jobPrefix, "n") + `, 'default', 0, CASE WHEN n % 2 = 0 THEN 'g' || n / 2 END FROM ` + batch,
	} {
		if _, err := host.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%v in %s", err, statement)
		}
	}
}

func batchID(prefix string, n int) string { return fmt.Sprintf("%s-0000-7000-8000-%012d", prefix, n) }

func batchIDs(prefix string) string { return array(func(i int) string { return batchID(prefix, i) }) }

func array(of func(i int) string) string {
	all := make([]string, batchOf)
	for i := range all {
		all[i] = of(i)
	}
	return "'{" + strings.Join(all, ",") + "}'"
}

// planNode is what EXPLAIN says of a step.
type planNode struct {
	Type     string     `json:"Node Type"`
	Rows     float64    `json:"Actual Rows"`
	Loops    float64    `json:"Actual Loops"`
	Filtered float64    `json:"Rows Removed by Filter"`
	Joined   float64    `json:"Rows Removed by Join Filter"`
	Again    float64    `json:"Rows Removed by Index Recheck"`
	Plans    []planNode `json:"Plans"`
}

// rowsRead is how many rows the scans of a plan have read, and how many pairs its joins have
// compared without a match.
func rowsRead(t *testing.T, plan []byte) int {
	t.Helper()
	var all []struct{ Plan planNode }
	if err := json.Unmarshal(plan, &all); err != nil {
		t.Fatal(err)
	}
	var sum func(n planNode) float64
	sum = func(n planNode) (rows float64) {
		rows = n.Joined * n.Loops
		if strings.Contains(n.Type, "Scan") {
			rows += (n.Rows + n.Filtered + n.Again) * n.Loops
		}
		for _, p := range n.Plans {
			rows += sum(p)
		}
		return rows
	}
	total := 0.0
	for _, p := range all {
		total += sum(p.Plan)
	}
	return int(total)
}

// TestBatchesAreListed: each statement of package queue that takes many jobs is one of those whose
// rows are bounded.
func TestBatchesAreListed(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../queries/postgres/queue_*.sql")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	d := database{Schema: postgres.NewSchema("")}
	listed, seen := d.statementsOfBatches(), 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, statement := range strings.Split(string(text), "-- name: ")[1:] {
			name, _, _ := strings.Cut(statement, " ")
			if !strings.Contains(statement, "::uuid[]") {
				continue
			}
			seen++
			if _, has := listed[name]; !has {
				t.Errorf("%s is not listed", name)
			}
		}
	}
	if seen < 20 {
		t.Errorf("only %d statements take many jobs", seen)
	}
}
