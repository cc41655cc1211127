package programs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/mysqlinventory"
	"github.com/dblock-go/dblock/inventory/pginventory"
)

// Controls: what the processes of one do wrong.
const (
	readsThenWrites = "reads what is left, then writes what is left"
	saysSold        = "logs that a refused order was sold"
)

// order sends an order, and does with a hold what the step says.
func (c *inventoryClient) order(ctx context.Context, store *inventory.Store, s inventoryStep) {
	o, ok := c.toSend(s)
	if !ok {
		return
	}
	options := c.program.Stores[s.Store%len(c.program.Stores)]
	o.Tx = s.Do == reservesTx || s.Do == cartsTx
	if o.Latch = options.Latch; !o.Tx {
		o.Records, o.Hook = options.Records, options.Hook
	}
	c.begin(&o)
	var r inventory.Reservation
	var err error
	switch {
	case c.Control == readsThenWrites:
		r, err = c.naive(ctx, o)
	case o.Tx:
		r, err = c.orderTx(ctx, store, s, o)
	case o.Do == carts:
		r, err = store.ReserveAll(ctx, o.cart())
	default:
		r, err = store.Reserve(ctx, o.request())
	}
	if c.Control == saysSold && errors.Is(err, inventory.ErrSoldOut) {
		r, err = inventory.Reservation{SKU: o.Lines[0].SKU, Qty: o.Lines[0].Qty, State: inventory.ReservationSold}, nil
	}
	o.end(ctx, r, err)
	if r.State != inventory.ReservationHeld || s.Then == "" {
		return
	}
	if s.Late {
		time.Sleep(s.Hold + lateHold)
	}
	c.change(ctx, store, s, s.Then, o.Key)
}

// toSend is a new order, or one that was sent before.
func (c *inventoryClient) toSend(s inventoryStep) (inventoryOp, bool) {
	if s.Do == repeats {
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.orders) == 0 {
			return inventoryOp{}, false
		}
		return c.orders[len(c.orders)-1-rand.IntN(min(8, len(c.orders)))], true
	}
	line := func(sku int) inventory.Line {
		l := inventory.Line{SKU: nameOf(c.Run, sku), Qty: s.Qty, Unstocked: sku == coupon}
		if s.Limited || l.Unstocked {
			l.Limit = buyerLimit
		}
		return l
	}
	o := inventoryOp{
		Do: reserves, Key: c.newKey(s.Hot), Buyer: fmt.Sprint("b", s.Buyer), Hold: s.Hold,
		Lines: []inventory.Line{line(s.SKU)},
	}
	if s.Do == carts || s.Do == cartsTx {
		o.Do, o.Lines = carts, append(o.Lines, line(s.Other))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.orders = append(c.orders, o)
	return o, true
}

func (o *inventoryOp) request() inventory.Request {
	l := o.Lines[0]
	return inventory.Request{
		Key: o.Key, SKU: l.SKU, Buyer: o.Buyer, Qty: l.Qty, Hold: o.Hold, Limit: l.Limit, Unstocked: l.Unstocked,
	}
}

func (o *inventoryOp) cart() inventory.Cart {
	return inventory.Cart{Key: o.Key, Buyer: o.Buyer, Hold: o.Hold, Lines: o.Lines}
}

// orderTx sends an order in a transaction of the caller's. Of a transaction that is not committed
// nothing was written, whatever the order's error says.
func (c *inventoryClient) orderTx(
	ctx context.Context, store *inventory.Store, s inventoryStep, o inventoryOp,
) (r inventory.Reservation, err error) {
	began := false
	var refused error
	err = c.server.run(ctx, func(ctx context.Context, t tx) error {
		began = true
		if r, refused = reserveTx(ctx, store, t, o); refused == nil && s.Rollback {
			refused = errRollback
		}
		return refused
	})
	switch {
	case err == nil:
		return r, nil
	case refused == nil && began: // the commit failed, which is the program's own
		return inventory.Reservation{}, dblock.ErrOutcomeUnknown
	case refused == nil, errors.Is(refused, errRollback), errors.Is(refused, dblock.ErrOutcomeUnknown),
		errors.Is(refused, dblock.ErrConflict), ctx.Err() != nil:
		return inventory.Reservation{}, dblock.ErrBusy
	}
	return inventory.Reservation{}, refused
}

func reserveTx(ctx context.Context, store *inventory.Store, t tx, o inventoryOp) (inventory.Reservation, error) {
	my, ok := t.(myTx)
	switch {
	case ok && o.Do == carts:
		return mysqlinventory.ReserveAllTx(ctx, store, my.tx, o.cart())
	case ok:
		return mysqlinventory.ReserveTx(ctx, store, my.tx, o.request())
	case o.Do == carts:
		return pginventory.ReserveAllTx(ctx, store, t.(pgTx).tx, o.cart())
	}
	return pginventory.ReserveTx(ctx, store, t.(pgTx).tx, o.request())
}

// naive is the control: it reads how many are left, and writes how many are left then.
func (c *inventoryClient) naive(ctx context.Context, o inventoryOp) (inventory.Reservation, error) {
	l := o.Lines[0]
	var left int64
	err := c.server.run(ctx, func(ctx context.Context, t tx) (err error) {
		left, err = t.number(ctx, fmt.Sprintf("SELECT available FROM dblock_stock WHERE sku = '%s' AND bucket = 0", l.SKU))
		return err
	})
	if err == nil && left < l.Qty {
		err = &inventory.SoldOutError{SKU: l.SKU, Wanted: l.Qty, Available: left}
	}
	if err != nil {
		return inventory.Reservation{}, err
	}
	time.Sleep(time.Millisecond)
	err = c.server.run(ctx, func(ctx context.Context, t tx) error {
		return errors.Join(
			t.exec(ctx, fmt.Sprintf("UPDATE dblock_stock SET available = %d WHERE sku = '%s'", left-l.Qty, l.SKU)),
			t.exec(ctx, fmt.Sprintf(`INSERT INTO dblock_reservation (reservation_key, sku, buyer, qty, state)
				VALUES ('%s', '%s', '%s', %d, 2)`, o.Key, l.SKU, o.Buyer, l.Qty)))
	})
	return inventory.Reservation{Key: o.Key, SKU: l.SKU, Buyer: o.Buyer, Qty: l.Qty, State: inventory.ReservationSold}, err
}
