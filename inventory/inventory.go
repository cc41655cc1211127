package inventory

import (
	"fmt"
	"time"
)

// Limits of what a Store takes.
const (
	MaxIdentifierBytes = 255                       // of a key, an SKU, a buyer and an adjustment's ID, as UTF-8
	MaxQty             = 1 << 40                   // units in one request; keeps every sum of a batch within 64 bits
	MaxLines           = 1000                      // of a cart
	MaxHold            = 10 * 365 * 24 * time.Hour // of units that are set aside
)

// Request is an order for some units of one SKU.
type Request struct {
	// Key makes the order idempotent. The client makes it, and keeps it before it sends the order.
	// 1 to 255 bytes of UTF-8, without NUL.
	Key string

	// SKU names the stock, as it was given to Restock. 1 to 255 bytes; case matters.
	SKU string

	// Buyer names the buyer; it may be empty, unless there is a Limit. At most 255 bytes.
	Buyer string

	// Qty is how many units: 1 to MaxQty, all or none.
	Qty int64

	// Hold sets the units aside for so long, by the database's clock: Confirm sells them, Cancel
	// gives them back, and so does Sweep once the time is up. Default 0: they are sold at once.
	// Whole microseconds, at most MaxHold.
	Hold time.Duration

	// Limit is how many units of this SKU its buyer may have at most, held and sold, counting all
	// orders that had a Limit themselves: at most N of X per Y. It is the order's own, so that it
	// can be changed at any time. What is cancelled or expires does not count any more: an order
	// that is over the limit has expired holds of its buyer's swept first, if they are among the
	// 100,000 that expired first. Default 0: no limit. At most MaxQty.
	Limit int64

	// Unstocked takes no stock: the SKU needs none, and only the Limit counts. That is for coupons
	// of which each buyer may use one, and for other things that don't run out.
	Unstocked bool
}

// Cart is an order for several SKUs: all of it or none.
type Cart struct {
	Key   string        // as of a Request
	Buyer string        // as of a Request
	Hold  time.Duration // as of a Request; all lines are held, confirmed, cancelled and expire together
	Lines []Line        // 1 to MaxLines
}

// Line is so many units of one SKU, as in a Request. Lines of the same SKU are added up; they have
// the same Limit.
type Line struct {
	SKU       string
	Qty       int64
	Limit     int64
	Unstocked bool
}

// Reservation is what became of a Request or a Cart.
type Reservation struct {
	Key, SKU, Buyer string
	Qty             int64
	State           ReservationState

	// Lines are those of a cart of several SKUs, sorted by SKU; SKU is empty and Qty 0 then.
	Lines []Line

	// ExpiresAt is until when units are held, by this process's clock, and never later than by the
	// database's. Zero if none are held.
	ExpiresAt time.Time

	// Replayed: this outcome was recorded before, and the call has changed nothing. After a
	// connection was lost it can also be this call's own first attempt that is found recorded.
	Replayed bool
}

// ReservationState is the state of a reservation. The database keeps the numbers.
type ReservationState int16

const (
	ReservationHeld      ReservationState = 1 // units are set aside
	ReservationSold      ReservationState = 2
	ReservationCancelled ReservationState = 3
	ReservationExpired   ReservationState = 4
	ReservationRefused   ReservationState = 5 // sold out, and recorded as such: see Options.RecordRefusals
)

func (s ReservationState) String() string {
	switch s {
	case ReservationHeld:
		return "held"
	case ReservationSold:
		return "sold"
	case ReservationCancelled:
		return "cancelled"
	case ReservationExpired:
		return "expired"
	case ReservationRefused:
		return "refused"
	default:
		return fmt.Sprintf("ReservationState(%d)", int16(s))
	}
}

// Adjustment is a change of stock that is not a sale: a delivery, a return, a write-off.
type Adjustment struct {
	// ID makes the adjustment idempotent, as Request.Key does an order. 1 to 255 bytes.
	ID string

	// SKU names the stock. A new one is created with its first adjustment.
	SKU string

	// Delta is how many units come in, or, negative, go out: -MaxQty to MaxQty. 0 makes the SKU
	// known.
	Delta int64
}

// Balance is the books of one SKU: what came in is what is left and what went out.
type Balance struct {
	SKU       string
	Restocked int64 // sum of all adjustments
	Available int64 // left to sell
	Allotted  int64 // left to sell, in allotments: see Options.Allotment
	Held      int64 // units in held reservations, and in such as have expired and are not swept yet
	Sold      int64 // units in sold reservations
}

// Drift is by how many units the books are off: 0, or something other than a Store has written
// to the tables.
func (b Balance) Drift() int64 { return b.Restocked - b.Available - b.Allotted - b.Held - b.Sold }
