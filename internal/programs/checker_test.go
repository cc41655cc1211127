package programs

import (
	"encoding/json"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/queue"
)

// TestChecksLocks gives the checker histories that are right, and one that is wrong in each way.
func TestChecksLocks(t *testing.T) {
	t.Parallel()
	one := func(client int, from, to int64) hold {
		return hold{Client: client, Space: lease, Names: []string{"k"}, Called: from, Granted: from + 1, Left: to, Released: to + 1, Valid: 1000,
			Tokens: []int64{from}}
	}
	with := func(h hold, change func(*hold)) hold { change(&h); return h }
	shared := func(h *hold) { h.Mode = dblock.ModeShared }
	lost := func(why dblock.Reason) func(*hold) { return func(h *hold) { h.Lost = string(why) } }
	permits := func(n int) func(*hold) {
		return func(h *hold) { h.Mode, h.Permits, h.Limit, h.Space = dblock.ModePermit, n, lockLimit, "permits" }
	}
	met := func(h *hold) { h.Met, h.MetIn = h.Granted, "lease k" }
	token := func(n int64) func(*hold) { return func(h *hold) { h.Tokens = []int64{n} } }
	a, beside, after := one(1, 10, 50), one(2, 20, 60), one(2, 51, 60)
	for name, c := range map[string]struct {
		log  lockLog
		want string
	}{
		"one after the other":            {lockLog{holds: []hold{a, after}}, ""},
		"readers":                        {lockLog{holds: []hold{with(a, shared), with(with(beside, shared), token(10))}}, ""},
		"permits":                        {lockLog{holds: []hold{with(a, permits(2)), with(beside, permits(1))}}, ""},
		"beside a session that was lost": {lockLog{holds: []hold{with(a, lost(dblock.ReasonDisconnected)), with(beside, met)}}, ""},
		"beside one whose time was up":   {lockLog{holds: []hold{with(a, func(h *hold) { h.Valid = 19 }), with(beside, met)}}, ""},
		"one that left before that was noted": {
			lockLog{holds: []hold{with(a, func(h *hold) { h.Valid = 19 }), with(beside, func(h *hold) { h.Met, h.MetIn = 55, "lease k" })}}, "",
		},
		"two holders":              {lockLog{holds: []hold{a, beside}}, "exclusion"},
		"the same grant to two":    {lockLog{holds: []hold{a, with(beside, token(10))}}, "exclusion"},
		"a reader beside a writer": {lockLog{holds: []hold{a, with(beside, shared)}}, "exclusion"},
		"too many permits":         {lockLog{holds: []hold{with(a, permits(2)), with(beside, permits(2))}}, "permits"},
		"more permits than were set": {
			lockLog{holds: []hold{with(a, permits(1))}, sizes: []resizing{{Name: "permits k", Limit: 1, Called: 1, Returned: 2}}}, "permits",
		},
		"as many permits as were set": {
			lockLog{holds: []hold{with(a, permits(1))}, sizes: []resizing{{Name: "permits k", Limit: lockLimit, Called: 1, Returned: 2}}}, "",
		},
		"a token that falls":          {lockLog{holds: []hold{a, with(after, token(9))}}, "exclusion"},
		"met by the operating system": {lockLog{holds: []hold{a, with(after, met)}}, "exclusion"},
		"before its time was up": {
			lockLog{holds: []hold{with(with(a, lost(dblock.ReasonTimeUp)), func(h *hold) { h.Valid = 40 }), beside}}, "exclusion",
		},
		"taken away":                 {lockLog{holds: []hold{with(a, lost(dblock.ReasonStolen))}}, "stolen"},
		"a lost update":              {lockLog{counts: []count{{ID: 1}, {ID: 1}}}, "count"},
		"an update that was refused": {lockLog{}, "count"},
		"an update that may be":      {lockLog{counts: []count{{ID: 1, Unknown: true}}}, ""},
		"an undocumented error":      {lockLog{failures: []failure{{"acquire", "boo"}}}, "error"},
	} {
		var v verdict
		final := map[int]int64{1: 1}
		if len(c.log.counts) == 0 && c.want != "count" {
			final = nil
		}
		checkLocks(&v, c.log, final)
		if v.kind != c.want {
			t.Errorf("%s: the checker says %q, want %q: %s", name, v.kind, c.want, &v)
		}
	}
}

// TestChecksFair gives the checker orders of grants.
func TestChecksFair(t *testing.T) {
	t.Parallel()
	granted := func(handle string, called, token int64) hold {
		return hold{Names: []string{"k"}, Handle: handle, Called: called, Tokens: []int64{token}}
	}
	waits := []ticketSample{{at: 10, wait: map[string][]string{"k": {"a", "gone", "b"}}}}
	for name, c := range map[string]struct {
		holds []hold
		want  string
	}{
		"in order":             {[]hold{granted("a", 1, 20), granted("b", 2, 21), granted("c", 11, 22)}, ""},
		"a later ticket first": {[]hold{granted("a", 1, 21), granted("b", 2, 20)}, "order"},
		"a later caller first": {[]hold{granted("a", 1, 20), granted("b", 2, 22), granted("c", 11, 21)}, "order"},
		"a caller beside":      {[]hold{granted("a", 1, 20), granted("b", 2, 22), granted("c", 9, 21)}, ""},
	} {
		var v verdict
		if checkFair(&v, c.holds, waits); v.kind != c.want {
			t.Errorf("%s: the checker says %q, want %q: %s", name, v.kind, c.want, &v)
		}
	}
}

// TestChecksQueue gives the checker ends of a job that are allowed, and others that are not.
func TestChecksQueue(t *testing.T) {
	t.Parallel()
	line := func(word string, e jobEvent) log {
		b, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		return log{word, b}
	}
	good := queueJob{Task: "a", How: returns, Attempts: 2}
	tx, bad := good, good
	tx.Tx, bad.Fails = true, 2
	at := int64(0)
	did := func(j queueJob, words ...string) (lines []log) {
		for _, w := range words {
			at += 10
			lines = append(lines, line(w, jobEvent{Job: j, ID: map[string]string{"a": "1", "b": "2"}[j.Task], Called: at, At: at + 5, Was: map[string]queue.JobState{cancels: queue.JobReady}[w]}))
		}
		return lines
	}
	later, snoozed, dropped, late := good, bad, bad, good
	later.Task, snoozed.How, dropped.How, late.Delay = "b", snoozes, drops, time.Second
	first := func(change func(*queueJob)) [][]log {
		a, b := good, later
		change(&a)
		change(&b)
		return [][]log{append(did(a, "enqueued"), did(b, "enqueued", "begin", "success")...), did(a, "begin", "success")}
	}
	grouped, keyed := func(j *queueJob) { j.Group = 1 }, func(j *queueJob) { j.Unique = 1 }
	met := append(did(good, "enqueued", "success"), line("begin", jobEvent{Job: good, Met: "job 1", By: []int{1}}))
	evicted := []log{line("evicted", jobEvent{})}
	dead := map[string]bool{"1": true}
	for name, c := range map[string]struct {
		log  queueLog
		want string
	}{
		"done":                 {queueLog{lines: [][]log{did(good, "enqueued", "begin", "success")}}, ""},
		"done in another one":  {queueLog{lines: [][]log{did(good, "enqueued"), did(good, "begin", "success")}}, ""},
		"dead":                 {queueLog{lines: [][]log{did(bad, "enqueued", "begin", "begin")}, dead: dead}, ""},
		"cancelled":            {queueLog{lines: [][]log{did(good, "enqueued", cancels)}}, ""},
		"snoozed":              {queueLog{lines: [][]log{did(snoozed, "enqueued", "begin", "begin", "success")}}, ""},
		"a snooze that costs":  {queueLog{lines: [][]log{append(did(snoozed, "enqueued"), line("begin", jobEvent{Job: snoozed, ID: "1", At: 1000, Attempt: 2}))}}, "attempts"},
		"dropped":              {queueLog{lines: [][]log{did(dropped, "enqueued", "begin")}}, ""},
		"given up":             {queueLog{lines: [][]log{did(good, "enqueued", givesUp)}, dead: dead}, ""},
		"killed as it asked":   {queueLog{lines: [][]log{did(good, "enqueued", "asks")}}, ""},
		"in any order":         {queueLog{lines: first(func(*queueJob) {})}, ""},
		"of a killed process":  {queueLog{lines: [][]log{did(good, "begin", "success")}}, ""},
		"beside a zombie":      {queueLog{lines: [][]log{met, evicted}}, ""},
		"out of order":         {queueLog{lines: first(grouped)}, "order"},
		"two of a key":         {queueLog{lines: first(keyed)}, "key"},
		"too early":            {queueLog{lines: [][]log{did(late, "enqueued", "begin", "success")}}, "early"},
		"begins once more":     {queueLog{lines: [][]log{did(good, "enqueued", cancels, "begin")}}, "cancelled"},
		"cancelled and dead":   {queueLog{lines: [][]log{did(good, "enqueued", cancels)}, dead: dead}, "cancelled"},
		"given up and lost":    {queueLog{lines: [][]log{did(good, "enqueued", givesUp)}}, "lost"},
		"given up and done":    {queueLog{lines: [][]log{did(good, "enqueued", "success", givesUp)}, dead: dead}, "twice"},
		"dead, never begun":    {queueLog{lines: [][]log{did(good, "enqueued")}, dead: dead, faults: true}, "attempts"},
		"a deadlock":           {queueLog{lines: [][]log{{line("deadlock", jobEvent{})}}}, "error"},
		"an effect":            {queueLog{lines: [][]log{did(tx, "enqueued", "begin", "success")}, effects: map[string]int{"a": 1}}, ""},
		"twice after a fault":  {queueLog{lines: [][]log{did(good, "enqueued", "success", "success")}, faults: true}, ""},
		"lost":                 {queueLog{lines: [][]log{did(good, "enqueued")}}, "lost"},
		"lost after a begin":   {queueLog{lines: [][]log{did(bad, "enqueued", "begin")}}, "lost"},
		"done twice":           {queueLog{lines: [][]log{did(good, "enqueued", "success", "success")}}, "twice"},
		"an effect too many":   {queueLog{lines: [][]log{did(tx, "enqueued", "success")}, effects: map[string]int{"a": 2}, faults: true}, "twice"},
		"no effect":            {queueLog{lines: [][]log{did(tx, "enqueued", "success")}}, "lost"},
		"dead too early":       {queueLog{lines: [][]log{did(good, "enqueued", "begin")}, dead: dead}, "attempts"},
		"done though it fails": {queueLog{lines: [][]log{did(bad, "enqueued", "success")}}, "attempts"},
		"refused and run": {
			queueLog{lines: [][]log{{line("enqueued", jobEvent{Job: good, Refused: true})}, did(good, "begin", "success")}}, "refused",
		},
		"two attempts at once": {
			queueLog{lines: [][]log{met}}, "at once",
		},
	} {
		var v verdict
		c.log.zombies = map[int]bool{}
		if checkQueue(&v, c.log); v.kind != c.want {
			t.Errorf("%s: the checker says %q, want %q: %s", name, v.kind, c.want, &v)
		}
	}
}

// TestShrinks has a checker of its own reject one kind of step: what is left of the program is one
// step of it.
func TestShrinks(t *testing.T) {
	t.Parallel()
	disliked := func(p lockProgram) (v verdict) {
		for _, process := range p.Processes {
			for _, c := range process.Callers {
				for _, s := range c.Steps {
					if s.Lock == lease && s.End == byExpireIn {
						v.add("disliked", "%+v", s)
					}
				}
			}
		}
		return v
	}
	c := &checker[lockProgram]{draw: drawLocks("postgres", true), run: disliked, stats: map[string]int{}}
	var seed uint64
	for seed = 1; c.failed == nil && seed < 1000; seed++ {
		c.once(seed)
	}
	if c.failed == nil {
		t.Fatal("no program has such a step")
	}
	p := c.smallest
	if len(p.Processes) != 1 || len(p.Processes[0].Callers) != 1 || len(p.Processes[0].Callers[0].Steps) != 1 {
		t.Errorf("the smallest program is %s", text(p))
	}
	var again lockProgram
	if err := json.Unmarshal([]byte(text(p)), &again); err != nil || text(again) != text(p) {
		t.Errorf("%s is read as %s, %v", text(p), text(again), err)
	}
	if one, other := drawn(seed), drawn(seed); one != other {
		t.Errorf("a seed gives two programs: %s and %s", one, other)
	}
}

func drawn(seed uint64) (program string) {
	c := &checker[lockProgram]{draw: func(t *rapid.T) lockProgram { return drawLocks("postgres", true)(t) }, stats: map[string]int{}}
	c.run = func(p lockProgram) verdict { program = text(p); return verdict{} }
	c.once(seed)
	return program
}
