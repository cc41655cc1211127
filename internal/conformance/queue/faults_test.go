package queue

import (
	"strings"
	"testing"
	"time"
)

// story is a log as it is told: times in milliseconds, and a TTL of 1 s.
type story struct {
	jobs   map[string]*toldJob
	dead   map[string]string
	events []workEvent
}

const underTest = time.Second

func newStory(jobs ...string) *story {
	s := &story{jobs: make(map[string]*toldJob), dead: make(map[string]string)}
	for _, id := range jobs {
		s.jobs[id] = &toldJob{sure: true, max: 3, atMost: 1}
	}
	return s
}

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// run adds one; end 0: it never returned.
func (s *story) run(job string, worker, attempt, begin, end int, said string) *story {
	s.events = append(s.events, workEvent{What: itBegan, Worker: worker, At: ms(begin), Job: job, Attempt: attempt})
	if end > 0 {
		s.events = append(s.events, workEvent{What: itEnded, Worker: worker, At: ms(end), Job: job, Attempt: attempt, Said: said})
	}
	return s
}

func (s *story) blow(what string, worker, from, to int) *story {
	s.events = append(s.events, workEvent{What: what, Worker: worker, From: ms(from), At: ms(to), N: 1})
	return s
}

func (s *story) with(change func(*story)) *story {
	change(s)
	return s
}

// one is a story that ends well.
func one() *story { return newStory("a").run("a", 1, 1, 10_000, 10_010, saysDone) }

// zombie is one of a process that was frozen, and ends what another one has begun.
func zombie() *story {
	return newStory("a").run("a", 1, 1, 10_000, 14_010, saysDone).blow(wasFrozen, 1, 10_005, 14_000).run("a", 2, 2, 12_000, 14_500, saysDone)
}

// pair is two jobs of one group, in order.
func pair(second int) *story {
	return newStory("a", "b").run("a", 1, 1, 10_000, 10_010, saysDone).run("b", 2, 1, second, second+10, saysDone).with(func(s *story) {
		s.jobs["a"].group, s.jobs["b"].group, s.jobs["a"].seq, s.jobs["b"].seq = "g", "g", 1, 2
	})
}

func TestTheJudgeOfJobs(t *testing.T) {
	t.Parallel()
	die := func(last string) func(*story) { return func(s *story) { s.dead["a"] = last } }
	for what, c := range map[string]struct {
		story *story
		want  string // "": no fault
	}{
		"all is well":                    {one(), ""},
		"retried":                        {newStory("a").run("a", 1, 1, 1, 10, saysFailed).run("a", 1, 2, 20, 30, saysSnoozed).run("a", 2, 2, 40, 50, saysDone), ""},
		"killed":                         {newStory("a").run("a", 1, 1, 1, 0, "").blow(wasKilled, 1, 5, 6).run("a", 2, 2, 1500, 1510, saysDone), ""},
		"killed before it was told":      {one().blow(wasKilled, 1, 10_020, 10_030).run("a", 2, 2, 12_000, 12_010, saysDone), ""},
		"its reply was lost":             {one().blow(itWasCut, 1, 10_000, 10_030).run("a", 2, 2, 12_000, 12_010, saysDone), ""},
		"the server was down":            {one().blow(wasDown, everybody, 10_000, 12_030).run("a", 2, 2, 13_000, 13_010, saysDone), ""},
		"a zombie was refused":           {zombie().blow(itWasLost, 1, 0, 14_020), ""},
		"a zombie that was killed":       {zombie().blow(wasKilled, 1, 14_011, 14_020), ""},
		"a zombie whose server went":     {zombie().blow(wasDown, everybody, 10_100, 10_900), ""},
		"a zombie began late":            {one().blow(wasFrozen, 2, 9_000, 12_000).run("a", 2, 1, 12_005, 12_010, saysDone).blow(itWasLost, 2, 0, 12_020), ""},
		"dead after the last attempt":    {newStory("a").run("a", 1, 3, 1, 10, saysFailed).with(die("bad day")), ""},
		"discarded":                      {newStory("a").run("a", 1, 1, 1, 10, saysDiscard).with(die("bad day")), ""},
		"its last worker was killed":     {newStory("a").run("a", 1, 3, 1, 0, "").blow(wasKilled, 1, 5, 6).with(die("its worker is gone")), ""},
		"nobody knows of it":             {newStory("a").with(func(s *story) { s.jobs["a"].sure = false }), ""},
		"in order":                       {pair(10_020), ""},
		"others of the group at once":    {pair(10_005).with(func(s *story) { s.jobs["a"].atMost, s.jobs["b"].atMost = 2, 2 }), ""},
		"a zombie beside its group":      {pair(12_000).with(func(s *story) { s.events[1].At = ms(13_000) }).blow(wasFrozen, 1, 10_005, 12_900), ""},
		"lost":                           {newStory("a"), "lost"},
		"lost after it failed":           {newStory("a").run("a", 1, 1, 1, 10, saysFailed), "lost"},
		"lost with its worker":           {newStory("a").run("a", 1, 1, 1, 0, "").blow(wasKilled, 1, 5, 6), "lost"},
		"done twice":                     {one().run("a", 2, 1, 10_020, 10_030, saysDone), "nothing befell either"},
		"done twice, long before a kill": {one().run("a", 2, 1, 10_020, 10_030, saysDone).blow(wasKilled, 1, 60_000, 60_001), "nothing befell either"},
		"done twice, another killed":     {one().run("a", 2, 1, 10_020, 10_030, saysDone).blow(wasKilled, 3, 10_000, 10_001), "nothing befell either"},
		"two at once":                    {newStory("a").run("a", 1, 1, 1, 10, saysFailed).run("a", 2, 2, 5, 15, saysDone), "nothing befell either"},
		"done once more after a zombie": {one().blow(wasFrozen, 2, 9_000, 12_000).run("a", 2, 1, 12_005, 12_010, saysDone).blow(itWasLost, 2, 0, 12_020).
			run("a", 3, 1, 20_000, 20_010, saysDone), "run by worker 3 after worker 1"},
		"a zombie was not refused":  {zombie(), "refused 0 times"},
		"nor after its server went": {zombie().blow(wasDown, everybody, 5_000, 8_900), "refused 0 times"},
		"done and dead":             {one().run("a", 2, 3, 9_000, 9_010, saysFailed).with(die("bad day")), "done and dead"},
		"dead for nothing":          {newStory("a").run("a", 1, 1, 1, 10, saysFailed).with(die("bad day")), "without a reason"},
		"dead, and nobody was gone": {newStory("a").run("a", 1, 1, 1, 10, saysFailed).with(die("its worker is gone")), "without a reason"},
		"too many attempts":         {newStory("a").run("a", 1, 3, 1, 10, saysFailed).run("a", 1, 4, 20, 30, saysDone), "attempt 4 of 3"},
		"out of nowhere":            {newStory().run("x", 1, 1, 1, 10, saysDone), "nobody has enqueued"},
		"a handler that hangs":      {newStory("a").run("a", 1, 1, 1, 0, ""), "not returned"},
		"two of a group":            {pair(10_005), "2 jobs at once"},
		"two of a key": {pair(10_005).with(func(s *story) {
			for _, j := range s.jobs {
				j.group, j.unique = "", "u"
			}
		}), "unique u: 2 jobs at once"},
		"three of two": {newStory("a", "b", "c").run("a", 1, 1, 1, 10, saysDone).run("b", 1, 1, 2, 10, saysDone).run("c", 1, 1, 3, 10, saysDone).with(func(s *story) {
			for _, j := range s.jobs {
				j.group, j.atMost = "g", 2
			}
		}), "3 jobs at once"},
		"overtaken": {pair(9_000), "after a later one"},
		"overtaken while it is tried again": {newStory("a", "b").run("a", 1, 1, 1, 10, saysFailed).run("b", 1, 1, 20, 30, saysDone).run("a", 1, 2, 40, 50, saysDone).
			with(func(s *story) {
				s.jobs["a"].group, s.jobs["b"].group, s.jobs["a"].seq, s.jobs["b"].seq = "g", "g", 1, 2
			}), "after a later one"},
	} {
		l := newWorkLog(underTest, c.story.jobs, c.story.events, c.story.dead)
		got := strings.Join(l.check(), "; ")
		if got != "" && c.want == "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: the judge says %q, want %q; %s", what, got, c.want, l.tally())
		}
	}
}
