package queue

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// example is what a history is made of. Its times are in milliseconds.
type example struct {
	jobs   map[string]*enqueued
	dead   map[string]string
	events []event
}

func jobs(ids ...string) *example {
	x := &example{jobs: make(map[string]*enqueued), dead: make(map[string]string)}
	for i, id := range ids {
		x.jobs[id] = &enqueued{sure: true, max: 3, limit: 1, seq: 1 + i}
	}
	return x
}

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// run adds a run. With end 0 it never returned.
func (x *example) run(job string, worker, attempt, begin, end int, said string) *example {
	x.events = append(x.events, event{What: runBegan, Worker: worker, At: ms(begin), Job: job, Attempt: attempt})
	if end > 0 {
		e := event{What: runEnded, Worker: worker, At: ms(end), Job: job, Attempt: attempt, Said: said}
		x.events = append(x.events, e)
	}
	return x
}

func (x *example) fault(what string, worker, from, to int) *example {
	x.events = append(x.events, event{What: what, Worker: worker, From: ms(from), At: ms(to), N: 1})
	return x
}

func (x *example) dies(last string) *example {
	x.dead["a"] = last
	return x
}

// each changes what is known of each job.
func (x *example) each(change func(*enqueued)) *example {
	for _, j := range x.jobs {
		change(j)
	}
	return x
}

func (x *example) group(limit int) *example {
	return x.each(func(j *enqueued) { j.group, j.limit = "g", limit })
}

// one is a job that is done.
func one() *example { return jobs("a").run("a", 1, 1, 10_000, 10_010, saysDone) }

// zombieEnds is a job that a frozen process ends when another process has begun it.
func zombieEnds() *example {
	return jobs("a").run("a", 1, 1, 10_000, 15_010, saysDone).fault(frozen, 1, 10_005, 15_000).
		run("a", 2, 2, 13_000, 15_500, saysDone)
}

// late is a process that goes on and begins what another process has done.
func late() *example {
	return one().fault(frozen, 2, 9_000, 12_000).run("a", 2, 1, 12_005, 12_010, saysDone).fault(endsRefused, 2, 0, 12_020)
}

// two are jobs of one group. The first one ends when the argument says.
func two(end, second int) *example {
	return jobs("a", "b").run("a", 1, 1, 10_000, end, saysDone).run("b", 2, 1, second, second+10, saysDone).group(1)
}

func TestTheJudgeOfJobs(t *testing.T) {
	t.Parallel()
	failed := func() *example { return jobs("a").run("a", 1, 1, 1, 10, saysFailed) }
	lastKilled := func(attempt int) *example { return jobs("a").run("a", 1, attempt, 1, 0, "").fault(killed, 1, 5, 6) }
	twice := func() *example { return one().run("a", 2, 1, 10_020, 10_030, saysDone) }
	for what, c := range map[string]struct {
		*example
		want string // "": nothing is wrong
	}{
		"all is well":             {one(), ""},
		"retried":                 {failed().run("a", 1, 2, 20, 30, saysSnoozed).run("a", 2, 2, 40, 50, saysDone), ""},
		"killed":                  {lastKilled(1).run("a", 2, 2, 1500, 1510, saysDone), ""},
		"killed before its reply": {one().fault(killed, 1, 10_020, 10_030).run("a", 2, 2, 12_000, 12_010, saysDone), ""},
		"its reply was lost":      {one().fault(cut, 1, 10_000, 10_030).run("a", 2, 2, 12_000, 12_010, saysDone), ""},
		"the server was down": {one().fault(down, everybody, 10_000, 12_030).
			run("a", 2, 2, 13_000, 13_010, "done"), ""},
		"a zombie was refused":        {zombieEnds().fault(endsRefused, 1, 0, 15_020), ""},
		"a zombie was killed":         {zombieEnds().fault(killed, 1, 15_011, 15_020), ""},
		"a zombie's server went":      {zombieEnds().fault(down, everybody, 13_100, 13_900), ""},
		"a zombie began late":         {late(), ""},
		"dead after its last attempt": {jobs("a").run("a", 1, 3, 1, 10, saysFailed).dies("bad day"), ""},
		"discarded":                   {jobs("a").run("a", 1, 1, 1, 10, saysDiscard).dies("bad day"), ""},
		"its last worker was killed":  {lastKilled(3).dies("its worker is gone"), ""},
		"it may not exist":            {jobs("a").each(func(j *enqueued) { j.sure = false }), ""},
		"in order":                    {two(10_010, 10_020), ""},
		"two of a group of two":       {two(10_010, 10_005).group(2), ""},
		"a zombie beside its group":   {two(13_000, 12_000).fault(frozen, 1, 10_005, 12_900), ""},

		"lost":                           {jobs("a"), "lost"},
		"lost after it failed":           {failed(), "lost"},
		"lost with its worker":           {lastKilled(1), "lost"},
		"done twice":                     {twice(), "nothing happened to either"},
		"done twice, long before a kill": {twice().fault(killed, 1, 60_000, 60_001), "nothing happened to either"},
		"done twice, another killed":     {twice().fault(killed, 3, 10_000, 10_001), "nothing happened to either"},
		"two at once":                    {failed().run("a", 2, 2, 5, 15, saysDone), "nothing happened to either"},
		"done again after a zombie":      {late().run("a", 3, 1, 20_000, 20_010, saysDone), "ran in worker 3 after worker 1"},
		"a zombie was not refused":       {zombieEnds(), "refused 0 times"},
		"nor after its server went":      {zombieEnds().fault(down, everybody, 5_000, 7_900), "refused 0 times"},
		"done and dead":                  {one().run("a", 2, 3, 9_000, 9_010, saysFailed).dies("bad day"), "done and dead"},
		"dead without a reason":          {failed().dies("bad day"), "without a reason"},
		"dead, and no worker is gone":    {failed().dies("its worker is gone"), "without a reason"},
		"too many attempts":              {jobs("a").run("a", 1, 4, 20, 30, saysDone), "attempt 4 of 3"},
		"never enqueued":                 {jobs().run("x", 1, 1, 1, 10, saysDone), "was never enqueued"},
		"a handler that hangs":           {jobs("a").run("a", 1, 1, 1, 0, ""), "not returned"},
		"two of a group":                 {two(10_010, 10_005), "2 jobs at once"},
		"two of a key": {two(10_010, 10_005).each(func(j *enqueued) { j.group, j.unique = "", "u" }),
			"unique u: 2 jobs at once"},
		"three of two": {jobs("a", "b", "c").run("a", 1, 1, 1, 10, saysDone).run("b", 1, 1, 2, 10, saysDone).
			run("c", 1, 1, 3, 10, saysDone).group(2), "3 jobs at once"},
		"overtaken": {two(10_010, 9_000), "after a later one"},
		"overtaken between attempts": {jobs("a", "b").run("a", 1, 1, 1, 10, saysFailed).run("b", 1, 1, 20, 30, saysDone).
			run("a", 1, 2, 40, 50, saysDone).group(1), "after a later one"},
	} {
		h := newHistory(c.jobs, c.events, c.dead)
		got := strings.Join(h.check(), "; ")
		if c.want == "" {
			assert.Empty(t, got, "%s; %s", what, h.tally())
		}
		assert.Contains(t, got, c.want, "%s; %s", what, h.tally())
	}
}
