package programs

import (
	"time"

	"pgregory.net/rapid"
)

// inventoryProgram is a program of an inventory.
type inventoryProgram struct {
	Stock     []int64 // of each SKU at first; negative: the SKU is not known yet
	Processes []inventoryProcess
	Faults    []fault `json:",omitempty"`
}

type inventoryProcess struct {
	Stores  []storeOptions
	Sweeps  bool          `json:",omitempty"` // with RunSweeper
	Killed  time.Duration `json:",omitempty"` // after so long; 0: never
	Callers []inventoryCaller
}

// storeOptions are those of a Store. All Stores of a program sell the same SKUs.
type storeOptions struct {
	Direct    bool          `json:",omitempty"`
	Allotment int64         `json:",omitempty"`
	Latch     time.Duration `json:",omitempty"`
	Records   bool          `json:",omitempty"` // RecordRefusals
	Hook      bool          `json:",omitempty"` // a row for each order that is granted
}

type inventoryCaller struct {
	Copies, Times int
	Steps         []inventoryStep
}

// What a step does with an inventory.
const (
	reserves   = "reserve"
	carts      = "cart"       // ReserveAll
	reservesTx = "reserve tx" // ReserveTx
	cartsTx    = "cart tx"    // ReserveAllTx
	repeats    = "repeat"     // an order that was sent before
	confirms   = "confirm"
	aborts     = "cancel"
	extends    = "extend"
	looks      = "lookup"
	sweeps     = "sweep"
	restocks   = "restock"
	audits     = "audit"
	repairs    = "repair"
	reopens    = "close"
)

// inventorySteps are all of them.
var inventorySteps = []string{
	carts, reservesTx, cartsTx, repeats, confirms, aborts, extends, looks, sweeps, restocks, audits, repairs,
	reopens,
}

const (
	coupon     = 3 // the SKU that takes no stock
	skus       = coupon
	hotKeys    = 3
	buyers     = 2
	buyerLimit = 4                    // in orders that have a limit
	lateHold   = 5 * time.Millisecond // after a hold's end
)

// inventoryStep is one call, and what the caller does with a hold that it got.
type inventoryStep struct {
	Do       string
	Store    int           // which of the process
	SKU      int           // coupon: one that takes no stock
	Other    int           // a cart's other SKU
	Qty      int64         // of an order; what a delivery brings
	Buyer    int           `json:",omitempty"`
	Limited  bool          `json:",omitempty"`
	Hold     time.Duration `json:",omitempty"`
	Hot      int           `json:",omitempty"` // a key that all processes use; 0: a new one
	Rollback bool          `json:",omitempty"` // of the caller's transaction
	Then     string        `json:",omitempty"` // confirm, cancel, extend
	Late     bool          `json:",omitempty"` // Then comes after the hold has expired
	Wait     time.Duration // what the context allows
}

var inventoryTables = []string{"dblock_stock", "dblock_reservation", "dblock_quota", "dblock_adjustment"}

func drawInventory(faults bool) func(*rapid.T) inventoryProgram {
	return func(t *rapid.T) inventoryProgram {
		// A program has few kinds of steps, so that what happens seldom between all happens often.
		some := append([]string{reserves},
			rapid.SliceOfNDistinct(rapid.SampledFrom(inventorySteps), 0, 5, rapid.ID[string]).Draw(t, "kinds")...)
		step := rapid.Custom(func(t *rapid.T) inventoryStep { return drawInventoryStep(t, some) })
		callers := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) inventoryCaller {
			return inventoryCaller{
				Copies: oneOf(t, "copies", 1, 2, 4, 8),
				Times:  oneOf(t, "times", 1, 2, 4),
				Steps:  rapid.SliceOfN(step, 1, 4).Draw(t, "steps"),
			}
		}), 1, 2)
		stores := rapid.SliceOfN(rapid.Custom(drawStore), 1, 2)
		process := rapid.Custom(func(t *rapid.T) inventoryProcess {
			p := inventoryProcess{
				Stores: stores.Draw(t, "stores"), Sweeps: rapid.IntRange(0, 2).Draw(t, "sweeps") == 2,
				Callers: callers.Draw(t, "callers"),
			}
			if faults {
				p.Killed = oneOf(t, "killed", 0, 0, 0, 5*time.Millisecond, 30*time.Millisecond)
			}
			return p
		})
		p := inventoryProgram{
			Stock:     rapid.SliceOfN(rapid.SampledFrom([]int64{10, 1, 3, 40, 0, 200, -1}), skus, skus).Draw(t, "stock"),
			Processes: rapid.SliceOfN(process, 1, 4).Draw(t, "processes"),
		}
		if faults {
			p.Faults = drawFaults(t, inventoryTables)
		}
		return p
	}
}

func drawStore(t *rapid.T) storeOptions {
	o := storeOptions{
		Direct:    rapid.IntRange(0, 2).Draw(t, "direct") == 2,
		Allotment: oneOf[int64](t, "allotment", 0, 0, 2, 10),
		Latch:     oneOf(t, "latch", 0, 0, 10*time.Millisecond),
		Records:   rapid.IntRange(0, 3).Draw(t, "records") == 3,
		Hook:      rapid.IntRange(0, 3).Draw(t, "hook") == 3,
	}
	if o.Direct {
		o.Allotment = 0
	}
	return o
}

func drawInventoryStep(t *rapid.T, kinds []string) inventoryStep {
	const long = 5 * time.Second
	waits := []time.Duration{long, long, long, 20 * time.Millisecond, 3 * time.Millisecond}
	holds := []time.Duration{0, time.Hour, time.Hour, 15 * time.Millisecond, 3 * time.Millisecond}
	s := inventoryStep{
		Do:       rapid.SampledFrom(kinds).Draw(t, "do"),
		Store:    rapid.IntRange(0, 1).Draw(t, "store"),
		SKU:      oneOf(t, "sku", 0, 0, 1, 2, coupon),
		Other:    oneOf(t, "other", 1, 0, 2, coupon),
		Qty:      rapid.Int64Range(1, 3).Draw(t, "qty"),
		Buyer:    rapid.IntRange(0, buyers-1).Draw(t, "buyer"),
		Limited:  rapid.IntRange(0, 2).Draw(t, "limited") == 2,
		Hold:     rapid.SampledFrom(holds).Draw(t, "hold"),
		Hot:      max(rapid.IntRange(-2, hotKeys).Draw(t, "hot"), 0),
		Rollback: rapid.IntRange(0, 3).Draw(t, "rollback") == 3,
		Then:     oneOf(t, "then", "", confirms, aborts, extends),
		Late:     rapid.Bool().Draw(t, "late"),
		Wait:     rapid.SampledFrom(waits).Draw(t, "wait"),
	}
	if s.Do == restocks {
		s.SKU, s.Qty = s.SKU%skus, oneOf[int64](t, "delta", 1, 5, 20, -1, -3)
	}
	s.Late = s.Late && s.Hold > 0 && s.Hold < time.Second
	return s
}
