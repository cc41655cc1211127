package programs

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testdb"
)

// TestLocks runs random programs of locks.
func TestLocks(t *testing.T) {
	eachEngine(t, func(t *testing.T, p *place) {
		check(t, 5*time.Second, drawLocks(p.kind, false), func(prog lockProgram) verdict { return p.runLocks(t, prog, "") })
	})
}

// TestLocksDense runs programs of leases with thousands of grants.
func TestLocksDense(t *testing.T) {
	eachEngine(t, func(t *testing.T, p *place) {
		check(t, time.Second, drawDense(p.kind), func(prog lockProgram) verdict { return p.runLocks(t, prog, "") })
	})
}

// TestLocksFaults runs random programs of locks with faults.
func TestLocksFaults(t *testing.T) {
	eachEngine(t, func(t *testing.T, p *place) {
		check(t, 20*time.Second, drawLocks(p.kind, true), func(prog lockProgram) verdict { return p.runLocks(t, prog, "") })
	})
}

// TestControlLocks has callers take a refusal for a grant: the checkers notice.
func TestControlLocks(t *testing.T) {
	s := lockStep{Lock: lease, Keys: []int{0}, Try: true, Wait: time.Second, Work: 3 * time.Millisecond, End: byRelease}
	crowd := lockProcess{Callers: []lockCaller{{Copies: 4, Steps: []lockStep{s}}}}
	for _, kind := range testdb.Engines()[:1] {
		v := openPlace(t, kind).runLocks(t, lockProgram{Processes: []lockProcess{crowd, crowd}}, "takes a refusal for a grant")
		for _, by := range []string{"by the operating system", "no lock would have given"} {
			if !strings.Contains(strings.Join(v.lines, "\n"), by) {
				t.Errorf("%q is not in the verdict: %s", by, &v)
			}
		}
	}
}

// A run has numbers of its own: those that leases protect, and rows that are locked.
func tallyOf(run string, key int) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(run, "r"))
	return tallies*n + key
}

// tallies is how many numbers a run has.
const tallies = 3 * lockKeys

func rowOf(run string, key int) int    { return tallyOf(run, lockKeys+key) }
func raisedOf(run string, key int) int { return tallyOf(run, 2*lockKeys+key) }

// runLocks runs a program once.
func (p *place) runLocks(t *testing.T, prog lockProgram, control string) (v verdict) {
	run := fmt.Sprint("r", runs.Add(1))
	var values []string
	for k := range tallies {
		values = append(values, fmt.Sprintf("(%d, 0)", tallyOf(run, k)))
	}
	p.exec(t, "INSERT INTO tally VALUES "+strings.Join(values, ", "))
	dir := t.TempDir()
	var jobs []job
	for i, process := range prog.Processes {
		text, err := json.Marshal(process)
		if err != nil {
			t.Fatal(err)
		}
		jobs = append(jobs, job{What: "lock", Kind: p.kind, DSN: p.dsn, Dir: dir, Run: run, Process: i, Control: control, Program: text})
	}
	members, deadlocks := p.count(t, membersQuery), p.deadlocks(t)
	s := &saboteur{kind: p.kind, db: p.db, run: run}
	var tickets []ticketSample
	logs := runAll(&v, jobs, func(ctx context.Context) {
		if prog.isFair() {
			tickets = p.watchTickets(ctx, run)
		} else {
			s.strike(ctx, prog.Faults)
		}
	}, func(ctx context.Context) {
		if p.allAreFree(ctx, &v, run, prog); v.kind == "" && len(prog.Faults) == 0 {
			p.checkWaiters(t, &v)
		}
	})
	all, err := readLocks(logs)
	if err != nil {
		t.Fatal(err)
	}
	v.stats = map[string]int{}
	for _, h := range all.holds {
		v.stats[h.Space]++
		if h.Lost != "" {
			v.stats["lost"]++
		}
	}
	if v.kind == "ended" || v.kind == "hang" {
		return v
	}
	if v.kind == "" && len(prog.Faults) == 0 {
		p.checkLeftovers(t, &v, run, members)
		if n := p.deadlocks(t) - deadlocks; n > 0 && prog.isOfLeases() {
			v.add("deadlock", "the server counts %d deadlocks", n)
		}
	}
	stuck := v
	v = verdict{stats: v.stats}
	checkLocks(&v, all, p.numbers(t, run))
	checkFair(&v, all.holds, tickets)
	for _, s := range tickets {
		for _, handles := range s.wait {
			v.stats["tickets"] += len(handles)
		}
	}
	if stuck.kind != "" {
		v.add(stuck.kind, "%s", &stuck)
	}
	return v
}

// numbers are those that a run has counted.
func (p *place) numbers(t *testing.T, run string) map[int]int64 {
	rows, err := p.db.QueryContext(context.Background(),
		fmt.Sprintf("SELECT id, n FROM tally WHERE id >= %d AND id < %d", tallyOf(run, 0), tallyOf(run, tallies)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	numbers := map[int]int64{}
	for rows.Next() {
		var id int
		var n int64
		if err := rows.Scan(&id, &n); err != nil {
			t.Fatal(err)
		}
		numbers[id] = n
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return numbers
}

// freeWithin is after how long at the latest a key is free that its callers have released, while
// their processes live. A busy machine may need some of it; what is forgotten stays for as long as
// the process lives.
const freeWithin = 15 * time.Second

// allAreFree acquires each key that a program has used.
func (p *place) allAreFree(ctx context.Context, v *verdict, run string, prog lockProgram) {
	ctx, cancel := context.WithTimeout(ctx, freeWithin)
	defer cancel()
	seen := map[string]bool{}
	for _, process := range prog.Processes {
		for _, caller := range process.Callers {
			for _, s := range caller.Steps {
				for _, k := range s.Keys {
					id := fmt.Sprint(s.space(), k)
					if seen[id] || v.kind == "stuck" {
						continue
					}
					seen[id] = true
					p.isFree(ctx, v, s.space(), nameOf(run, k))
				}
			}
		}
	}
}

func (p *place) isFree(ctx context.Context, v *verdict, space, name string) {
	var opts []dblock.Option
	l := p.lease
	switch space {
	case "permits":
		opts = append(opts, dblock.WithPermits(lockLimit, lockLimit))
		for ctx.Err() == nil && l.(leases).SetPermits(ctx, name, lockLimit) != nil {
			time.Sleep(time.Millisecond)
		}
	case session:
		l = p.session
	case quorum:
		l = p.quorum
	case row:
		return // its transactions have ended
	}
	for {
		lock, err := l.Acquire(ctx, name, opts...)
		if err == nil {
			_ = lock.Release(ctx)
			return
		}
		if ctx.Err() != nil {
			v.add("stuck", "all callers have left, and %s %q is not free: %v", space, name, err)
			return
		}
	}
}
