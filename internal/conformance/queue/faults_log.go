package queue

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// What workers and whoever strikes them write down.
const (
	itBegan   = "began"   // a handler was called
	itEnded   = "ended"   // a handler is about to return
	itWasLost = "refused" // so many ends were refused: Observer.Lost
	itWasGone = "gone"    // a handler's context ended, as the claim was lost
	itWasCut  = "cut"     // a connection was cut, at some time since From
	wasKilled = "killed"  // from before the kill till the process was gone
	wasFrozen = "frozen"  // stood still for longer than the TTL, and went on
	wasDown   = "down"    // the server was killed, and started again
	everybody = -1        // the worker of a mishap that is everybody's
)

// What a handler may say of a job.
const (
	saysDone    = "done"
	saysFailed  = "failed"
	saysSnoozed = "snoozed"
	saysDiscard = "discarded"
	saysCancel  = "cancelled"
)

// workEvent is one line of a log. Times are by uptime, which all processes share.
type workEvent struct {
	What    string
	Worker  int
	At      time.Duration
	From    time.Duration `json:",omitempty"`
	Job     string        `json:",omitempty"`
	Attempt int           `json:",omitempty"`
	Said    string        `json:",omitempty"`
	N       int           `json:",omitempty"`
}

// workFile is the log of one process: each event is one write, so that a process that is killed has written it, or nothing.
type workFile struct {
	file   *os.File
	worker int
}

func newWorkFile(path string, worker int) (*workFile, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	return &workFile{file, worker}, err
}

func (f *workFile) note(e workEvent) {
	e.Worker = f.worker
	if e.At == 0 {
		e.At = suite.Uptime()
	}
	line, err := json.Marshal(e)
	if err == nil {
		_, err = f.file.Write(append(line, '\n'))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker: its log:", err)
		os.Exit(1) // what it does from now on nobody would know of
	}
}

// readWork reads the log of a process.
func readWork(path string) (events []workEvent, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(data) {
		var e workEvent
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", path, line, err)
		}
		events = append(events, e)
	}
	return events, nil
}

// toldJob is a job as its producer knows it.
type toldJob struct {
	sure   bool   // it was told that the job is enqueued; else that nobody knows
	max    int    // attempts
	unique string // "": none
	group  string
	atMost int // of group
	seq    int // of group with atMost 1: which one it is
}

// atNoTime is the end of a run that has none: so late that no other time can be added up to it.
const atNoTime = time.Duration(suite.Never / 2)

// jobRun is one call of a handler.
type jobRun struct {
	job        string
	worker     int
	attempt    int
	begin, end time.Duration
	said       string // "": it never returned
}

// faultEvent is what befell a worker.
type faultEvent struct {
	what     string
	worker   int
	from, to time.Duration
}

// workLog is all that is known of a time of work, for checker.
type workLog struct {
	ttl     time.Duration
	jobs    map[string]*toldJob
	runs    []jobRun // by begin
	mishaps map[int][]faultEvent
	refused map[int]int       // how many ends, by worker
	dead    map[string]string // the last error of each dead job
}

// newWorkLog puts together what was written down.
func newWorkLog(ttl time.Duration, jobs map[string]*toldJob, events []workEvent, dead map[string]string) *workLog {
	l := &workLog{ttl: ttl, jobs: jobs, mishaps: make(map[int][]faultEvent), refused: make(map[int]int), dead: dead}
	type call struct {
		worker  int
		job     string
		attempt int
	}
	slices.SortStableFunc(events, func(a, b workEvent) int { return int(a.At - b.At) })
	open := make(map[call]int) // the run that has not ended
	for _, e := range events {
		c := call{e.Worker, e.Job, e.Attempt}
		befell := func(from, to time.Duration) {
			l.mishaps[e.Worker] = append(l.mishaps[e.Worker], faultEvent{e.What, e.Worker, from, to})
		}
		switch e.What {
		case itBegan:
			open[c] = len(l.runs)
			l.runs = append(l.runs, jobRun{job: e.Job, worker: e.Worker, attempt: e.Attempt, begin: e.At})
		case itEnded:
			if i, ok := open[c]; ok {
				l.runs[i].end, l.runs[i].said = e.At, e.Said
				delete(open, c)
			}
		case itWasLost:
			l.refused[e.Worker] += e.N
			befell(e.At-2*ttl, e.At)
		case itWasGone:
			befell(e.At-2*ttl, e.At)
		case itWasCut, wasKilled:
			befell(e.From, e.At)
		case wasFrozen, wasDown: // who was taken for dead learns of it with the next heartbeat
			befell(e.From, e.At+ttl)
		}
	}
	l.cutWhileFrozen()
	for _, i := range open { // those of killed processes ended with them
		l.runs[i].end = atNoTime
		for _, m := range l.mishaps[l.runs[i].worker] {
			if m.what == wasKilled {
				l.runs[i].end = m.to
			}
		}
	}
	return l
}

// cutWhileFrozen notes that whoever stood still while the server was down finds its connections dead when it goes on.
func (l *workLog) cutWhileFrozen() {
	for worker, all := range l.mishaps {
		for _, m := range all {
			if m.what == wasFrozen && l.befell(everybody, m.from, m.to, []string{wasDown}) {
				l.mishaps[worker] = append(l.mishaps[worker], faultEvent{itWasCut, worker, m.from, m.to})
			}
		}
	}
}
