package batch

import (
	"slices"
	"time"
)

// A request may contend for several keys. In one statement with others it would find what other
// statements of this process have locked, and be sent again. So its statement begins when none in
// flight carries one of its keys, and none that does begins before it.
//
// A slow statement is waited for no longer than carriesFor. One that stands aside may wait for a
// lock of another process, and is waited for no longer than asideFor, once. Then Run passes over
// what it finds locked. A request whose Key is Options.Common waits for no such statement: those
// behind it may need none of its keys. It moves to the lane of the key that is locked.

const (
	carriesFor = time.Second
	asideFor   = 200 * time.Millisecond

	// holdsFor is for how long a statement that stands aside keeps its other keys from others.
	holdsFor = 50 * time.Millisecond
)

// carried notes that a statement begins that carries the lane's key.
func (l *lane[Q, A]) carried() {
	l.flying++
	l.began = time.Now()
}

// free returns the other keys of a request that a batch does not carry, and for how long statements
// in flight are waited for that carry one of them; 0: for none. stood is when the request first
// waited for one that stands aside.
func (q *Queue[Q, A]) free(req Q, own *lane[Q, A], b *batch[Q, A], stood time.Time) (others []string, wait time.Duration) {
	for _, key := range q.o.Others(req) {
		l := q.lanes[key]
		if l == own || l != nil && (slices.Contains(b.others, l) || slices.Contains(b.lanes, l)) {
			continue
		}
		others = append(others, key)
		if l == nil || l.flying == 0 {
			continue
		}
		most, since := carriesFor, l.began
		if l.blocked > 0 {
			most = asideFor
			if !stood.IsZero() {
				since = stood
			}
		}
		wait = max(wait, most-time.Since(since))
	}
	return others, wait
}

// carry notes that a batch has a call with other keys.
func (q *Queue[Q, A]) carry(b *batch[Q, A], others []string) {
	for _, key := range others {
		l := q.laneOf(key)
		l.carried()
		l.shared = true
		b.others = append(b.others, l)
	}
}

// reserve has a batch carry the other keys of a call. It returns false if the call is to wait.
func (q *Queue[Q, A]) reserve(c *call[Q, A], b *batch[Q, A]) bool {
	others, wait := q.free(c.req, c.lane, b, c.stood)
	if wait <= 0 {
		q.carry(b, others)
		return true
	}
	q.stands = append(q.stands, c.lane)
	aside := slices.ContainsFunc(others, q.standsAside)
	if aside && c.stood.IsZero() {
		c.stood = time.Now()
	}
	if !aside || time.Since(c.stood) >= asideFor { // else the wait is long, and stops no others
		q.want(others)
		for _, next := range c.lane.calls[:min(len(c.lane.calls), q.o.MaxBatch)] { // to be sent together
			q.want(q.o.Others(next.req))
		}
	}
	if due := time.Now().Add(wait); c.due.IsZero() || due.Before(c.due) {
		c.due = due
		time.AfterFunc(wait, func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			c.due = time.Time{}
			q.unwant()
			q.dispatch()
		})
	}
	return false
}

// standsAside reports whether a statement that carries a key waits for a lock.
func (q *Queue[Q, A]) standsAside(key string) bool {
	l := q.lanes[key]
	return l != nil && l.blocked > 0
}

// move has the first call of a lane, if its Key is Options.Common, wait in the lane of another of
// its keys, whose calls wait for a lock. It returns false if there is none, or if the call has
// waited for so long that it is to be sent: its keys may be locked in turns.
func (q *Queue[Q, A]) move(from *lane[Q, A]) bool {
	c := from.head()
	if q.o.Common == "" || q.o.Key(c.req) != q.o.Common || q.isLate(c) {
		return false
	}
	for _, key := range q.o.Others(c.req) {
		if to := q.lanes[key]; to != nil && to != from && to.waits() {
			from.pop()
			c.sent, c.lane = false, to
			if c.since.IsZero() {
				c.since = time.Now()
			}
			to.push(c)
			return true
		}
	}
	return false
}

// want has no statement begin that carries one of these keys.
func (q *Queue[Q, A]) want(keys []string) {
	for _, key := range keys {
		if l := q.laneOf(key); !l.wanted {
			l.wanted = true
			q.wanted = append(q.wanted, l)
		}
	}
}

// unwant has the calls that wait for statements looked at anew, before others. Those of lanes that
// have just had a statement come after them.
func (q *Queue[Q, A]) unwant(had ...*lane[Q, A]) {
	stands, wanted := q.stands, q.wanted
	q.stands, q.wanted = nil, nil
	for _, l := range wanted {
		l.wanted = false
	}
	for i, l := range stands {
		if !l.ready && l.mayBegin(q.o.PerKey) && !slices.Contains(had, l) {
			l.ready = true
			q.ready = slices.Insert(q.ready, min(i, len(q.ready)), l)
		}
	}
	for _, l := range slices.Concat(wanted, stands) {
		q.offer(l)
		q.dropIdle(l)
	}
}
