package inventory

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/dblock-go/dblock/internal/merge"
	"github.com/dblock-go/dblock/inventory/internal/engine"
)

// outcome is what became of a request: whoever sent it has the rest.
type outcome struct {
	State    State // 0: nothing
	Replayed bool
}

type answer = merge.Answer[outcome]

// mode is how a batch is to be decided.
type mode struct {
	// assumeNew: the books were read without what is recorded. That saves a look-up a key, and is
	// enough to sell, as a key that is taken can't be written again. It is not enough to refuse:
	// who does not fit is to be asked again.
	assumeNew bool

	recordRefusals bool
}

// decide says what becomes of each request, in the order of their arrival, and what is to be
// written for it. A request that fits is sold even where an earlier, bigger one did not fit.
func decide(reqs []Request, books engine.Books, m mode) (engine.Plan, []answer) {
	d := decision{
		books: books, mode: m,
		decided: make(map[string]engine.Row, len(reqs)), left: make(map[string]int64, len(books.Stock)),
	}
	for sku, buckets := range books.Stock {
		d.left[sku] = total(buckets)
	}
	answers := make([]answer, len(reqs))
	for i, r := range reqs {
		answers[i] = d.request(r)
	}
	return d.plan(), answers
}

type decision struct {
	books   engine.Books
	mode    mode
	decided map[string]engine.Row // by this very batch, by key
	left    map[string]int64      // of each SKU, once this very batch has what it was sold
}

func (d *decision) request(r Request) answer {
	if row, ok := d.books.Recorded[r.Key]; ok {
		return replay(r, row)
	}
	if row, ok := d.decided[r.Key]; ok {
		return replay(r, row)
	}
	left, known := d.left[r.SKU]
	switch {
	case known && r.Qty <= left:
		d.left[r.SKU] -= r.Qty
		d.decided[r.Key] = r.row(Sold)
		return answer{Value: outcome{State: Sold}}
	case d.mode.assumeNew || d.books.Skipped(r.SKU):
		return answer{Alone: true}
	case !known:
		return answer{Err: &UnknownSKUError{r.Key, r.SKU}}
	}
	if d.mode.recordRefusals {
		d.decided[r.Key] = r.row(Refused)
	}
	return answer{
		Value: outcome{State: Refused},
		Err:   &SoldOutError{Key: r.Key, SKU: r.SKU, Wanted: r.Qty, Available: left},
	}
}

func (d *decision) plan() engine.Plan {
	var p engine.Plan
	for _, row := range d.decided {
		p.Insert = append(p.Insert, row)
	}
	for sku, buckets := range d.books.Stock {
		p.Take = append(p.Take, taken(sku, buckets, total(buckets)-d.left[sku])...)
	}
	slices.SortFunc(p.Insert, func(a, b engine.Row) int { return cmp.Compare(a.Key, b.Key) })
	slices.SortFunc(p.Take, func(a, b engine.Units) int {
		return cmp.Or(cmp.Compare(a.SKU, b.SKU), cmp.Compare(a.Bucket, b.Bucket))
	})
	return p
}

// replay answers a request whose key is recorded.
func replay(r Request, row engine.Row) answer {
	if row.SKU != r.SKU || row.Buyer != r.Buyer || row.Qty != r.Qty {
		return answer{Err: &KeyReusedError{Key: r.Key, Recorded: contents(row), Sent: contents(r.row(0))}}
	}
	a := answer{Value: outcome{State: State(row.State), Replayed: true}}
	if a.Value.State == Refused {
		a.Err = &SoldOutError{Key: r.Key, SKU: r.SKU, Wanted: r.Qty, Replayed: true}
	}
	return a
}

func contents(row engine.Row) string {
	return fmt.Sprintf("%d of %q for buyer %q", row.Qty, row.SKU, row.Buyer)
}

func (r Request) row(s State) engine.Row {
	return engine.Row{Key: r.Key, SKU: r.SKU, Buyer: r.Buyer, Qty: r.Qty, State: int16(s)}
}

func (r Request) reservation(o outcome) Reservation {
	if o.State == 0 {
		return Reservation{}
	}
	return Reservation{Key: r.Key, SKU: r.SKU, Buyer: r.Buyer, Qty: r.Qty, State: o.State, Replayed: o.Replayed}
}

func reservation(row engine.Row) Reservation {
	return Reservation{Key: row.Key, SKU: row.SKU, Buyer: row.Buyer, Qty: row.Qty, State: State(row.State)}
}
