package queue

import (
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

const (
	// claimWait is how long a free handler may wait for others to become free.
	claimWait = 10 * time.Millisecond

	// morePatience is how much longer a claim may take after one that was cut off: it passes over
	// the same deleted rows again.
	morePatience = 4

	conflictsToPart = 3 // conflicts or timeouts of an end or a claim, before it is sent in parts
)

// claimer decides when a worker claims how many jobs, and from where on. The mutex of its syncer
// guards it.
type claimer struct {
	o           *WorkerOptions
	timeout     time.Duration // of other statements
	maxPatience time.Duration

	asking   int       // claims under way
	coming   int       // how many jobs they claim at most
	asked    time.Time // when the last one was sent
	more     bool      // it was given all that it asked for
	woken    bool      // there may be jobs
	nextPoll time.Time
	hints    hints
	cursors  cursors

	rate   rate
	pace   time.Duration // how long a handler takes, lately; 0: that is not known
	took   time.Duration // how long a claim takes, lately
	bytes  int           // of a payload, lately
	inline int           // up to how many bytes a payload comes with its claim

	limit    int               // how many jobs a claim asks for at most
	patience time.Duration     // how long a claim may take
	refused  int               // claims in a row
	suspect  driver.ID         // the next claim shows whether the server refuses it; zero: none.
	suspects []driver.Record   // the first ready jobs, since the last claim that was not refused
	passed   passed[driver.ID] // jobs: see suspectFirst
}

// isPatient reports that a claim may take long, so that ends do not wait for it.
func (c *claimer) isPatient() bool { return c.patience != c.timeout }

// claimable is how many jobs are to be claimed now; 0: none, before wait.
func (c *claimer) claimable(now time.Time, held, readable int) (most int, wait time.Duration) {
	const long = time.Minute
	if c.asking > 0 && !c.more {
		return 0, long
	}
	capacity := c.o.Concurrency + c.ahead(now)
	room := min(capacity-held-c.coming, c.limit, readable)
	if room <= 0 {
		return 0, long
	}
	if pause := c.nextClaim().Sub(now); pause > 0 && !c.woken && !c.more {
		return 0, pause
	}
	if pause := claimWait - now.Sub(c.asked); pause > 0 && room < min(capacity/4, c.limit) {
		return 0, pause
	}
	return room, 0
}

// ahead is how many jobs may be claimed before handlers are free for them. They last for two
// claims. If a handler takes less time than a claim, they last for eight. If it takes as long as
// ten claims or longer, a free handler can wait for a claim, and there are none. So few jobs wait
// in this process that others could begin.
func (c *claimer) ahead(now time.Time) int {
	claim := max(c.took, claimWait)
	if c.pace == 0 || c.pace >= 10*claim {
		return 0
	}
	last := 2 * claim
	if c.pace < claim {
		last = 8 * claim
	}
	busy := float64(c.o.Concurrency) * float64(last) / float64(c.pace)
	return min(c.rate.in(now, last, strandAfter+4*claim), int(min(busy, 1e6)), c.o.Ahead)
}

// nextClaim is when it claims though nothing has happened in this process.
func (c *claimer) nextClaim() time.Time {
	if due := c.hints.due; !due.IsZero() && due.Before(c.nextPoll) {
		return due
	}
	return c.nextPoll
}

// request makes the request of a claim, which is sent now. trial is a job that the server refused
// before, or the suspect; zero: none.
func (c *claimer) request(now time.Time, id driver.ID, most int, beat int64) (r *driver.ClaimRequest, hinted bool, trial driver.ID) {
	c.asking++
	c.coming += most
	c.asked, c.woken = now, false
	not, trial := c.passed.next(now, c.suspect, c.refused == 0 || len(c.passed) >= maxPassed)
	c.suspect = driver.ID{}
	if trial != (driver.ID{}) {
		c.cursors.reset() // it may stand before them
	}
	return &driver.ClaimRequest{
		Claim: id, Queue: c.o.Queue, Max: most, Inline: c.inline, From: c.cursors.from(now), Not: not, Heartbeat: beat,
	}, c.hints.asked(now), trial
}

// landed notes that a claim has an answer, or will get none.
func (c *claimer) landed(r *driver.ClaimRequest) {
	c.asking--
	c.coming -= r.Max
}

// got takes over what a claim brought: void rows are of no job. took is how long it took.
func (c *claimer) got(b *syncBatch, jobs []driver.Job, void int, now time.Time, took time.Duration) {
	r := b.Claim
	c.refused, c.suspects = 0, nil
	wasRefused := c.passed[b.trial].times > 0
	if wasRefused && slices.ContainsFunc(jobs, func(j driver.Job) bool { return j.ID == b.trial }) {
		c.passed.tryAll(now)
		c.woken = len(c.passed) > 1
	}
	delete(c.passed, b.trial)
	if b.hinted {
		c.hints.got(len(jobs))
	}
	if took < c.timeout/4 {
		c.limit = min(2*c.limit, c.o.Batch)
	}
	if r.From == nil {
		c.patience = min(max(2*took, c.timeout), c.maxPatience)
	}
	c.took += (took - c.took) / 8
	c.more = len(jobs)+void == r.Max
	c.cursors.saw(r, jobs, now, took)
	if void > 0 {
		c.cursors.reset() // they are of what has jobs
	}
	if !c.more {
		c.nextPoll = now.Add(pace.Jitter(c.o.Poll))
	}
	bytes := 0
	for i := range jobs {
		bytes += jobs[i].Bytes
	}
	if len(jobs) > 0 {
		c.bytes = bytes / len(jobs)
	}
}

// late takes over that a claim was cut off.
func (c *claimer) late(r *driver.ClaimRequest) {
	c.limit = max(r.Max/2, 1)
	c.patience = min(morePatience*c.patience, c.maxPatience)
	if r.From == nil {
		c.cursors.late(time.Now())
	}
}

// isRefused takes over that the server has refused a claim that came with no ends. first reports
// whether its first job is to blame; at once, whether the next claim need not wait. If a job was on
// trial, it is to blame, and is passed over. Else the next claim is of one job: then either that
// one is to blame, or claims become larger again, up to the one that is. Of most errors the server
// may be to blame.
func (c *claimer) isRefused(b *syncBatch, is sqlerr.Class) (first, atOnce bool) {
	c.refused++
	if !is.MayBeOfOne() {
		c.untried(b.trial)
		return false, false
	}
	atOnce = is == sqlerr.BadInput || is == sqlerr.Duplicate
	if b.trial != (driver.ID{}) {
		c.passed.add(b.trial, time.Now())
		return false, atOnce
	}
	isConflict := is == sqlerr.Retryable || is == sqlerr.Busy
	if isConflict && c.refused < conflictsToPart {
		return false, false
	}
	c.limit = 1
	return b.Claim.Max == 1, atOnce
}

// untried has a job be on trial again, as a claim showed nothing of it.
func (c *claimer) untried(trial driver.ID) {
	if its, known := c.passed[trial]; known {
		c.passed[trial] = pass{its.times, time.Now()}
	}
}

// suspectFirst suspects the first job that is ready: the server has refused to have it claimed, by
// a trigger of the host's, for example. The next claim shows whether it was another job. found is
// false if there is no such job, or too many are passed over.
func (c *claimer) suspectFirst() (found bool) {
	for _, r := range c.suspects {
		if _, known := c.passed[r.ID]; !known && len(c.passed) < maxPassed {
			c.passed[r.ID] = pass{}
			c.suspect = r.ID
			return true
		}
	}
	return false
}

// ran takes note of how long a handler took.
func (c *claimer) ran(took time.Duration) {
	switch {
	case took == 0:
	case c.pace == 0:
		c.pace = took
	default:
		c.pace += (took - c.pace) / 16
	}
}

// holdsBack has none be claimed ahead until it is known again how many jobs end. What was handed
// back may stand before the cursors.
func (c *claimer) holdsBack() {
	c.rate = rate{}
	c.cursors.reset()
}

// rate is how many jobs a second have ended lately.
type rate struct {
	since  time.Time
	ends   int
	second float64
}

// note counts ends that were confirmed.
func (r *rate) note(now time.Time, ends int) {
	r.ends += ends
	took := now.Sub(r.since)
	if took < 20*time.Millisecond {
		return
	}
	if took > time.Second { // what was before so long a pause says nothing
		took, r.second = time.Second, 0
	}
	r.second = (r.second + float64(r.ends)/took.Seconds()) / 2
	r.since, r.ends = now, 0
}

// in is how many that are in so long. If none were confirmed for longer than patience, it is fewer
// and fewer.
func (r *rate) in(now time.Time, d, patience time.Duration) int {
	second := r.second
	if pause := now.Sub(r.since); pause > patience {
		second = min(second, float64(r.ends)/pause.Seconds())
	}
	return int(second * d.Seconds())
}
