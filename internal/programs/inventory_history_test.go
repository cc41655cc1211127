package programs

import (
	"testing"
	"time"

	"github.com/dblock-go/dblock/inventory"
)

// TestChecksInventory gives the checker histories of orders that are right, and ones that are wrong
// in each way.
func TestChecksInventory(t *testing.T) {
	t.Parallel()
	const ms = int64(time.Millisecond)
	line := []inventory.Line{{SKU: "a", Qty: 2}}
	call := func(do, answer string, state inventory.ReservationState, from, to int64) inventoryOp {
		return inventoryOp{
			ID: from, Do: do, Key: "k", Buyer: "b", Lines: line, Called: from * ms,
			Returned: to * ms, Answer: answer, State: state,
		}
	}
	with := func(o inventoryOp, change func(*inventoryOp)) inventoryOp { change(&o); return o }
	holds := func(o *inventoryOp) { o.Hold = 10 * time.Millisecond }
	again := func(o *inventoryOp) { o.Replayed = true }
	lost := func(o *inventoryOp) { o.Answer, o.Returned = unresolved, never }
	short := func(o *inventoryOp) { o.Short = []inventory.Shortage{{SKU: "a", Wanted: 2}} }
	other := func(o *inventoryOp) { o.Buyer = "c" }
	fewer := func(o *inventoryOp) { o.Lines = nil }
	hooked := func(o *inventoryOp) { o.Hook = true }
	one := map[string]int{"k": 1}
	row := func(state inventory.ReservationState) []orderRow {
		return []orderRow{{Key: "k", SKU: "a", Buyer: "b", Qty: 2, State: state}}
	}
	came := func(n int64) map[string]inventory.Line { return map[string]inventory.Line{"first": {SKU: "a", Qty: n}} }
	sold := call(reserves, granted, inventory.ReservationSold, 1, 2)
	hold := with(call(reserves, granted, inventory.ReservationHeld, 1, 2), holds)
	refused := with(call(reserves, soldOut, 0, 1, 2), short)
	limited := with(call(reserves, overLimit, 0, 1, 2), short)
	confirmed := func(from int64) inventoryOp { return call(confirms, granted, inventory.ReservationSold, from, from+1) }
	after, isSold := call(reserves, granted, inventory.ReservationSold, 3, 4), row(inventory.ReservationSold)
	early, late := call(confirms, isExpired, 0, 3, 4), call(confirms, isExpired, 0, 20, 21)
	for name, c := range map[string]struct {
		ops  []inventoryOp
		log  inventoryLog
		want string
	}{
		"sold":                  {[]inventoryOp{sold}, inventoryLog{rows: isSold}, ""},
		"sold, and again":       {[]inventoryOp{sold, with(after, again)}, inventoryLog{rows: isSold}, ""},
		"confirmed":             {[]inventoryOp{hold, confirmed(5)}, inventoryLog{rows: isSold}, ""},
		"expired":               {[]inventoryOp{hold, late}, inventoryLog{rows: row(inventory.ReservationExpired)}, ""},
		"expired and not swept": {[]inventoryOp{hold, late}, inventoryLog{rows: row(inventory.ReservationHeld)}, ""},
		"unknown, and sold":     {[]inventoryOp{with(sold, lost)}, inventoryLog{rows: isSold}, ""},
		"unknown, and not sold": {[]inventoryOp{with(sold, lost)}, inventoryLog{}, ""},
		"sold out":              {[]inventoryOp{refused}, inventoryLog{changes: came(1)}, ""},
		"cancelled before": {
			[]inventoryOp{call(aborts, granted, inventory.ReservationCancelled, 1, 2), call(reserves, isCancelled, 0, 3, 4)},
			inventoryLog{rows: []orderRow{{Key: "k", State: inventory.ReservationCancelled}}}, "",
		},
		"sold, and not there":      {[]inventoryOp{sold}, inventoryLog{}, "order"},
		"sold out, and there":      {[]inventoryOp{refused}, inventoryLog{rows: isSold}, "order"},
		"sold out with units left": {[]inventoryOp{refused}, inventoryLog{changes: came(2)}, "sold out"},
		"limited without a use":    {[]inventoryOp{limited}, inventoryLog{changes: came(2)}, "limit"},
		"another buyer":            {[]inventoryOp{with(sold, other)}, inventoryLog{rows: isSold}, "order"},
		"another number":           {[]inventoryOp{with(sold, fewer)}, inventoryLog{rows: isSold}, "order"},
		"sold twice":               {[]inventoryOp{sold, after}, inventoryLog{rows: isSold}, "order"},
		"confirmed too late":       {[]inventoryOp{hold, confirmed(20)}, inventoryLog{rows: isSold}, "order"},
		"expired too early":        {[]inventoryOp{hold, early}, inventoryLog{rows: row(inventory.ReservationExpired)}, "order"},
		"sold after its end":       {[]inventoryOp{hold, late}, inventoryLog{rows: isSold}, "order"},
		"never sent":               {nil, inventoryLog{rows: isSold}, "order"},
		"a row of a hook too many": {[]inventoryOp{sold}, inventoryLog{rows: isSold, effects: one}, "hook"},
		"no row of a hook":         {[]inventoryOp{with(sold, hooked)}, inventoryLog{rows: isSold}, "hook"},
		"a delivery that is lost":  {[]inventoryOp{call(restocks, granted, 0, 1, 2)}, inventoryLog{}, "restock"},
		"a delivery that was refused": {
			[]inventoryOp{call(restocks, nothing, 0, 1, 2)},
			inventoryLog{changes: map[string]inventory.Line{"k": line[0]}}, "restock",
		},
		"an Audit that differs": {nil, inventoryLog{drifts: []string{"1"}}, "books"},
	} {
		var v verdict
		c.log.ops = c.ops
		if checkInventory(&v, c.log); v.kind != c.want {
			t.Errorf("%s: the checker says %q, want %q: %s", name, v.kind, c.want, &v)
		}
	}
}
