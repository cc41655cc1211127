package programs

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/dblock-go/dblock/inventory"
)

// inventoryLog is what is known of a program's orders in the end.
type inventoryLog struct {
	ops      []inventoryOp
	rows     []orderRow
	changes  map[string]inventory.Line // adjustments, by ID
	effects  map[string]int            // of hooks, by key
	drifts   []string
	failures []failure
	faults   bool
}

// orderRow is a row of the table of reservations.
type orderRow struct {
	Key, SKU, Buyer string
	Bucket          int
	Qty             int64
	State           inventory.ReservationState
	Limited         bool
}

// inTable is what the table says of an order in the end, as if it were a call.
const inTable = "the table"

// never is when a call returns whose answer did not come: it may take effect at any time.
const never = math.MaxInt64

// readInventory reads the logs of all processes. A call that has no end is one whose process was
// killed.
func readInventory(logs [][]log) (all inventoryLog, err error) {
	type id struct {
		process int
		op      int64
	}
	ops := map[id]inventoryOp{}
	for _, lines := range logs {
		for _, l := range lines {
			switch l.Word {
			case "call", "end":
				var o inventoryOp
				err = json.Unmarshal(l.Data, &o)
				if l.Word == "call" {
					o.Answer, o.Returned = unresolved, never
				} else if o.Answer == unresolved {
					o.Returned = never
				}
				ops[id{o.Process, o.ID}] = o
			case "drift":
				all.drifts, err = added(all.drifts, l)
			case "error":
				all.failures, err = added(all.failures, l)
			}
			if err != nil {
				return all, err
			}
		}
	}
	for _, o := range ops {
		all.ops = append(all.ops, o)
	}
	slices.SortFunc(all.ops, func(a, b inventoryOp) int { return cmp.Compare(a.Called, b.Called) })
	return all, nil
}

// contentsOf are the contents of an order, as the table and the answers name them.
func contentsOf(lines []inventory.Line) string {
	sums := map[string]int64{}
	for _, l := range lines {
		sums[l.SKU] += l.Qty
	}
	var words []string
	for sku, n := range sums {
		words = append(words, fmt.Sprint(n, " ", sku))
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}

// checkInventory checks what the processes have logged, and what is in the tables.
func checkInventory(v *verdict, all inventoryLog) {
	v.stats = map[string]int{}
	byKey := map[string][]inventoryOp{}
	for _, o := range all.ops {
		if v.stats[o.Answer]++; o.Do == restocks {
			all.checkRestock(v, o)
			continue
		}
		byKey[o.Key] = append(byKey[o.Key], o)
	}
	final := map[string]*inventoryOp{}
	for _, r := range all.rows {
		o := final[r.Key]
		if o == nil {
			o = &inventoryOp{Do: inTable, Key: r.Key, Buyer: r.Buyer, Called: never, Returned: never}
			o.Answer, o.State = granted, r.State
			final[r.Key] = o
		}
		if r.SKU != "" {
			o.Lines = append(o.Lines, inventory.Line{SKU: r.SKU, Qty: r.Qty})
		}
		if o.State != r.State || o.Buyer != r.Buyer {
			v.add("order", "the rows of %s differ: %+v, %+v", r.Key, o, r)
		}
		if byKey[r.Key] == nil {
			v.add("order", "the order %+v was never sent", r)
		}
	}
	for key, ops := range byKey {
		end := final[key]
		if end == nil {
			end = &inventoryOp{Do: inTable, Key: key, Answer: notFound, Called: never, Returned: never}
		}
		end.Got = contentsOf(end.Lines)
		checkOrder(v, append(ops, *end), all.faults)
		all.checkEffect(v, ops, *end)
	}
	checkRefusals(v, all)
	for _, d := range all.drifts {
		v.add("books", "%s", d)
	}
	for _, f := range all.failures {
		v.add("error", "%s: %s", f.Call, f.Error)
	}
}

// checkRestock compares a change of the stock with the table.
func (all *inventoryLog) checkRestock(v *verdict, o inventoryOp) {
	is, found := all.changes[o.Key]
	same := found && is == o.Lines[0]
	again := slices.ContainsFunc(all.ops, func(other inventoryOp) bool {
		another := other.ID != o.ID || other.Process != o.Process
		return another && other.Do == restocks && other.Key == o.Key && other.Answer != nothing
	})
	switch {
	case o.Answer == granted && !same, o.Answer == isReused && (!found || same),
		o.Answer != granted && o.Answer != unresolved && same && !again,
		o.Answer == granted && o.Replayed && !again && !all.faults:
		v.add("restock", "it is recorded as %+v: %+v", is, o)
	}
}

// checkEffect says whether the hooks have written a row for each order of their Stores.
func (all *inventoryLog) checkEffect(v *verdict, ops []inventoryOp, end inventoryOp) {
	hooked, plain := false, false
	for _, o := range ops {
		if o.orders() {
			hooked, plain = hooked || o.Hook, plain || !o.Hook
		}
	}
	n, was := all.effects[end.Key], end.Got != "" && end.State != inventory.ReservationRefused
	if n > 1 || n == 1 && (!was || !hooked) || n == 0 && was && !plain {
		v.add("hook", "%d rows of hooks: %+v", n, end)
	}
}

// orders reports that the call is an order, not a change of one.
func (o *inventoryOp) orders() bool { return o.Do == reserves || o.Do == carts }

// checkOrder checks all calls of one key.
func checkOrder(v *verdict, calls []inventoryOp, faults bool) {
	var ops []porcupine.Operation
	note := func(o inventoryOp) {
		ops = append(ops, porcupine.Operation{ClientId: len(ops), Input: o, Call: o.Called, Return: o.Returned})
	}
	p := pruner{recorded: never, ended: never, seen: map[string]bool{}}
	for _, o := range calls {
		p.learn(o)
	}
	for _, o := range calls {
		if o.Answer == nothing || o.Answer == unresolved && !p.counts(o) {
			continue
		}
		o.Faults = faults
		note(o)
		found := o.Answer == isCancelled || o.Answer == isExpired || o.Answer == granted && o.Replayed
		if faults && o.orders() && found && o.Called < p.recorded { // it may have found what its own first try has written
			o.Answer = unresolved
			note(o)
		}
	}
	switch porcupine.CheckOperationsTimeout(orderModel, ops, 10*time.Second) {
	case porcupine.Illegal:
		v.add("order", "no order could have been answered so:\n%s", showOps(calls))
	case porcupine.Unknown:
		v.stats["unchecked"]++
	}
}

// pruner leaves out calls without an answer that change nothing, or nothing but what an earlier one
// may change as well. Each of the others doubles the histories that porcupine tries.
type pruner struct {
	recorded int64 // when something was certainly recorded
	ended    int64 // when it had certainly become final
	seen     map[string]bool
}

// learn notes what an answer says about the key.
func (p *pruner) learn(o inventoryOp) {
	final := o.Answer == isCancelled || o.Answer == isExpired || o.Answer == isConfirmed
	if final || o.Answer == granted || o.Answer == isReused {
		p.recorded = min(p.recorded, o.Returned)
	}
	if final || o.Answer == granted && (o.State != inventory.ReservationHeld) {
		p.ended = min(p.ended, o.Returned)
	}
}

// counts reports whether a call without an answer may change something. Calls come in their order.
func (p *pruner) counts(o inventoryOp) bool {
	id := fmt.Sprint(o.Do, o.Buyer, contentsOf(o.Lines), o.Hold, o.Records)
	last := p.ended
	if o.orders() {
		last = p.recorded
	}
	if o.Do == looks || o.Called > last || p.seen[id] {
		return false
	}
	p.seen[id] = true
	return true
}

func showOps(ops []inventoryOp) string {
	ops = slices.DeleteFunc(slices.Clone(ops), func(o inventoryOp) bool { return o.Answer == nothing })
	slices.SortStableFunc(ops, func(a, b inventoryOp) int { return cmp.Compare(a.Called, b.Called) })
	var lines []string
	for _, o := range ops[:min(len(ops), 25)] {
		since := func(at int64) string {
			if at == never || at == 0 {
				return "?"
			}
			return time.Duration(at - ops[0].Called).String()
		}
		sent := fmt.Sprintf("%d/%d %s, %v to %v, of %s: %s, hold %v", o.Process, o.ID, o.Do, since(o.Called),
			since(o.Returned), o.Buyer, contentsOf(o.Lines), o.Hold)
		lines = append(lines, fmt.Sprintf("  %s: %q, %v, %s, until %v, replayed %v, %v", sent, o.Answer, o.State, o.Got,
			since(o.Until), o.Replayed, o.Short))
	}
	return strings.Join(lines, "\n")
}
