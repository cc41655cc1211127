package queue

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// underWay is for how long at most the end of a job is on its way to the database, on a machine that is busy.
const underWay = 2 * time.Second

// Mishaps after which a job may be done again, and those after which another process may have it while it is still done.
var (
	redone   = []string{wasKilled, wasFrozen, wasDown, itWasCut, itWasLost, itWasGone}
	takenOff = []string{wasFrozen, wasDown, itWasLost, itWasGone}
)

// befell tells whether any of these befell the worker within a time.
func (l *workLog) befell(worker int, from, to time.Duration, what []string) bool {
	for _, of := range []int{worker, everybody} {
		for _, m := range l.mishaps[of] {
			if m.from <= to && m.to >= from && slices.Contains(what, m.what) {
				return true
			}
		}
	}
	return false
}

// excused tells whether any of these befell the worker of a run, before the end of the job can have been recorded.
func (l *workLog) excused(r *jobRun, what []string) bool {
	return l.befell(r.worker, r.begin, r.end+underWay, what)
}

// check returns what no queue would do that keeps its promises.
func (l *workLog) check() (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	byJob := l.byJob()
	for i := range l.runs {
		r := &l.runs[i]
		if l.jobs[r.job] == nil {
			fault("job %s was run, and nobody has enqueued it", r.job)
		}
		if r.said == "" && !l.befell(r.worker, r.begin, atNoTime, []string{wasKilled}) {
			fault("job %s, attempt %d: worker %d was not killed, and its handler has not returned", r.job, r.attempt, r.worker)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(l.jobs)) {
		l.checkJob(id, byJob[id], fault)
	}
	l.checkZombies(byJob, fault)
	l.checkKeys(fault)
	l.checkOrder(byJob, fault)
	return faults
}

// byJob are the runs of each job.
func (l *workLog) byJob() map[string][]*jobRun {
	by := make(map[string][]*jobRun)
	for i := range l.runs {
		by[l.runs[i].job] = append(by[l.runs[i].job], &l.runs[i])
	}
	return by
}

// over tells that what a handler said was the last of its job.
func over(said string) bool { return said == saysDone || said == saysDiscard || said == saysCancel }

// checkJob: it is done, or dead for a reason; and what has ended, while nothing befell its worker, is not done again.
func (l *workLog) checkJob(id string, runs []*jobRun, fault func(string, ...any)) {
	j := l.jobs[id]
	last, dead := l.dead[id]
	done := slices.ContainsFunc(runs, func(r *jobRun) bool { return r.said == saysDone || r.said == saysCancel })
	if j.sure && !done && !dead {
		fault("job %s is lost: it was run %d times, and neither done nor given up", id, len(runs))
	}
	reason := strings.Contains(last, "worker is gone") && len(l.mishaps) > 0
	for i, r := range runs {
		reason = reason || r.said == saysDiscard || r.said == saysFailed && r.attempt >= j.max
		if r.attempt > j.max {
			fault("job %s had attempt %d of %d", id, r.attempt, j.max)
		}
		if dead && (r.said == saysDone || r.said == saysCancel) && !l.excused(r, redone) {
			fault("job %s is %s and dead, and nothing befell worker %d", id, r.said, r.worker)
		}
		for _, later := range runs[i+1:] {
			if (later.begin < r.end || over(r.said)) && !l.excused(r, redone) && !l.excused(later, takenOff) {
				fault("job %s was run by worker %d after worker %d had it (%q), and nothing befell either", id, later.worker, r.worker, r.said)
			}
		}
	}
	if dead && !reason {
		fault("job %s is dead without a reason: %q", id, last)
	}
}

// checkZombies: where a job had begun once more before it ended, with another attempt, its claim was taken away before: its end was refused,
// and counted. It is not certain of those who were killed before they could count, and of ends that got no answer.
func (l *workLog) checkZombies(byJob map[string][]*jobRun, fault func(string, ...any)) {
	zombies := l.zombies(byJob)
	for _, worker := range slices.Sorted(maps.Keys(zombies)) {
		if n := zombies[worker]; l.refused[worker] < n {
			fault("worker %d has ended %d jobs that had begun once more, and was refused %d times", worker, n, l.refused[worker])
		}
	}
}

// zombies counts by worker the ends that must have been refused.
func (l *workLog) zombies(byJob map[string][]*jobRun) map[int]int {
	n := make(map[int]int)
	for _, runs := range byJob {
		for _, r := range runs {
			another := func(o *jobRun) bool { return o.attempt > r.attempt && o.begin < r.end }
			if r.said == "" || !slices.ContainsFunc(runs, another) {
				continue
			}
			if l.befell(r.worker, r.end, r.end+underWay/2, []string{wasKilled, itWasCut, wasDown}) {
				continue
			}
			n[r.worker]++
		}
	}
	return n
}

// checkKeys: of those who have not lost their claims never more run at once than a key allows.
func (l *workLog) checkKeys(fault func(string, ...any)) {
	limit := make(map[string]int)
	by := make(map[string][]*jobRun)
	for i := range l.runs {
		r := &l.runs[i]
		j := l.jobs[r.job]
		if j == nil || l.excused(r, takenOff) {
			continue
		}
		if j.unique != "" {
			key := "unique " + j.unique
			by[key], limit[key] = append(by[key], r), 1
		}
		if j.group != "" {
			key := "group " + j.group
			by[key], limit[key] = append(by[key], r), j.atMost
		}
	}
	for _, key := range slices.Sorted(maps.Keys(by)) {
		var now []*jobRun
		for _, r := range by[key] {
			now = slices.DeleteFunc(now, func(o *jobRun) bool { return o.end <= r.begin })
			if now = append(now, r); len(now) > limit[key] {
				fault("%s: %d jobs at once, of at most %d: the last one is %s", key, len(now), limit[key], r.job)
			}
		}
	}
}

// checkOrder: once a job of a group that is done one by one has begun, none that was enqueued before it begins any more, but by those who
// have lost their claims.
func (l *workLog) checkOrder(byJob map[string][]*jobRun, fault func(string, ...any)) {
	groups := make(map[string][]string)
	for id, j := range l.jobs {
		if j.group != "" && j.atMost == 1 && j.sure && len(byJob[id]) > 0 {
			groups[j.group] = append(groups[j.group], id)
		}
	}
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		ids := groups[group]
		slices.SortFunc(ids, func(a, b string) int { return cmp.Compare(l.jobs[a].seq, l.jobs[b].seq) })
		next := atNoTime // when the first one of those that come later began
		for _, id := range slices.Backward(ids) {
			for _, r := range byJob[id] {
				if r.begin > next && !l.excused(r, takenOff) {
					fault("group %s: job %d, %s, was begun after a later one", group, l.jobs[id].seq, id)
				}
			}
			next = min(next, byJob[id][0].begin)
		}
	}
}

// tally is what there was of everything.
func (l *workLog) tally() string {
	byJob := l.byJob()
	said, befell := make(map[string]int), make(map[string]int)
	for i := range l.runs {
		said[cmp.Or(l.runs[i].said, "nothing, killed")]++
	}
	for _, all := range l.mishaps {
		for _, m := range all {
			befell[m.what]++
		}
	}
	again, refused, zombies := 0, 0, 0
	for _, runs := range byJob {
		for _, r := range runs[:len(runs)-1] {
			if r.said != saysFailed && r.said != saysSnoozed {
				again++
			}
		}
	}
	for _, n := range l.refused {
		refused += n
	}
	for _, n := range l.zombies(byJob) {
		zombies += n
	}
	return fmt.Sprintf("%d jobs, %d runs %v, %d done again after a mishap, %d dead; mishaps %v; %d ends refused, at least %d of them had to be",
		len(l.jobs), len(l.runs), said, again, len(l.dead), befell, refused, zombies)
}
