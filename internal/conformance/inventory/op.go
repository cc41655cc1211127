package inventory

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inventory"
)

// op is one call of a Store's, and can be sent to another process.
type op struct {
	What       string
	Request    inventory.Request // also the key of all deeds that have one, and the buyer and the hold of a cart
	Lines      []inventory.Line  // of a cart
	Adjustment inventory.Adjustment
	Most       int // of a sweep
}

const (
	toReserve = "reserve"
	toCart    = "reserve all"
	toConfirm = "confirm"
	toCancel  = "cancel"
	toExtend  = "extend"
	toLookUp  = "look up"
	toSweep   = "sweep"
	toRestock = "restock"
)

// reply is what the caller is told, as far as that does not depend on the clock.
type reply struct {
	State    inventory.State
	SKU      string
	Qty      int64 // of a sweep: how many
	Lines    []inventory.Line
	Ends     bool // it says until when units are held
	Replayed bool
	Kind     string // of the error
	Detail   string // of a refusal
}

const (
	isSoldOut    = "sold out"
	isLimited    = "limit exceeded"
	isCancelled  = "cancelled"
	isExpired    = "expired"
	isConfirmed  = "already confirmed"
	isReused     = "key reused"
	isUnknownSKU = "unknown SKU"
	isNotFound   = "not found"
)

// kinds are all errors that a Store has reason to give.
var kinds = map[string]error{
	isSoldOut: inventory.ErrSoldOut, isLimited: inventory.ErrLimitExceeded, isCancelled: inventory.ErrCancelled,
	isExpired: inventory.ErrExpired, isConfirmed: inventory.ErrAlreadyConfirmed, isReused: inventory.ErrKeyReused,
	isUnknownSKU: inventory.ErrUnknownSKU, isNotFound: inventory.ErrNotFound,
}

// kindOf is the error that says where a reservation stands.
func kindOf(s inventory.State) string {
	return map[inventory.State]string{
		inventory.Sold: isConfirmed, inventory.Cancelled: isCancelled, inventory.Expired: isExpired, inventory.Refused: isSoldOut,
	}[s]
}

// do has a Store do it. Who is refused as busy, by a strategy that does so, asks again.
func (d op) do(ctx context.Context, store *inventory.Store) reply {
	for {
		r, err := d.once(ctx, store)
		if errors.Is(err, dblock.ErrBusy) && !store.Strategy().SellsAll() && ctx.Err() == nil {
			time.Sleep(rand.N(5 * time.Millisecond))
			continue
		}
		return r.with(err)
	}
}

func (d op) once(ctx context.Context, store *inventory.Store) (r reply, err error) {
	key := d.Request.Key
	var res inventory.Reservation
	switch d.What {
	case toReserve:
		res, err = store.Reserve(ctx, d.Request)
	case toCart:
		res, err = store.ReserveAll(ctx, inventory.Cart{Key: key, Buyer: d.Request.Buyer, Hold: d.Request.Hold, Lines: d.Lines})
	case toConfirm:
		res, err = store.Confirm(ctx, key)
	case toCancel:
		res, err = store.Cancel(ctx, key)
	case toExtend:
		res, err = store.Extend(ctx, key, d.Request.Hold)
	case toLookUp:
		res, err = store.Lookup(ctx, key)
	case toSweep:
		n, err := store.Sweep(ctx, d.Most)
		return reply{Qty: int64(n)}, err
	case toRestock:
		replayed, err := store.Restock(ctx, d.Adjustment)
		return reply{Replayed: replayed}, err
	default:
		return reply{}, fmt.Errorf("no such deed: %q", d.What)
	}
	r = reply{State: res.State, SKU: res.SKU, Qty: res.Qty, Replayed: res.Replayed, Ends: !res.ExpiresAt.IsZero()}
	if res.Lines != nil {
		r.Lines = unlimited(res.Lines)
	}
	return r, err
}

// with adds the error, in a word and what it says of the stock.
func (r reply) with(err error) reply {
	if err == nil {
		return r
	}
	r.Kind = err.Error()
	for name, kind := range kinds {
		if errors.Is(err, kind) {
			r.Kind = name
		}
	}
	var out *inventory.SoldOutError
	var limit *inventory.LimitError
	var unknown *inventory.UnknownSKUError
	switch {
	case errors.As(err, &out) && out.Replayed, errors.As(err, &limit) && limit.Replayed:
		r.Detail = "as before"
	case out != nil:
		r.Detail = out.SKU + ", left " + inWords(out.Available)
		for i, short := range out.Short {
			if i > 0 {
				r.Detail += "; " + short.SKU + ", left " + inWords(short.Available)
			}
		}
	case limit != nil:
		r.Detail = limit.SKU + ", used " + inWords(limit.Used)
	case errors.As(err, &unknown):
		r.Detail = unknown.SKU
	}
	return r
}
