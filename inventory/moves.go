package inventory

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/batch"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// decideMoves says what becomes of each reservation, in the order in which the changes came, and
// what is to be written. Nothing becomes of those that are passed over.
func decideMoves(changes []change, recorded map[string][]driver.Row, passed map[string]apart) (driver.Moves, []batch.Result[changed]) {
	d := moving{rows: recorded, set: make(map[string]driver.Set), returned: make(map[driver.Units]int64), uncount: make(map[driver.Quota]int64)}
	results := make([]batch.Result[changed], len(changes))
	for i, c := range changes {
		if a, wait := passed[c.key]; wait {
			results[i].Value.apart = a
		} else {
			results[i] = d.change(c)
		}
	}
	return d.moves(), results
}

type moving struct {
	rows     map[string][]driver.Row // as they are once this very batch is written
	insert   []string                // keys that were not there
	set      map[string]driver.Set
	returned map[driver.Units]int64 // by SKU and bucket
	uncount  map[driver.Quota]int64
}

func (d *moving) change(c change) batch.Result[changed] {
	rows, found := d.rows[c.key]
	if !found {
		if c.to != ReservationCancelled {
			return batch.Result[changed]{Err: fmt.Errorf("%w: nothing is recorded under key %q", ErrNotFound, c.key)}
		}
		d.rows[c.key] = []driver.Row{{Key: c.key, State: int16(ReservationCancelled), Qty: 1, Bucket: driver.NoStock}}
		d.insert = append(d.insert, c.key)
		return batch.Result[changed]{Value: changed{rows: d.rows[c.key]}}
	}
	is := stateOf(rows[0])
	switch {
	case is == ReservationHeld && c.to == ReservationHeld:
		if c.hold > rows[0].Left {
			d.to(rows, ReservationHeld, c.hold)
		}
		return batch.Result[changed]{Value: changed{rows: d.rows[c.key]}}
	case is == ReservationHeld && c.to != ReservationExpired:
		d.to(rows, c.to, 0)
		return batch.Result[changed]{Value: changed{rows: d.rows[c.key]}}
	case is == ReservationExpired && (c.to == ReservationCancelled || c.to == ReservationExpired):
		swept := ReservationState(rows[0].State) == ReservationExpired
		if !swept {
			d.to(rows, ReservationExpired, 0)
		}
		return batch.Result[changed]{Value: changed{rows: d.rows[c.key], replayed: swept}}
	case is == c.to, is == ReservationRefused && c.to == ReservationCancelled, c.to == ReservationExpired:
		return batch.Result[changed]{Value: changed{rows: rows, replayed: true}}
	}
	return batch.Result[changed]{Err: &StateError{c.key, is}}
}

// to changes all lines of a reservation that is held, and gives back what it held.
func (d *moving) to(rows []driver.Row, s ReservationState, hold time.Duration) {
	after := slices.Clone(rows)
	for i := range after {
		after[i].State, after[i].Left = int16(s), hold
	}
	key := rows[0].Key
	d.rows[key] = after
	d.set[key] = driver.Set{Key: key, State: int16(s), Hold: hold}
	if s == ReservationHeld || s == ReservationSold {
		return
	}
	for _, row := range rows {
		if row.Bucket != driver.NoStock {
			d.returned[driver.Units{SKU: row.SKU}] += row.Qty
		}
		if row.Limited {
			d.uncount[driver.Quota{SKU: row.SKU, Buyer: row.Buyer}] += row.Qty
		}
	}
}

func (d *moving) moves() (m driver.Moves) {
	for _, key := range d.insert {
		m.Insert = append(m.Insert, d.rows[key]...)
	}
	for _, set := range d.set {
		m.Set = append(m.Set, set)
	}
	for units, qty := range d.returned {
		units.Qty = qty
		m.Return = append(m.Return, units)
	}
	for quota, qty := range d.uncount {
		m.Uncount = append(m.Uncount, driver.Count{Quota: quota, Qty: qty})
	}
	slices.SortFunc(m.Insert, func(a, b driver.Row) int { return cmp.Compare(a.Key, b.Key) })
	slices.SortFunc(m.Set, func(a, b driver.Set) int { return cmp.Compare(a.Key, b.Key) })
	slices.SortFunc(m.Return, byBucket)
	slices.SortFunc(m.Uncount, func(a, b driver.Count) int { return byQuota(a.Quota, b.Quota) })
	return m
}
