package programs

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock/queue"
)

// TestQueue runs random programs of jobs.
func TestQueue(t *testing.T) {
	eachEngine(t, func(t *testing.T, p *place) {
		check(t, 2*time.Second, drawQueue(false), func(prog queueProgram) verdict { return p.runQueue(t, prog) })
	})
}

// TestQueueFaults runs random programs of jobs with faults.
func TestQueueFaults(t *testing.T) {
	eachEngine(t, func(t *testing.T, p *place) {
		check(t, 10*time.Second, drawQueue(true), func(prog queueProgram) verdict { return p.runQueue(t, prog) })
	})
}

// jobsEndWithin is after how long at the latest all jobs have ended, on a busy machine.
const jobsEndWithin = 30 * time.Second

// queueLog is what is known of a program's jobs in the end.
type queueLog struct {
	lines   [][]log
	dead    map[string]bool // IDs
	effects map[string]int  // of tasks, in the database
	faults  bool
}

func (p *place) runQueue(t *testing.T, prog queueProgram) (v verdict) {
	run := fmt.Sprint("r", runs.Add(1))
	dir := t.TempDir()
	var jobs []job
	for i, process := range prog.Processes {
		b, err := json.Marshal(process)
		if err != nil {
			t.Fatal(err)
		}
		jobs = append(jobs, job{What: "queue", Kind: p.kind, DSN: p.dsn, Dir: dir, Run: run, Process: i, Program: b})
	}
	all := queueLog{dead: map[string]bool{}, effects: map[string]int{}, faults: len(prog.Faults) > 0}
	s := &saboteur{kind: p.kind, db: p.db, run: run}
	var ended verdict
	all.lines = runAll(&v, jobs, func(ctx context.Context) { s.strike(ctx, prog.Faults) }, func(ctx context.Context) {
		p.allEnd(ctx, &ended, run)
		dead, err := p.jobs.List(ctx, queue.Filter{Queue: run, State: queue.Dead, Limit: 1000})
		for n := 0; err != nil && n < 20; n++ { // a fault has killed idle connections of the judge
			dead, err = p.jobs.List(ctx, queue.Filter{Queue: run, State: queue.Dead, Limit: 1000})
		}
		if err != nil {
			ended.add("broken", "the dead are not listed: %v", err)
		}
		for _, d := range dead {
			all.dead[d.ID.String()] = true
		}
	})
	if v.kind != "" {
		return v
	}
	rows, err := p.db.QueryContext(context.Background(), fmt.Sprintf("SELECT task, count(*) FROM effect WHERE task LIKE '%s-%%' GROUP BY task", run))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var task string
		var n int
		if err := rows.Scan(&task, &n); err != nil {
			t.Fatal(err)
		}
		all.effects[task] = n
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	judgeQueue(&v, all)
	for _, line := range ended.lines {
		v.add(ended.kind, "%s", line)
	}
	return v
}

// allEnd waits until the server's tables have no job of a run, and nothing that a job has left.
func (p *place) allEnd(ctx context.Context, v *verdict, run string) {
	ctx, cancel := context.WithTimeout(ctx, jobsEndWithin)
	defer cancel()
	left := map[string]int{}
	for {
		clear(left)
		for name, query := range map[string]string{
			"jobs":        "SELECT count(*) FROM dblock_queue_job WHERE queue = '%s'",
			"unique keys": "SELECT count(*) FROM dblock_queue_unique WHERE queue = '%s'",
			"group":       "SELECT coalesce(sum(taken), 0) FROM dblock_queue_key WHERE queue = '%s'",
			"paused":      "SELECT count(*) FROM dblock_queue WHERE queue = '%s' AND paused_at IS NOT NULL",
		} {
			var n int
			if err := p.db.QueryRowContext(ctx, fmt.Sprintf(query, run)).Scan(&n); err != nil || n > 0 {
				left[name] = n
			}
		}
		if left["paused"] > 0 { // a fault has kept it so
			_ = p.jobs.Resume(ctx, run)
		}
		if len(left) == 0 {
			return
		}
		select {
		case <-ctx.Done():
			v.add("stuck", "%v are left of %s after %v", left, run, jobsEndWithin)
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// fate is what became of a job.
type fate struct {
	enqueued          jobEvent
	cancelled         bool
	begins, successes int
}

// judgeQueue judges what the processes have logged, and what is in the tables.
func judgeQueue(v *verdict, all queueLog) {
	fates, cancelled := map[string]*fate{}, map[string]bool{}
	var failures []failure
	of := func(task string) *fate {
		if fates[task] == nil {
			fates[task] = &fate{}
		}
		return fates[task]
	}
	v.stats = map[string]int{}
	for _, lines := range all.lines {
		for _, l := range lines {
			if v.stats[l.Word]++; l.Word == "error" {
				failures, _ = added(failures, l)
				continue
			}
			var e jobEvent
			if err := json.Unmarshal(l.Data, &e); err != nil {
				v.add("broken", "%s: %v", l.Data, err)
			}
			switch l.Word {
			case "enqueued":
				of(e.Job.Task).enqueued = e
			case "cancelled":
				cancelled[e.ID] = true
			case "begin":
				of(e.Job.Task).begins++
				if e.Met != "" {
					v.add("at once", "an attempt of job %s begins, %+v: %s", e.ID, e.Job, e.Met)
				}
			case "success":
				of(e.Job.Task).successes++
			}
		}
	}
	for task, f := range fates {
		f.cancelled = cancelled[f.enqueued.ID]
		f.judge(v, task, all)
	}
	for _, f := range failures {
		v.add("error", "%s: %s", f.Call, f.Error)
	}
}

func (f *fate) judge(v *verdict, task string, all queueLog) {
	e, j := f.enqueued, f.enqueued.Job
	dead, effects := all.dead[e.ID], all.effects[task]
	what := fmt.Sprintf("%d attempts, %d successes, %d effects, dead: %v: %+v", f.begins, f.successes, effects, dead, j)
	switch {
	case effects > 1:
		v.add("twice", "the effects of %s are there more than once: %s", task, what)
	case e.Unknown || f.cancelled:
	case e.Refused && f.begins > 0:
		v.add("refused", "%s was not enqueued, and runs: %s", task, what)
	case e.Refused:
	case f.successes == 0 && !dead:
		v.add("lost", "%s is lost: %s", task, what)
	case j.dies() && (f.successes > 0 || !dead):
		v.add("attempts", "%s should be dead: %s", task, what)
	case j.dies(), all.faults && dead: // an attempt may fail for a killed connection
	case dead:
		v.add("attempts", "%s should not be dead: %s", task, what)
	case j.Tx && effects != 1:
		v.add("lost", "the effect of %s is lost: %s", task, what)
	case f.successes > 1 && !j.Tx && !all.faults: // with a transaction, a handler that has returned may not have committed
		v.add("twice", "%s was done more than once: %s", task, what)
	}
}
