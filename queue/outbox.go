package queue

import (
	"time"

	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// outbox has the ends of a worker's jobs until the database has recorded them. The mutex of its
// syncer guards it.
//
// A batch carries the ends of many jobs. It waits only briefly for the rows of unique keys, groups
// and jobs. If another transaction has such a row locked, the ends of jobs with keys go apart: in
// batches without a claim, of half as many ends each time, until an end that can't be recorded is
// alone. It rests, and is sent again. If the driver names the jobs whose keys are locked, only they
// go apart, those of each key together. If no job has a key, all ends go apart. So it is with ends
// that the server refuses, for example if a trigger of the host's fails for one of them. Other jobs
// are claimed in the place of those whose ends go apart, up to a bound.
//
// Ends may take long, for example if they have large arguments and the history is kept. A batch
// that was cut off by its time is sent again in halves, and a single end with more time.
//
// The table of dead jobs may be locked, for example by an ALTER TABLE. Only discards need it. They
// are the first to go apart, and until one is recorded no others are sent with a claim.
type outbox struct {
	flushAt int  // so many ends do not wait for others
	history bool // is kept
	aside   int  // so many jobs whose ends go apart leave their places to others
	timeout time.Duration

	most     int           // ends of a batch at most; 0: no bound
	patience time.Duration // how long a batch of ends may take, if that is longer than timeout

	ends          []end     // not sent yet
	oldest        time.Time // when the first of them came
	apart         []end     // such as do not go with others
	apartFlying   bool
	rowWaits      int  // batches that may wait for rows at once
	waitingFlying int  // batches that wait for rows
	deadLocked    bool // discards go apart: the last batch with some met a lock
	lockedKeys    int  // that were met

	claims map[*claim]struct{} // with jobs whose ends are not confirmed
	closed []*claim            // without, which was not said yet
	held   int                 // jobs that were claimed and whose ends are not confirmed
	sent   int                 // of them: whose ends are under way

	apartSent int // of those: that go apart
}

const (
	// endWait is how long an end may wait for others to be sent with.
	endWait = 3 * time.Millisecond

	firstRest     = 10 * time.Millisecond
	longestRest   = 250 * time.Millisecond
	restsToReport = 8 // after so many rests Observer.Trouble is called

	rowWaitTime  = 3 * time.Second // for a batch that waits for a second for each kind of key
	rowWaitPause = 4 * time.Second // before an end waits in the server's queue again

	asideBatches = 10 // outbox.aside in batches of claims

	unbounded = 1 << 16 // a bound on the ends of a batch that is larger is dropped
)

// apart is how an end is sent that did not go with others.
type apart struct {
	conflicts int // for how many it was not recorded

	share  int       // how many ends its batch has at most; 0: it goes with all others.
	key    int       // ends of one locked key have the same number; 0: it is not known which.
	rests  int       // how often it could not be recorded, alone or with others of its key.
	locked bool      // a row was, the last time
	until  time.Time // it rests until then

	waitAgain time.Time // it waits in the server's queue for a row no sooner
}

// add takes an end. It reports whether a batch is to look for it.
func (o *outbox) add(e end) (due bool) {
	if o.deadLocked && e.outcome == outcomeDiscarded {
		e.apart.share = o.flushAt
		o.apart = append(o.apart, e)
		return true
	}
	if len(o.ends) == 0 {
		o.oldest = time.Now()
	}
	o.ends = append(o.ends, e)
	n := len(o.ends)
	return n == 1 || n == o.flushAt || o.running() == 0
}

// occupied is how many jobs count as those of this process when others are claimed.
func (o *outbox) occupied() int { return o.held - min(len(o.apart)+o.apartSent, o.aside) }

// running is how many jobs are in the process: they wait for handlers, or have one.
func (o *outbox) running() int { return o.held - o.unrecorded() }

// unrecorded is how many jobs have ended, which the database has not confirmed.
func (o *outbox) unrecorded() int { return o.sent + len(o.ends) + len(o.apart) }

// isDue reports whether the ends are to be sent now.
func (o *outbox) isDue(now time.Time, stopping, flying bool) bool {
	switch {
	case len(o.ends) == 0:
		return len(o.closed) > 0 && !flying
	case stopping:
		return true
	}
	return len(o.ends) >= o.flushAt || o.running() == 0 || now.Sub(o.oldest) >= endWait
}

// waitsFor is how long the ends wait for others; at most d.
func (o *outbox) waitsFor(now time.Time, d time.Duration) time.Duration {
	if len(o.ends) > 0 {
		d = min(d, endWait-now.Sub(o.oldest))
	}
	return max(d, 0)
}

// compose takes all ends that can be sent together: those of one incarnation, and apart those that
// were sent before.
func (o *outbox) compose() *syncBatch {
	most := len(o.ends)
	if o.most > 0 {
		most = min(most, o.most)
	}
	b, left := o.gather(o.ends, func(*end) bool { return true }, most)
	o.ends = left
	var stay []*claim
	for _, c := range o.closed {
		if b.owner == nil {
			b.owner = c.owner
		}
		if c.owner == b.owner {
			b.close(c)
		} else {
			stay = append(stay, c)
		}
	}
	o.closed = stay
	return b
}

// composeApart makes a batch of ends that go apart; nil: none is due before wait. One such batch is
// under way at a time. An end that is to wait for its row is left to composeWaiting.
func (o *outbox) composeApart(now time.Time) (b *syncBatch, wait time.Duration) {
	const long = time.Minute
	if o.apartFlying || len(o.apart) == 0 {
		return nil, long
	}
	first, wait := -1, long
	for i := range o.apart {
		a := &o.apart[i].apart
		if rest := a.until.Sub(now); rest > 0 {
			wait = min(wait, rest)
		} else if o.waits(a, now) {
			continue
		} else if first < 0 || a.share > o.apart[first].apart.share {
			first = i
		}
	}
	if first < 0 {
		return nil, wait
	}
	o.apart[0], o.apart[first] = o.apart[first], o.apart[0]
	like := o.apart[0].apart
	b, o.apart = o.gather(o.apart, func(e *end) bool {
		return e.apart.isLike(&like) && (like.key > 0 || !e.apart.until.After(now) && !o.waits(&e.apart, now))
	}, like.share)
	o.apartFlying, b.apart = true, true
	return b, 0
}

// isLike reports whether two ends may go apart in one batch.
func (a *apart) isLike(b *apart) bool { return a.share == b.share && a.key == b.key }

// waits reports whether an end is to wait in the server's queue for the rows of its keys: it met a
// locked row, alone or with others of its key, and has not waited lately.
func (o *outbox) waits(a *apart, now time.Time) bool {
	return o.rowWaits > 0 && a.locked && !a.waitAgain.After(now)
}

// composeWaiting makes a batch of an end that is to wait, and of others of its key; nil: there is
// none before wait. Those that have not waited yet come first, as others may be locked for long.
// The batches that wait are beside those that do not.
func (o *outbox) composeWaiting(now time.Time) (b *syncBatch, wait time.Duration) {
	wait = time.Minute
	if o.waitingFlying >= o.rowWaits {
		return nil, wait
	}
	first := -1
	for i := range o.apart {
		a := &o.apart[i].apart
		switch rest := a.waitAgain.Sub(now); {
		case !a.locked:
		case rest > 0:
			wait = min(wait, rest)
		case first < 0 || a.waitAgain.Before(o.apart[first].apart.waitAgain):
			first = i
		}
	}
	if first < 0 {
		return nil, wait
	}
	o.apart[0], o.apart[first] = o.apart[first], o.apart[0]
	like := o.apart[0].apart
	b, o.apart = o.gather(o.apart, func(e *end) bool { return e.apart.isLike(&like) }, like.share)
	o.waitingFlying++
	b.apart, b.WaitsForRows = true, true
	return b, 0
}

// gather makes a batch of most ends, at most, that can be sent together, and returns those that are
// left.
func (o *outbox) gather(ends []end, fits func(*end) bool, most int) (b *syncBatch, left []end) {
	b = &syncBatch{}
	for i, e := range ends {
		if i == 0 {
			b.owner, b.again = e.claim.owner, e.again
			b.ends = make([]end, 0, min(len(ends), most))
		}
		if e.claim.owner != b.owner || e.again != b.again || len(b.ends) == most || !fits(&e) {
			left = append(left, e)
			continue
		}
		b.ends = append(b.ends, e)
	}
	for i := range b.ends {
		b.add(&b.ends[i], o.history)
		b.ends[i].claim.here++
	}
	for i := range b.ends {
		c := b.ends[i].claim
		if c.here == c.open && !c.closing {
			b.close(c)
		}
		c.here = 0
	}
	return b, left
}

// sends notes that a batch is under way. It reports whether more is to be sent.
func (o *outbox) sends(b *syncBatch) (more bool) {
	o.sent += len(b.ends)
	if b.apart {
		o.apartSent += len(b.ends)
	}
	return len(o.ends)+len(o.closed)+len(o.apart) > 0
}

// cut notes that a batch was cut off by its time: the next ones have half as many ends, or twice
// the time.
func (o *outbox) cut(b *syncBatch) {
	switch n := len(b.ends); {
	case n > 1:
		o.most = n / 2
	case n == 1:
		o.most, o.patience = 1, min(2*max(o.patience, o.timeout), max(maxPatience, o.timeout))
	}
}

// accepted notes that the database has recorded the ends of a batch, and how long it took.
func (o *outbox) accepted(b *syncBatch, took time.Duration) {
	if len(b.ends) >= o.most && took < o.timeout/4 {
		o.patience = 0
		if o.most *= 2; o.most > unbounded {
			o.most = 0
		}
	}
	if len(b.Discarded) > 0 {
		o.deadLocked = false
	}
}

// landed notes that a batch has an answer, or will get none.
func (o *outbox) landed(b *syncBatch) {
	o.sent -= len(b.ends)
	if b.apart {
		o.apartSent -= len(b.ends)
	}
	switch {
	case b.WaitsForRows:
		o.waitingFlying--
	case b.apart:
		o.apartFlying = false
	}
}

// returns takes over that a batch has done nothing: ends are sent again, and claims are not closed.
func (o *outbox) returns(b *syncBatch, ends []end) {
	o.ends = append(ends, o.ends...)
	for _, c := range b.closing {
		c.closing = false
		if c.open == 0 {
			o.closed = append(o.closed, c)
		}
	}
}

// setApart has the ends of a batch that was refused go apart, and returns those that go with others
// still: if it met a lock, those that do not need what is most probably locked.
func (o *outbox) setApart(b *syncBatch, locked bool) (others []end) {
	needsIt := func(*end) bool { return true }
	switch discards := len(b.Discarded); {
	case !locked:
	case discards > 0:
		o.deadLocked = true
		if discards < len(b.ends) {
			needsIt = func(e *end) bool { return e.outcome == outcomeDiscarded }
		}
	case b.LocksKeys():
		needsIt = (*end).admitsNext
	}
	share, now := max(len(b.ends)/2, 1), time.Now()
	for _, e := range b.ends {
		if !needsIt(&e) {
			others = append(others, e)
			continue
		}
		waited := b.WaitsForRows && locked
		if waited {
			e.apart.waitAgain = now.Add(pace.Jitter(rowWaitPause))
		}
		if waited || len(b.ends) == 1 {
			o.rest(&e.apart, now, locked)
		}
		if !waited {
			e.apart.share = share
		}
		if !b.apart {
			e.apart.key = 0
		}
		o.apart = append(o.apart, e)
	}
	return others
}

// setLockedApart has the ends of the jobs of locked keys go apart, those of each key together. It
// returns those of the others.
func (o *outbox) setLockedApart(b *syncBatch, keys [][]driver.ID) (others []end) {
	of := make(map[driver.ID]apart)
	for _, jobs := range keys {
		o.lockedKeys++
		for _, j := range jobs {
			of[j] = apart{key: o.lockedKeys, share: len(jobs)}
		}
	}
	now := time.Now()
	for _, e := range b.ends {
		with, locked := of[e.ID]
		if !locked {
			others = append(others, e)
			continue
		}
		e.apart.key, e.apart.share = with.key, with.share
		o.rest(&e.apart, now, true)
		o.apart = append(o.apart, e)
	}
	return others
}

// rest has an end that was refused alone rest until it is sent again.
func (o *outbox) rest(a *apart, now time.Time, locked bool) {
	a.until = now.Add(pace.Jitter(min(firstRest<<min(a.rests, 10), longestRest)))
	a.rests++
	a.locked = locked
}

// claimed takes over what a batch has claimed.
func (o *outbox) claimed(c *claim) {
	o.held += c.open
	if c.open > 0 {
		o.claims[c] = struct{}{}
	}
}

// recorded takes over that the end of a job of a claim is recorded.
func (o *outbox) recorded(c *claim) {
	c.open--
	if c.open > 0 {
		return
	}
	delete(o.claims, c)
	if !c.closing {
		o.closed = append(o.closed, c)
	}
}

// cancel cancels those of some jobs that the worker has.
func (o *outbox) cancel(jobs map[driver.ID]bool) {
	for c := range o.claims {
		for i := range c.jobs {
			if j := &c.jobs[i]; jobs[j.ID] {
				j.cancelled.Store(true)
				if ctx := j.context.Load(); ctx != nil {
					ctx.end(ErrCancelled)
				}
			}
		}
	}
}
