package queue

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// What worker processes, and the test that disturbs them, write down.
const (
	runBegan    = "began"
	runEnded    = "ended"
	endsRefused = "refused" // so many: Observer.Lost
	claimLost   = "lost"    // a handler's context ended for it
	cut         = "cut"     // a connection, at some time since From
	killed      = "killed"
	frozen      = "frozen" // for longer than the TTL
	down        = "down"   // the server was killed and started again
	everybody   = -1       // the worker of what happens to all of them
)

// What a handler returns of a job.
const (
	saysDone    = "done"
	saysFailed  = "failed"
	saysSnoozed = "snoozed"
	saysDiscard = "discarded"
	saysCancel  = "cancelled"
)

// underWay is how long, at most, the end of a job is on its way to the database of a busy machine.
const underWay = 2 * time.Second

// Faults after which a job may run again, and those after which it may run elsewhere while it still
// runs.
var (
	repeats = []string{killed, frozen, down, cut, endsRefused, claimLost}
	evicts  = []string{frozen, down, endsRefused, claimLost}
)

// event is one line of a log. Times are by uptime, which all processes share.
type event struct {
	What    string
	Worker  int
	From    time.Duration `json:",omitempty"`
	At      time.Duration
	Job     string `json:",omitempty"`
	Attempt int    `json:",omitempty"`
	Said    string `json:",omitempty"`
	N       int    `json:",omitempty"`
}

// eventLog is the log of one process. Each event is one write, so that a killed process has written
// it, or nothing.
type eventLog struct {
	file   *os.File
	worker int
}

func newEventLog(path string, worker int) (*eventLog, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	return &eventLog{file, worker}, err
}

func (l *eventLog) note(e event) {
	e.Worker, e.At = l.worker, cmp.Or(e.At, suite.Uptime())
	line, err := json.Marshal(e)
	if err == nil {
		_, err = l.file.Write(append(line, '\n'))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker: its log:", err)
		os.Exit(1) // what it does from now on would not be known
	}
}

func readEvents(path string) (events []event, err error) {
	data, err := os.ReadFile(path)
	for line := range bytes.Lines(data) {
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", path, line, err)
		}
		events = append(events, e)
	}
	return events, err
}

// enqueued is a job as its producer knows it.
type enqueued struct {
	sure          bool // false: the producer does not know whether it exists
	max           int  // attempts
	unique, group string
	limit         int // of the group
	seq           int // its number in a group of limit 1
}

// run is one call of a handler. said is empty if it never returned; its end is then that of its
// process.
type run struct {
	job             string
	worker, attempt int
	begin, end      time.Duration
	said            string
}

func (r *run) finished() bool { return r.said == saysDone || r.said == saysCancel }

// never is the end of a run that has none: so late that no other time can be added up to it.
const never = time.Duration(suite.Never / 2)

// fault is what happened to a worker.
type fault struct {
	what     string
	from, to time.Duration
}

// history is what producers, workers and the test know of the same time.
type history struct {
	jobs    map[string]*enqueued
	runs    map[string][]*run // of each job, by begin
	all     []*run            // by begin
	faults  map[int][]fault
	refused map[int]int       // ends, by worker
	dead    map[string]string // the last error of each dead job
}

func newHistory(jobs map[string]*enqueued, events []event, dead map[string]string) *history {
	h := &history{jobs: jobs, dead: dead, runs: make(map[string][]*run)}
	h.faults, h.refused = make(map[int][]fault), make(map[int]int)
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.At, b.At) })
	open := make(map[string]*run)
	for _, e := range events {
		call := fmt.Sprint(e.Worker, e.Job, e.Attempt)
		suffers := func(from, to time.Duration) { h.faults[e.Worker] = append(h.faults[e.Worker], fault{e.What, from, to}) }
		switch e.What {
		case runBegan:
			r := &run{job: e.Job, worker: e.Worker, attempt: e.Attempt, begin: e.At, end: never}
			h.all, h.runs[e.Job], open[call] = append(h.all, r), append(h.runs[e.Job], r), r
		case runEnded:
			if r := open[call]; r != nil {
				r.end, r.said = e.At, e.Said
			}
		case endsRefused, claimLost:
			h.refused[e.Worker] += e.N
			suffers(e.At-2*faultyTTL, e.At)
		case cut, killed:
			suffers(e.From, e.At)
		case frozen, down: // an evicted process learns of it with its next heartbeat
			suffers(e.From, e.At+faultyTTL)
		}
	}
	for worker, all := range h.faults { // a process that was frozen while the server was down finds its connections dead
		for _, f := range all {
			if f.what == frozen && h.suffered(everybody, f.from, f.to, []string{down}) {
				h.faults[worker] = append(h.faults[worker], fault{cut, f.from, f.to})
			}
		}
	}
	for _, r := range h.all {
		for _, f := range h.faults[r.worker] {
			if f.what == killed && r.said == "" {
				r.end = f.to
			}
		}
	}
	return h
}

// suffered reports whether one of some faults happened to a worker in a time.
func (h *history) suffered(worker int, from, to time.Duration, what []string) bool {
	return slices.ContainsFunc(slices.Concat(h.faults[worker], h.faults[everybody]), func(f fault) bool {
		return f.from <= to && f.to >= from && slices.Contains(what, f.what)
	})
}

// excused reports whether one of some faults happened to the worker of a run before its end can
// have been recorded.
func (h *history) excused(r *run, what []string) bool {
	return h.suffered(r.worker, r.begin, r.end+underWay, what)
}

// check returns what no queue does that keeps its promises.
func (h *history) check() (wrong []string) {
	report := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	for _, r := range h.all {
		if h.jobs[r.job] == nil {
			report("job %s ran, and was never enqueued", r.job)
		}
		if r.said == "" && !h.suffered(r.worker, r.begin, never, []string{killed}) {
			report("job %s, attempt %d: worker %d was not killed, and its handler has not returned", r.job, r.attempt, r.worker)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(h.jobs)) {
		h.checkJob(id, report)
	}
	zombies := h.zombies()
	for _, worker := range slices.Sorted(maps.Keys(zombies)) {
		if n := zombies[worker]; h.refused[worker] < n {
			report("worker %d has ended %d jobs that had begun once more, and was refused %d times",
				worker, n, h.refused[worker])
		}
	}
	h.checkKeys(report)
	h.checkOrder(report)
	return wrong
}

// checkJob: a job is done, or dead for a reason. What has ended does not run again, unless a fault
// happened to its worker.
func (h *history) checkJob(id string, report func(string, ...any)) {
	j, runs := h.jobs[id], h.runs[id]
	last, dead := h.dead[id]
	if j.sure && !dead && !slices.ContainsFunc(runs, (*run).finished) {
		report("job %s is lost: it ran %d times, and is neither done nor dead", id, len(runs))
	}
	reason := strings.Contains(last, "worker is gone") && len(h.faults) > 0
	for i, r := range runs {
		reason = reason || r.said == saysDiscard || r.said == saysFailed && r.attempt >= j.max
		if r.attempt > j.max {
			report("job %s had attempt %d of %d", id, r.attempt, j.max)
		}
		if dead && r.finished() && !h.excused(r, repeats) {
			report("job %s is %s and dead, and nothing happened to worker %d", id, r.said, r.worker)
		}
		for _, later := range runs[i+1:] {
			again := later.begin < r.end || r.finished() || r.said == saysDiscard
			if again && !h.excused(r, repeats) && !h.excused(later, evicts) {
				report("job %s ran in worker %d after worker %d (%q), and nothing happened to either",
					id, later.worker, r.worker, r.said)
			}
		}
	}
	if dead && !reason {
		report("job %s is dead without a reason: %q", id, last)
	}
}

// zombies counts, by worker, the ends that must have been refused: the job had begun once more
// before, as another attempt, so the claim was lost. Ends are left out whose worker was killed
// before it could count, or that may have got no reply.
func (h *history) zombies() map[int]int {
	n := make(map[int]int)
	for _, r := range h.all {
		another := func(o *run) bool { return o.attempt > r.attempt && o.begin < r.end }
		if r.said != "" && slices.ContainsFunc(h.runs[r.job], another) &&
			!h.suffered(r.worker, r.end, r.end+underWay/2, []string{killed, cut, down}) {
			n[r.worker]++
		}
	}
	return n
}

// checkKeys: of the workers that have not lost their claims, never more jobs run at once than a key
// allows.
func (h *history) checkKeys(report func(string, ...any)) {
	now := make(map[string][]*run)
	runs := func(key string, limit int, r *run) {
		now[key] = append(slices.DeleteFunc(now[key], func(o *run) bool { return o.end <= r.begin }), r)
		if n := len(now[key]); n > limit {
			report("%s: %d jobs at once, of at most %d: the last one is %s", key, n, limit, r.job)
		}
	}
	for _, r := range h.all {
		j := h.jobs[r.job]
		if j == nil || h.excused(r, evicts) {
			continue
		}
		if j.unique != "" {
			runs("unique "+j.unique, 1, r)
		}
		if j.group != "" {
			runs("group "+j.group, j.limit, r)
		}
	}
}

// checkOrder: in a group of limit 1, no job begins after a later one has, except in a worker that
// has lost its claim.
func (h *history) checkOrder(report func(string, ...any)) {
	groups := make(map[string][]string)
	for id, j := range h.jobs {
		if j.group != "" && j.limit == 1 && j.sure && len(h.runs[id]) > 0 {
			groups[j.group] = append(groups[j.group], id)
		}
	}
	for group, ids := range groups {
		slices.SortFunc(ids, func(a, b string) int { return cmp.Compare(h.jobs[a].seq, h.jobs[b].seq) })
		next := never // when the first of the later ones began
		for _, id := range slices.Backward(ids) {
			for _, r := range h.runs[id] {
				if r.begin > next && !h.excused(r, evicts) {
					report("group %s: job %d, %s, began after a later one", group, h.jobs[id].seq, id)
				}
			}
			next = min(next, h.runs[id][0].begin)
		}
	}
}

// tally is what there was of everything.
func (h *history) tally() string {
	return fmt.Sprintf("%d jobs, %d runs, %d dead; faults of workers %v; ends refused by worker %v, of which had to be %v",
		len(h.jobs), len(h.all), len(h.dead), h.faults, h.refused, h.zombies())
}
