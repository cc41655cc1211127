package inventory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/merge"
	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// A reservation goes from held to sold, cancelled or expired, and stays there. One that was cancelled before it was made is
// recorded as such, so that it never comes into being.

// Confirm sells what is held under key. It writes to the reservation alone, and never to the stock. A reservation that is sold
// already is returned with Replayed set.
//
// Errors: ErrExpired, ErrCancelled, ErrNotFound, ErrSoldOut (its order was refused, and that is recorded), ErrInvalid, and of
// dblock ErrOverloaded, ErrBusy, ErrUnavailable, ErrOutcomeUnknown (call it again), ErrSchema, ErrClosed.
func (s *Store) Confirm(ctx context.Context, key string) (Reservation, error) {
	return s.change(ctx, s.confirms, change{to: Sold, key: key})
}

// Extend holds what is held under key for d from now on, or for longer where it was held for longer. d is as Request.Hold.
//
// Errors: ErrAlreadyConfirmed, and those of Confirm.
func (s *Store) Extend(ctx context.Context, key string, d time.Duration) (Reservation, error) {
	if err := holdTime("d", d); err != nil {
		return Reservation{}, err
	}
	return s.change(ctx, s.confirms, change{to: Held, key: key, hold: d})
}

// Cancel gives back what is held under key, and makes sure that nothing ever will be: a key that is not known yet is recorded as
// cancelled, and an order that comes under it later is refused with ErrCancelled. What has expired stays so, and is no error;
// neither is what was cancelled or refused before, returned with Replayed set.
//
// Errors: ErrAlreadyConfirmed, ErrInvalid, and of dblock ErrBusy, ErrUnavailable, ErrOutcomeUnknown (call it again), ErrSchema,
// ErrClosed. It is never refused for too many calls.
func (s *Store) Cancel(ctx context.Context, key string) (Reservation, error) {
	return s.change(ctx, s.returns, change{to: Cancelled, key: key})
}

// change is what is to become of a reservation.
type change struct {
	to   State
	key  string
	hold time.Duration // where it is to be held
}

// changed is what became of it.
type changed struct {
	rows     []engine.Row // as they are now
	replayed bool         // it was so before
}

type changes = merge.Queue[change, changed]

// newChanges makes a queue of changes: they contend for nothing but the statement.
func (s *Store) newChanges(ends bool) *changes {
	return merge.New(merge.Options[change, changed]{
		Run:         s.move,
		Key:         func(change) string { return "" },
		Ends:        func(change) bool { return ends },
		MaxBatch:    s.o.MaxBatch,
		MaxQueue:    s.o.MaxQueue,
		MaxInFlight: 1,
	})
}

func (s *Store) change(ctx context.Context, q *changes, c change) (Reservation, error) {
	if err := text("", "key", c.key, 1); err != nil {
		return Reservation{}, err
	}
	began := time.Now()
	got, err := q.Do(ctx, c)
	if err != nil {
		return Reservation{}, s.explain(err, fmt.Sprintf("reservation %q", c.key))
	}
	r := reservation(got.rows, began)
	r.Replayed = got.replayed
	return r, nil
}

// move makes all changes of a batch. Running it again is safe: what was committed is found so.
func (s *Store) move(ctx context.Context, batch []change, _ bool) (answers []merge.Answer[changed], err error) {
	keys := make([]string, len(batch))
	for i, c := range batch {
		keys[i] = c.key
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	var moves engine.Moves
	err = s.retry(ctx, attempt{}, func(ctx context.Context, _ attempt) error {
		return s.engine.Move(ctx, keys, func(recorded map[string][]engine.Row) engine.Moves {
			moves, answers = decideMoves(batch, recorded)
			return moves
		})
	})
	for _, u := range moves.Return {
		s.cameIn(u.SKU)
	}
	s.known.noteReturned(moves.Uncount)
	return answers, err
}

// decideMoves says what becomes of each reservation, in the order in which the changes came, and what is to be written.
func decideMoves(batch []change, recorded map[string][]engine.Row) (engine.Moves, []merge.Answer[changed]) {
	d := moving{rows: recorded, set: make(map[string]engine.Set), back: make(map[engine.Units]int64), uncount: make(map[engine.Quota]int64)}
	answers := make([]merge.Answer[changed], len(batch))
	for i, c := range batch {
		answers[i] = d.change(c)
	}
	return d.moves(), answers
}

type moving struct {
	rows    map[string][]engine.Row // as they are once this very batch is written
	insert  []string                // keys that were not there
	set     map[string]engine.Set
	back    map[engine.Units]int64 // by SKU and bucket
	uncount map[engine.Quota]int64
}

func (d *moving) change(c change) merge.Answer[changed] {
	rows, found := d.rows[c.key]
	if !found {
		if c.to != Cancelled {
			return merge.Answer[changed]{Err: fmt.Errorf("%w: nothing is recorded under key %q", ErrNotFound, c.key)}
		}
		d.rows[c.key] = []engine.Row{{Key: c.key, State: int16(Cancelled), Qty: 1, Bucket: engine.NoStock}}
		d.insert = append(d.insert, c.key)
		return merge.Answer[changed]{Value: changed{rows: d.rows[c.key]}}
	}
	is := stateOf(rows[0])
	switch {
	case is == Held && c.to == Held:
		if c.hold > rows[0].Left {
			d.to(rows, Held, c.hold)
		}
		return merge.Answer[changed]{Value: changed{rows: d.rows[c.key]}}
	case is == Held && c.to != Expired:
		d.to(rows, c.to, 0)
		return merge.Answer[changed]{Value: changed{rows: d.rows[c.key]}}
	case is == Expired && (c.to == Cancelled || c.to == Expired):
		swept := State(rows[0].State) == Expired
		if !swept {
			d.to(rows, Expired, 0)
		}
		return merge.Answer[changed]{Value: changed{rows: d.rows[c.key], replayed: swept}}
	case is == c.to, is == Refused && c.to == Cancelled, c.to == Expired:
		return merge.Answer[changed]{Value: changed{rows: rows, replayed: true}}
	}
	return merge.Answer[changed]{Err: &StateError{c.key, is}}
}

// to changes all lines of a reservation that is held, and gives back what it held.
func (d *moving) to(rows []engine.Row, s State, hold time.Duration) {
	after := slices.Clone(rows)
	for i := range after {
		after[i].State, after[i].Left = int16(s), hold
	}
	key := rows[0].Key
	d.rows[key] = after
	d.set[key] = engine.Set{Key: key, State: int16(s), Hold: hold}
	if s == Held || s == Sold {
		return
	}
	for _, row := range rows {
		if row.Bucket != engine.NoStock {
			d.back[engine.Units{SKU: row.SKU}] += row.Qty
		}
		if row.Limited {
			d.uncount[engine.Quota{SKU: row.SKU, Buyer: row.Buyer}] += row.Qty
		}
	}
}

func (d *moving) moves() (m engine.Moves) {
	for _, key := range d.insert {
		m.Insert = append(m.Insert, d.rows[key]...)
	}
	for _, set := range d.set {
		m.Set = append(m.Set, set)
	}
	for units, qty := range d.back {
		units.Qty = qty
		m.Return = append(m.Return, units)
	}
	for quota, qty := range d.uncount {
		m.Uncount = append(m.Uncount, engine.Count{Quota: quota, Qty: qty})
	}
	slices.SortFunc(m.Insert, func(a, b engine.Row) int { return cmp.Compare(a.Key, b.Key) })
	slices.SortFunc(m.Set, func(a, b engine.Set) int { return cmp.Compare(a.Key, b.Key) })
	slices.SortFunc(m.Return, byBucket)
	slices.SortFunc(m.Uncount, func(a, b engine.Count) int { return byQuota(a.Quota, b.Quota) })
	return m
}
