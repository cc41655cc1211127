package programs

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/queue"
)

// TestQueue runs random programs of jobs.
func TestQueue(t *testing.T) {
	eachEngine(t, func(t *testing.T, p *place) {
		check(t, 5*time.Second, drawQueue(calm), func(prog queueProgram) verdict { return p.runQueue(t, prog, "") })
	})
}

// TestQueueFaults runs random programs of jobs with faults.
func TestQueueFaults(t *testing.T) {
	eachEngine(t, func(t *testing.T, p *place) {
		check(t, 10*time.Second, drawQueue(serverFaults), func(prog queueProgram) verdict { return p.runQueue(t, prog, "") })
	})
}

// TestQueueEndsFaults runs random programs of jobs whose processes are killed, and frozen for
// longer than the TTL.
func TestQueueEndsFaults(t *testing.T) {
	eachEngine(t, func(t *testing.T, p *place) {
		check(t, 10*time.Second, drawQueue(processFaults), func(prog queueProgram) verdict { return p.runQueue(t, prog, "") })
	})
}

// TestControlQueue has jobs run without their groups and keys: the checkers notice.
func TestControlQueue(t *testing.T) {
	s := queueStep{Do: many, Job: queueJob{Group: 1, Unique: 1, How: returns, Fails: 1, Attempts: 2, Work: 3 * time.Millisecond}}
	crowd := queueProcess{Handlers: 20, Callers: []queueCaller{{Copies: 4, Times: 4, Steps: []queueStep{s}}}}
	for _, kind := range testdb.Engines()[:1] {
		v := openPlace(t, kind).runQueue(t, queueProgram{Processes: []queueProcess{crowd, crowd}}, "no groups and no keys")
		for _, by := range []string{"at once: ", "order: ", "key: "} {
			if !strings.Contains(strings.Join(v.lines, "\n"), "\n"+by) {
				t.Errorf("%q is not in the verdict of %d lines", by, len(v.lines))
			}
		}
	}
}

// jobsEndWithin is after how long at the latest all jobs have ended, on a busy machine.
const jobsEndWithin = 30 * time.Second

// queueLog is what is known of a program's jobs in the end.
type queueLog struct {
	lines   [][]log
	dead    map[string]bool // IDs
	effects map[string]int  // of tasks, in the database
	faults  bool
	zombies map[int]bool // processes that were frozen, or that were notified of a lost claim
}

func (p *place) runQueue(t *testing.T, prog queueProgram, control string) (v verdict) {
	run := fmt.Sprint("r", runs.Add(1))
	dir := t.TempDir()
	var jobs []job
	all := queueLog{dead: map[string]bool{}, effects: map[string]int{}, faults: len(prog.Faults) > 0, zombies: map[int]bool{}}
	for i, process := range prog.Processes {
		b, err := json.Marshal(process)
		if err != nil {
			t.Fatal(err)
		}
		all.faults, all.zombies[i] = all.faults || process.TTL > 0, process.Frozen > 0
		jobs = append(jobs, job{
			What: "queue", Kind: p.kind, DSN: p.dsn, Dir: dir, Run: run, Process: i, Control: control, Program: b,
			Killed: process.Killed, Frozen: process.Frozen,
		})
	}
	s := &saboteur{kind: p.kind, db: p.db, run: run}
	var ended verdict
	all.lines = runAll(&v, jobs, func(ctx context.Context) { s.strike(ctx, prog.Faults) }, func(ctx context.Context) {
		p.allEnd(ctx, &ended, run)
		dead, err := p.jobs.List(ctx, queue.Filter{Queue: run, State: queue.JobDead, Limit: 1000})
		for n := 0; err != nil && n < 20; n++ { // a fault has killed idle connections of the checker
			dead, err = p.jobs.List(ctx, queue.Filter{Queue: run, State: queue.JobDead, Limit: 1000})
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
	checkQueue(&v, all)
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
	enqueued            jobEvent
	ended               []jobEvent // by Cancel and Discard
	gaveUp, cancelled   bool
	begins              []jobEvent // but those in zombies
	attempts, successes int
	last                int // the number of the last attempt
}

// checkQueue checks what the processes have logged, and what is in the tables.
func checkQueue(v *verdict, all queueLog) {
	fates, ended, open := map[string]*fate{}, map[string][]jobEvent{}, map[string]int{}
	var order []*fate // as they were enqueued, by process
	var failures []failure
	of := func(j queueJob) *fate {
		if fates[j.Task] == nil {
			// A process that was killed may have enqueued it.
			fates[j.Task] = &fate{enqueued: jobEvent{Job: j, Unknown: true}}
		}
		return fates[j.Task]
	}
	v.stats = map[string]int{}
	for process, lines := range all.lines {
		for _, l := range lines {
			switch v.stats[l.Word]++; {
			case l.Word == "evicted":
				all.zombies[process] = true
			case l.Word == "error", l.Word == "deadlock" && !all.faults:
				failures, _ = added(failures, l)
			}
		}
	}
	for process, lines := range all.lines {
		for _, l := range lines {
			if l.Word == "error" || l.Word == "deadlock" || l.Word == "evicted" {
				continue
			}
			var e jobEvent
			if err := json.Unmarshal(l.Data, &e); err != nil {
				v.add("broken", "%s: %v", l.Data, err)
			}
			e.process = process
			switch l.Word {
			case "enqueued":
				of(e.Job).enqueued = e
				order = append(order, of(e.Job))
			case cancels, givesUp:
				ended[e.ID] = append(ended[e.ID], e)
			case "asks":
				open[e.ID]++
			case "answered":
				open[e.ID]--
			case "begin":
				f, zombie := of(e.Job), all.zombies[process]
				f.last = max(f.last, e.Attempt)
				if f.attempts++; !zombie {
					f.begins = append(f.begins, e)
				}
				if e.Met != "" && !zombie && !slices.ContainsFunc(e.By, func(p int) bool { return all.zombies[p] }) {
					v.add("at once", "an attempt of job %s begins, %+v: %s", e.ID, e.Job, e.Met)
				}
			case "success":
				of(e.Job).successes++
			}
		}
	}
	for task, f := range fates {
		f.ended = ended[f.enqueued.ID]
		f.enqueued.Unknown = f.enqueued.Unknown || open[f.enqueued.ID] > 0 // a killed process may have cancelled it
		f.check(v, task, all)
	}
	checkJobOrder(v, order)
	for _, f := range failures {
		v.add("error", "%s: %s", f.Call, f.Error)
	}
}

// checkJobOrder checks jobs that one call, or a later call, has enqueued after others. In a group
// of one none begins before these, and none with a key is enqueued while another one has it.
func checkJobOrder(v *verdict, all []*fate) {
	for i, a := range all {
		for k, b := range all {
			x, y := a.enqueued, b.enqueued
			sameCall := x.process == y.process && x.Called == y.Called && i < k
			if x.Unknown || x.Refused || y.Unknown || y.Refused || !sameCall && x.At >= y.Called {
				continue
			}
			for _, begin := range a.begins {
				if x.Job.Unique > 0 && x.Job.Unique == y.Job.Unique && begin.At > y.At {
					v.add("key", "%+v begins after %+v got its key", x.Job, y.Job)
				}
				ordered := x.Job.Group == 1 && y.Job.Group == 1 && x.Job.Delay == 0 && y.Job.Delay == 0
				if ordered && len(b.begins) > 0 && begin.At > b.begins[0].At {
					v.add("order", "%+v begins after the later %+v", x.Job, y.Job)
				}
			}
		}
	}
}

func (f *fate) check(v *verdict, task string, all queueLog) {
	e, j := f.enqueued, f.enqueued.Job
	dead, effects := all.dead[e.ID], all.effects[task]
	what := fmt.Sprintf("%d attempts, %d successes, %d effects, dead: %v: %+v", f.attempts, f.successes, effects, dead, j)
	slices.SortFunc(f.begins, func(a, b jobEvent) int { return cmp.Compare(a.At, b.At) })
	for _, end := range f.ended {
		late := 0
		for _, begin := range f.begins {
			if begin.At > end.At {
				late++
			}
		}
		if end.Unknown {
			e.Unknown = true // so is what becomes of the job
			continue
		}
		f.gaveUp, f.cancelled = f.gaveUp || end.Was == 0, f.cancelled || end.Was > 0
		if end.Was == queue.JobClaimed {
			late-- // it may have been about to begin
		}
		if late > 0 {
			v.add("cancelled", "%s was %v when it was cancelled or given up, and then began %d times: %s", task, end.Was, late, what)
		}
	}
	early := len(f.begins) > 0 && f.begins[0].At < e.Called+int64(j.Delay-time.Millisecond)
	switch {
	case effects > 1:
		v.add("twice", "the effects of %s are there more than once: %s", task, what)
	case e.Unknown:
	case j.How == snoozes && f.last > 1 && !all.faults:
		v.add("attempts", "a snooze of %s cost an attempt: %s", task, what)
	case early:
		v.add("early", "%s began before its delay was over: %s", task, what)
	case e.Refused && f.attempts > 0:
		v.add("refused", "%s was not enqueued, and runs: %s", task, what)
	case e.Refused:
	case f.cancelled && dead:
		v.add("cancelled", "%s was cancelled, and is dead: %s", task, what)
	case f.cancelled, j.drops():
	case f.gaveUp && !dead, !f.gaveUp && f.successes == 0 && !dead:
		v.add("lost", "%s is lost: %s", task, what)
	case f.gaveUp && f.successes > 0 && !all.faults:
		v.add("twice", "%s was given up, and is done: %s", task, what)
	case f.gaveUp:
	case j.dies() && (f.successes > 0 || !dead) && (j.How != discards || !all.faults):
		v.add("attempts", "%s should be dead: %s", task, what)
	case dead && f.attempts == 0:
		v.add("attempts", "%s is dead, and never began: %s", task, what)
	case j.dies(), all.faults && dead: // an attempt may fail for a killed connection
	case dead:
		v.add("attempts", "%s should not be dead: %s", task, what)
	case j.Tx && effects != 1:
		v.add("lost", "the effect of %s is lost: %s", task, what)
	case f.successes > 1 && !j.Tx && !all.faults: // with a transaction, a handler that has returned may not have committed
		v.add("twice", "%s was done more than once: %s", task, what)
	}
}
