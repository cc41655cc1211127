package inventory

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dblock-go/dblock/internal/batch"
	"github.com/dblock-go/dblock/inventory/internal/driver"
)

// outcome is what became of an order: its sender has the rest.
type outcome struct {
	State    ReservationState // 0: nothing
	Replayed bool
	left     time.Duration // for how long it is held.
	passed   bool          // it was not decided: the next stage has it.
	open     bool          // of one that passed: another transaction writes its key.
	due      []driver.Due  // of one that was looked at, and is over its limit: what the buyer holds that has expired.
	looked   bool          // due was read.

	unresolved bool // of one that is over its limit: an attempt before may yet be committed
}

type result = batch.Result[outcome]

// mode is how a batch is to be decided.
type mode struct {
	// assumeNew: the books were read without what is recorded. That saves a look-up a key, and is
	// enough to sell, as a key that is taken can't be written again. It is not enough to refuse:
	// an order that does not fit is passed over. One that was looked at is asked again.
	assumeNew bool

	recordRefusals bool // those for a limit once the buyer's expired holds were swept
	unresolved     bool // an attempt before may yet be committed: all refusals are to be recorded
}

// decide says what becomes of each order, in the order of their arrival, and what is to be
// written for it. An order that fits is sold even if an earlier, bigger one did not fit.
func decide(orders []order, books driver.Books, m mode) (driver.Plan, []result) {
	d := newDecision(books, m)
	results := make([]result, len(orders))
	for i := range orders {
		results[i] = d.order(&orders[i])
	}
	return d.plan(), results
}

func newDecision(books driver.Books, m mode) decision {
	d := decision{
		books: books, mode: m,
		decided: make(map[string][]driver.Row), left: make(map[string]int64, len(books.Stock)),
		counted: make(map[driver.Quota]driver.Count),
	}
	for sku, buckets := range books.Stock {
		d.left[sku] = total(buckets)
	}
	return d
}

type decision struct {
	books   driver.Books
	mode    mode
	decided map[string][]driver.Row       // by this very batch, by key
	left    map[string]int64              // of each SKU, once this very batch has what it was sold
	counted map[driver.Quota]driver.Count // by this very batch
}

func (d *decision) order(o *order) result {
	if rows, ok := d.books.Recorded[o.Key]; ok {
		return replay(o, rows)
	}
	if rows, ok := d.decided[o.Key]; ok {
		return replay(o, rows)
	}
	behind, refused := d.refuse(o)
	switch {
	case behind != "" || refused != nil && d.mode.assumeNew && o.looked:
		return result{Alone: true, Behind: behind}
	case refused != nil && d.mode.assumeNew:
		return result{Value: outcome{passed: true}}
	case refused == nil:
		d.grant(o)
		return result{Value: outcome{State: o.state(), left: o.Hold}}
	}
	if d.isToRecord(o, refused) {
		d.decided[o.Key] = refusal(o, refused)
	}
	return result{Value: outcome{State: ReservationRefused, unresolved: d.mode.unresolved}, Err: refused}
}

// isToRecord reports that a refusal is recorded. An SKU that is not known may be stocked later, and
// the order sent again. One for a limit is final only if the buyer has no expired holds: see
// seller.decideSwept.
func (d *decision) isToRecord(o *order, refused error) bool {
	_, unknown := refused.(*UnknownSKUError)
	unresolved := d.mode.unresolved || o.unresolved
	return (unresolved || d.mode.recordRefusals && !unknown) && (o.swept || !isOverLimit(refused))
}

// refuse says behind which lock an order has to wait before it can be decided, or why it does not
// fit.
func (d *decision) refuse(o *order) (behind string, err error) {
	var short []Shortage
	for _, l := range o.each() {
		if l.Limit > 0 {
			q := driver.Quota{SKU: l.SKU, Buyer: o.Buyer}
			used, free := d.books.Used[q]
			if used += d.counted[q].Qty; !free {
				return quotaLane(q), nil
			} else if used+l.Qty > l.Limit {
				return "", &BuyerLimitError{Key: o.Key, SKU: l.SKU, Buyer: o.Buyer, Wanted: l.Qty, Limit: l.Limit, Used: used}
			}
		}
		if left, known := d.left[l.SKU]; l.Unstocked || known && l.Qty <= left {
			continue
		} else if d.books.Skipped(l.SKU) {
			return l.SKU, nil
		} else if !known {
			return "", &UnknownSKUError{o.Key, l.SKU}
		}
		short = append(short, Shortage{l.SKU, l.Qty, d.left[l.SKU]})
	}
	if len(short) == 0 {
		return "", nil
	}
	first := short[0]
	if o.lines == nil {
		short = nil
	}
	return "", &SoldOutError{Key: o.Key, SKU: first.SKU, Wanted: first.Wanted, Available: first.Available, Short: short}
}

func (d *decision) grant(o *order) {
	for _, l := range o.each() {
		if !l.Unstocked {
			d.left[l.SKU] -= l.Qty
		}
		if l.Limit > 0 {
			q := driver.Quota{SKU: l.SKU, Buyer: o.Buyer}
			d.counted[q] = driver.Count{Quota: q, Qty: d.counted[q].Qty + l.Qty, Limit: l.Limit}
		}
	}
	d.decided[o.Key] = o.rows(o.state())
}

// refusal is how a refused order is recorded, with the reason.
func refusal(o *order, why error) []driver.Row {
	limit, limited := why.(*BuyerLimitError)
	rows := o.rows(ReservationRefused)
	for i := range rows {
		rows[i].Limited = limited && rows[i].SKU == limit.SKU
	}
	return rows
}

func (d *decision) plan() driver.Plan {
	var p driver.Plan
	for _, rows := range d.decided {
		p.Insert = append(p.Insert, rows...)
	}
	for _, c := range d.counted {
		p.Count = append(p.Count, c)
	}
	for sku, buckets := range d.books.Stock {
		p.Take = append(p.Take, taken(sku, buckets, total(buckets)-d.left[sku])...)
	}
	slices.SortFunc(p.Insert, func(a, b driver.Row) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Line, b.Line))
	})
	slices.SortFunc(p.Count, func(a, b driver.Count) int { return byQuota(a.Quota, b.Quota) })
	slices.SortFunc(p.Take, byBucket)
	return p
}

func byQuota(a, b driver.Quota) int {
	return cmp.Or(cmp.Compare(a.SKU, b.SKU), cmp.Compare(a.Buyer, b.Buyer))
}

func byBucket(a, b driver.Units) int {
	return cmp.Or(cmp.Compare(a.SKU, b.SKU), cmp.Compare(a.Bucket, b.Bucket))
}

// replay answers an order whose key is recorded.
func replay(o *order, rows []driver.Row) result {
	first := rows[0]
	if first.SKU == "" {
		return result{Value: outcome{State: ReservationCancelled, Replayed: true}, Err: &StateError{o.Key, ReservationCancelled}}
	}
	if !o.is(rows) {
		return result{Err: &KeyReusedError{Key: o.Key, Recorded: contents(rows), Sent: contents(o.rows(0))}}
	}
	a := result{Value: outcome{State: stateOf(first), Replayed: true, left: first.Left}}
	switch a.Value.State {
	case ReservationCancelled, ReservationExpired:
		a.Err = &StateError{o.Key, a.Value.State}
	case ReservationRefused:
		a.Err = refused(o, rows)
	}
	return a
}

// refused is why an order was refused. Which lines of a cart were short is not recorded.
func refused(o *order, rows []driver.Row) error {
	if i := slices.IndexFunc(rows, func(r driver.Row) bool { return r.Limited }); i >= 0 {
		return &BuyerLimitError{Key: o.Key, SKU: rows[i].SKU, Buyer: o.Buyer, Wanted: rows[i].Qty, Replayed: true}
	}
	if len(rows) > 1 {
		return &SoldOutError{Key: o.Key, Replayed: true}
	}
	return &SoldOutError{Key: o.Key, SKU: rows[0].SKU, Wanted: rows[0].Qty, Replayed: true}
}

// is reports that an order has the contents that are recorded. For how long it is held, and the
// limit, are none of them.
func (o *order) is(rows []driver.Row) bool {
	n := 0
	for i, l := range o.each() {
		if n++; i >= len(rows) {
			return false
		}
		r := rows[i]
		if r.SKU != l.SKU || r.Qty != l.Qty || r.Buyer != o.Buyer || (r.Bucket == driver.NoStock) != l.Unstocked {
			return false
		}
	}
	return n == len(rows)
}

func contents(rows []driver.Row) string {
	lines := make([]string, len(rows))
	for i, row := range rows {
		lines[i] = fmt.Sprintf("%d of %q", row.Qty, row.SKU)
		if row.Bucket == driver.NoStock {
			lines[i] += " without stock"
		}
	}
	return fmt.Sprintf("%s for buyer %q", strings.Join(lines, ", "), rows[0].Buyer)
}
