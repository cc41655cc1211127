package inventory

import "fmt"

// Limits of what a Store takes.
const (
	MaxKeyBytes = 255     // of a key, an SKU, a buyer and an adjustment's ID, as UTF-8
	MaxQty      = 1 << 40 // units in one request; keeps every sum of a batch within 64 bits
)

// Request is an order for some units of one SKU.
type Request struct {
	// Key makes the order idempotent. The client makes it, and keeps it before it sends the order.
	// 1 to 255 bytes of UTF-8, without NUL.
	Key string

	// SKU names the stock, as it was given to Restock. 1 to 255 bytes; case matters.
	SKU string

	// Buyer is who buys; it may be empty. At most 255 bytes.
	Buyer string

	// Qty is how many units: 1 to MaxQty, all or none.
	Qty int64
}

// Reservation is what became of a Request.
type Reservation struct {
	Key, SKU, Buyer string
	Qty             int64
	State           State

	// Replayed: this outcome was recorded before, and the call has changed nothing. After a
	// connection was lost it can also be this call's own first attempt that is found recorded.
	Replayed bool
}

// State is where a reservation stands. The numbers stand in the database.
type State int16

const (
	Held      State = 1 // units are set aside
	Sold      State = 2
	Cancelled State = 3
	Expired   State = 4
	Refused   State = 5 // sold out, and recorded as such: see Options.RecordRefusals
)

func (s State) String() string {
	switch s {
	case Held:
		return "held"
	case Sold:
		return "sold"
	case Cancelled:
		return "cancelled"
	case Expired:
		return "expired"
	case Refused:
		return "refused"
	default:
		return fmt.Sprintf("State(%d)", int16(s))
	}
}

// Adjustment is a change of stock that is not a sale: a delivery, a return, a write-off.
type Adjustment struct {
	// ID makes the adjustment idempotent, as Request.Key does an order. 1 to 255 bytes.
	ID string

	// SKU names the stock. One that is new comes into being with its first adjustment.
	SKU string

	// Delta is how many units come in, or, negative, go out. 0 makes the SKU known.
	Delta int64
}

// Balance is the books of one SKU: what came in is what is left and what went out.
type Balance struct {
	SKU       string
	Restocked int64 // sum of all adjustments
	Available int64 // left to sell
	Held      int64 // units in held reservations
	Sold      int64 // units in sold reservations
}

// Drift is by how many units the books are off: 0, or something other than a Store has written
// to the tables.
func (b Balance) Drift() int64 { return b.Restocked - b.Available - b.Held - b.Sold }
