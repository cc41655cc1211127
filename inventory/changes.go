package inventory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/batch"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// change is what is to become of a reservation.
type change struct {
	to   ReservationState
	key  string
	hold time.Duration // where it is to be held
	apart
	tries      int       // how often it has waited
	until      time.Time // when its time is up; zero: it waits once
	unresolved bool      // it may have been made
}

// changed is what became of it.
type changed struct {
	rows       []driver.Row // as they are now
	replayed   bool         // it was so before
	apart                   // what it has to wait for; it was not made then
	met        error        // the conflict because of which it waits; nil: rows are locked
	unresolved bool
}

// apart is what a change waits for. Other transactions have some of that locked.
type apart struct {
	waits waits
	lane  string // of those that wait for the same rows
	lines int    // that the reservation has; 0: it is not known

	inserts bool // nothing is recorded under its key
}

// keyWait is how long an insertion waits for a transaction that writes the same key. Then it is
// tried again, so that many of them delay others little.
const keyWait = 2 * time.Millisecond

// waits is for which rows a change waits. It grows with what is found locked.
type waits int

const (
	forNothing waits = iota
	forStock
	forLimits // and for the stock
	forAll    // also for its own rows, and for a transaction that writes its key
)

// changer changes reservations that exist: see the package's documentation for their states. A
// change waits for no row that others have locked. One that has to leaves the others, and waits in
// a queue apart.
type changer struct {
	driver   driver.Driver
	retry    *retrier
	cache    *skuCache
	maxBatch int

	confirms, returns *changeQueue // what touches no stock, and what gives it back
	sweeps            *changeQueue // what has expired
	inserts           *changeQueue // cancellations of keys under which nothing is recorded
	insertsAgain      *changeQueue // those that have met a transaction which writes their key
	open              keysInUse    // of such transactions
	apart             *changeQueue // what waits for rows that are locked
}

type changeQueue = batch.Queue[change, changed]

const (
	apartInFlight = 2                     // statements that wait for rows
	apartQueued   = 50 * time.Millisecond // after which a change that waits looks if its rows are free; it doubles with each try
	maxDoubled    = 2
	openFor       = 2 * time.Second       // after which a key that was found open goes with others again
	patience      = 20 * time.Millisecond // after which another statement begins beside one that is slow
)

func newChanger(d driver.Driver, o Options, r *retrier, cache *skuCache) *changer {
	c := &changer{driver: d, retry: r, cache: cache, maxBatch: o.MaxBatch}
	queue := batch.Options[change, changed]{
		Run:         c.moveBatch,
		Key:         func(change) string { return "" },
		Classify:    r.classOfBatch,
		Weight:      change.weight,
		MaxWeight:   o.MaxBatch,
		MaxBatch:    o.MaxBatch,
		MaxQueue:    o.MaxQueue,
		MaxInFlight: mergedInFlight,
		PerKey:      mergedInFlight,
		Patience:    patience,
	}
	c.confirms = batch.New(queue)
	queue.Ends = func(change) bool { return true }
	c.returns, c.sweeps = batch.New(queue), batch.New(queue)
	apart := batch.Options[change, changed]{
		Run:         c.moveApart,
		Key:         func(c change) string { return c.lane },
		Ends:        queue.Ends,
		Classify:    r.classOfBatch,
		Weight:      change.weight,
		MaxWeight:   o.MaxBatch,
		MaxBatch:    o.MaxBatch,
		MaxInFlight: apartInFlight,
		Apart:       true,
	}
	c.apart = batch.New(apart)
	apart.Key = func(change) string { return "" } // they are parted once one of them has met a lock
	c.inserts = batch.New(apart)
	apart.Key = func(c change) string { return c.lane }
	apart.MaxInFlight = 1
	c.insertsAgain = batch.New(apart)
	return c
}

func (c *changer) close(ctx context.Context) error {
	return errors.Join(c.confirms.Close(ctx), c.returns.Close(ctx), c.sweeps.Close(ctx),
		c.inserts.Close(ctx), c.insertsAgain.Close(ctx), c.apart.Close(ctx))
}

func (c change) weight() int { return max(1, c.lines) }

var errStayedLocked = errors.New("another transaction has rows of it locked")

// change has a change made. One that finds rows locked waits for at most so long in all.
func (c *changer) change(ctx context.Context, q *changeQueue, ch change, wait time.Duration) (Reservation, error) {
	if err := text("", "key", ch.key, 1); err != nil {
		return Reservation{}, err
	}
	began := time.Now()
	waiting, cancel := context.WithDeadline(ctx, began.Add(wait))
	defer cancel()
	if wait > 0 {
		ch.until = began.Add(wait)
	}
	got, err := send(ctx, q, ch)
	is, why := sqlerr.Busy, errStayedLocked
	for n := 0; err == nil && got.waits != forNothing; n++ {
		ch.apart, ch.unresolved = got.apart, ch.unresolved || got.unresolved
		if got.met != nil {
			is, why = sqlerr.Retryable, got.met
		}
		if n > 0 && !pause(waiting, n) {
			err = outOfTime(ctx, ch.unresolved, is, why)
			break
		}
		got, err = c.again(ctx, q, ch)
		ch.tries++
	}
	if err != nil {
		if ch.unresolved && !isVerdict(err) {
			err = &ended{dblock.ErrOutcomeUnknown, err}
		}
		return Reservation{}, c.retry.explain(err, fmt.Sprintf("reservation %q", ch.key))
	}
	r := reservation(got.rows, began)
	r.Replayed = got.replayed
	return r, nil
}

// again makes a change that has to wait. Other changes are before it, and their rows may be locked
// for long. So it leaves their queue after a while, and looks if its own rows are free. A change
// that inserts its key can't look. It waits only briefly, in a queue of such changes. One that has
// waited, or whose key was found open lately, is in another queue, so that it does not delay the
// first tries of others.
func (c *changer) again(ctx context.Context, q *changeQueue, ch change) (changed, error) {
	switch {
	case ch.inserts && ch.tries == 0 && !c.open.has(ch.key):
		return c.inserts.Do(ctx, ch)
	case ch.inserts:
		got, err := c.insertsAgain.DoWithin(ctx, ch, time.Until(ch.until))
		if errors.Is(err, batch.ErrNotInTime) {
			return changed{apart: ch.apart}, nil
		}
		return got, err
	}
	got, err := c.apart.DoWithin(ctx, ch, apartQueued<<min(ch.tries, maxDoubled))
	if !errors.Is(err, batch.ErrNotInTime) {
		return got, err
	}
	ch.apart = apart{lines: ch.lines}
	return send(ctx, q, ch)
}

// send has a change made by a queue in which changes do not wait. If its statement had too many
// lines, it goes into another one.
func send(ctx context.Context, q *changeQueue, ch change) (changed, error) {
	got, err := q.Do(ctx, ch)
	for err == nil && got.waits == forNothing && got.lines > 0 {
		ch.lines = got.lines
		got, err = q.Do(ctx, ch)
	}
	return got, err
}

// isVerdict reports that an error says what is recorded.
func isVerdict(err error) bool {
	var state *StateError
	return errors.As(err, &state) || errors.Is(err, ErrNotFound)
}

// moveBatch makes changes that wait for nothing. One that is blocked when it is alone goes
// apart.
func (c *changer) moveBatch(ctx context.Context, changes []change, _ bool) ([]batch.Result[changed], error) {
	results, err := c.move(ctx, changes, attempt{rowless: true, conflicts: ofBatch})
	if isBlocked(err) && len(changes) == 1 {
		ch := changes[0]
		ch.apart = apart{forAll, "key " + ch.key, ch.lines, false}
		return c.waiting([]change{ch}, err), nil
	}
	return results, err
}

// moveApart makes changes that wait for the same rows. Those that are still locked are waited for
// again, behind others: by all of the changes, unless a trigger of one of them has met a lock.
func (c *changer) moveApart(ctx context.Context, changes []change, _ bool) ([]batch.Result[changed], error) {
	several := len(changes) > 1
	this := attempt{conflicts: awaitKey}
	ctx = driver.WithLockWait(ctx, lockWaitFor(changes, c.retry.timeout*2/5))
	if several || changes[0].inserts {
		this.conflicts = ofBatch
	}
	results, err := c.move(ctx, changes, this)
	if ranOut(err) || isBlocked(err) && (!several || c.retry.named(err) == sqlerr.Busy && !isHookBusy(err)) {
		return c.waiting(changes, err), nil
	}
	return results, err
}

// lockWaitFor is how long a statement waits for the rows of some changes: four times as long with
// each try of theirs, and while any of them has time. A wait that is shorter than the server's
// queue for a row would begin again at its end each time.
func lockWaitFor(changes []change, most time.Duration) time.Duration {
	if changes[0].inserts {
		return keyWait
	}
	tries, left := 0, time.Duration(0)
	for _, c := range changes {
		tries = max(tries, c.tries)
		if c.until.IsZero() {
			left = most
		} else {
			left = max(left, time.Until(c.until))
		}
	}
	return max(driver.LockWait, min(driver.LockWait<<min(2*tries, 10), most, left))
}

// waiting answers that the changes of a batch were not made because of err, and have to wait.
func (c *changer) waiting(changes []change, err error) []batch.Result[changed] {
	if c.retry.named(err) != sqlerr.Retryable {
		err = nil
	}
	if len(changes) == 1 && changes[0].inserts {
		c.open.note(changes[0].key, openFor)
	}
	results := make([]batch.Result[changed], len(changes))
	for i := range results {
		results[i].Value.apart, results[i].Value.met = changes[i].apart, err
	}
	return results
}

// move makes all changes of a batch but those that find rows locked for which they do not wait.
// Running it again is safe: what was committed is found so. A trigger of the host's waits briefly
// for locks of its own, as the rows are locked meanwhile.
func (c *changer) move(ctx context.Context, changes []change, first attempt) (results []batch.Result[changed], err error) {
	var moves driver.Moves
	err = c.retry.do(ctx, first, func(ctx context.Context, this attempt) (err error) {
		sent := false
		err = c.driver.Move(ctx, func(tx driver.MoveTx) (err error) {
			moves, results, err = locked(ctx, tx, changes, c.maxBatch)
			if err != nil || moves.IsEmpty() {
				return err
			}
			sent = true
			return tx.Write(driver.Briefly(ctx), moves)
		})
		if sent { // also without a reply: it may have been committed
			for _, u := range moves.Return {
				c.cache.cameIn(u.SKU)
			}
		}
		if err != nil && sent {
			switch is := c.retry.class(err); {
			case is == sqlerr.Duplicate && len(moves.Insert) > 0:
			case is == sqlerr.NotPermitted:
			default:
				return driver.HookFailed(err, is) // one of them may be to blame
			}
		}
		for i := range results {
			results[i].Value.unresolved = this.unresolved
		}
		return err
	})
	if isHookBusy(err) && (ranOut(err) || isBlocked(err)) {
		err = &blockedError{err, false}
	}
	if err != nil {
		return nil, err
	}
	c.cache.noteReturned(moves.Uncount)
	return results, nil
}

// locked locks what a batch changes and decides about each change. All of a batch wait for the
// same. Changes of more than mostLines together are left to other statements, which know how many
// lines they have.
func locked(ctx context.Context, tx driver.MoveTx, changes []change, mostLines int) (driver.Moves, []batch.Result[changed], error) {
	waits, inserting := changes[0].waits, changes[0].inserts
	keys := make([]string, len(changes))
	for i, c := range changes {
		keys[i] = c.key
	}
	slices.Sort(keys)
	recorded, taken, err := tx.Reservations(ctx, slices.Compact(keys), waits == forAll && !inserting)
	if err != nil {
		return driver.Moves{}, nil, err
	}
	passed := tooLong(changes, recorded, mostLines)
	for _, c := range changes {
		_, found := recorded[c.key]
		inserts := !found && !taken[c.key] && c.to == ReservationCancelled
		if taken[c.key] || inserts != inserting {
			passed[c.key] = apart{forAll, "key " + c.key, c.lines, inserts}
		}
	}
	moves, results := decideMoves(changes, maps.Clone(recorded), passed)
	if len(moves.Return) == 0 && len(moves.Uncount) == 0 {
		return moves, results, nil
	}
	quotas, skus, err := tx.Returns(ctx, moves, waits >= forLimits, waits >= forStock)
	if err != nil {
		return driver.Moves{}, nil, err
	}
	free := len(passed)
	for _, set := range moves.Set {
		to := ReservationState(set.State)
		if a := inTheWay(recorded[set.Key], quotas, skus); a.waits > waits && to != ReservationHeld && to != ReservationSold {
			passed[set.Key] = a
		}
	}
	if len(passed) > free {
		moves, results = decideMoves(changes, recorded, passed)
	}
	return moves, results, nil
}

// tooLong returns the changes that do not fit into a statement of so many lines. The first one
// always fits.
func tooLong(changes []change, recorded map[string][]driver.Row, mostLines int) map[string]apart {
	long, lines, fits := make(map[string]apart), 0, make(map[string]bool)
	for _, c := range changes {
		n := len(recorded[c.key])
		switch {
		case fits[c.key]:
		case n > 0 && lines > 0 && lines+n > mostLines:
			long[c.key] = apart{c.waits, c.lane, n, false}
		default:
			lines, fits[c.key] = lines+n, true
		}
	}
	return long
}

// inTheWay says what a reservation has to wait for to give back what it holds, if only those rows
// could be locked.
func inTheWay(rows []driver.Row, quotas map[driver.Quota]bool, skus map[string]bool) (a apart) {
	a.lines = len(rows)
	for _, row := range rows {
		a.lane += "sku " + row.SKU + "\x00"
		if row.Bucket != driver.NoStock && !skus[row.SKU] {
			a.waits = max(a.waits, forStock)
		}
		if row.Limited && !quotas[driver.Quota{SKU: row.SKU, Buyer: row.Buyer}] {
			a.waits = forLimits
		}
	}
	if a.waits == forLimits {
		a.lane += "buyer " + rows[0].Buyer
	}
	return a
}
