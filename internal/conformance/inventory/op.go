package inventory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/inventory"
)

// op is one call of a Store, and can be sent to another process.
type op struct {
	What       string
	Request    inventory.Request // also the key of each op that has one, and a cart's buyer and hold
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

func restocks(a inventory.Adjustment) op { return op{What: toRestock, Adjustment: a} }

func onKey(what, key string) op { return op{What: what, Request: inventory.Request{Key: key}} }

// reply is the answer to an op, as far as it does not depend on the clock.
type reply struct {
	State    inventory.ReservationState
	SKU      string
	Qty      int64 // of a sweep: how many
	Lines    []inventory.Line
	Ends     bool // a hold has an end
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
	isInvalid    = "invalid"
)

// kinds are the errors that answer an op.
var kinds = map[string]error{
	isSoldOut: inventory.ErrSoldOut, isLimited: inventory.ErrLimitExceeded, isCancelled: inventory.ErrCancelled,
	isExpired: inventory.ErrExpired, isConfirmed: inventory.ErrAlreadyConfirmed, isReused: inventory.ErrKeyReused,
	isUnknownSKU: inventory.ErrUnknownSKU, isNotFound: inventory.ErrNotFound, isInvalid: dblock.ErrInvalid,
}

// kindOf names an error; one of no kind by its text.
func kindOf(err error) string {
	for name, kind := range kinds {
		if errors.Is(err, kind) {
			return name
		}
	}
	if err == nil {
		return ""
	}
	return err.Error()
}

// outcome is the state of a new reservation, "replayed", or the kind of the error.
func (a requestResult) outcome() string {
	switch {
	case a.err != nil:
		return kindOf(a.err)
	case a.res.Replayed:
		return "replayed"
	}
	return a.res.State.String()
}

func outcomes(answers []requestResult) map[string]int {
	n := map[string]int{}
	for _, a := range answers {
		n[a.outcome()]++
	}
	return n
}

// gets sends an order to a Store and compares the outcome.
func gets(t *testing.T, store *inventory.Store, r inventory.Request, want string) {
	t.Helper()
	res, err := store.Reserve(t.Context(), r)
	assert.Equal(t, want, requestResult{r, res, err}.outcome(), r.Key)
}

func (s *env) sells(t *testing.T, r inventory.Request) { t.Helper(); sellsIn(t, s.Store, r) }

func sellsIn(t *testing.T, store *inventory.Store, r inventory.Request) {
	t.Helper()
	gets(t, store, r, map[bool]string{true: "held", false: "sold"}[r.Hold > 0])
}

// inEach sends the requests to several Stores at once.
func inEach(ctx context.Context, reqs []inventory.Request, stores ...*inventory.Store) []requestResult {
	answers := make([]requestResult, len(stores)*len(reqs))
	suite.Crowd(len(answers), func(i int) {
		r := reqs[i%len(reqs)]
		res, err := stores[i/len(reqs)].Reserve(ctx, r)
		answers[i] = requestResult{r, res, err}
	})
	return answers
}

// do runs an op in a Store.
func (d op) do(ctx context.Context, store *inventory.Store) reply {
	r, err := d.once(ctx, store)
	return r.with(err)
}

func (d op) once(ctx context.Context, store *inventory.Store) (r reply, err error) {
	key := d.Request.Key
	var res inventory.Reservation
	switch d.What {
	case toReserve:
		res, err = store.Reserve(ctx, d.Request)
	case toCart:
		cart := inventory.Cart{Key: key, Buyer: d.Request.Buyer, Hold: d.Request.Hold, Lines: d.Lines}
		res, err = store.ReserveAll(ctx, cart)
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
	default:
		replayed, err := store.Restock(ctx, d.Adjustment)
		return reply{Replayed: replayed}, err
	}
	r = reply{State: res.State, SKU: res.SKU, Qty: res.Qty, Lines: unlimited(res.Lines), Replayed: res.Replayed}
	r.Ends = !res.ExpiresAt.IsZero()
	return r, err
}

// with adds the error: its kind, and what it says of the stock.
func (r reply) with(err error) reply {
	r.Kind = kindOf(err)
	var out *inventory.SoldOutError
	var limit *inventory.BuyerLimitError
	var unknown *inventory.UnknownSKUError
	switch {
	case errors.As(err, &out) && out.Replayed, errors.As(err, &limit) && limit.Replayed:
		r.Detail = "as before"
	case out != nil:
		r.Detail = left(out.SKU, out.Available)
		for _, short := range out.Short[min(1, len(out.Short)):] {
			r.Detail += "; " + left(short.SKU, short.Available)
		}
	case limit != nil:
		r.Detail = fmt.Sprintf("%s, used %d", limit.SKU, limit.Used)
	case errors.As(err, &unknown):
		r.Detail = unknown.SKU
	}
	return r
}

func left(sku string, units int64) string { return fmt.Sprintf("%s, left %d", sku, units) }

// unlimited are lines as they are recorded: without their limit.
func unlimited(lines []inventory.Line) []inventory.Line {
	lines = slices.Clone(lines)
	for i := range lines {
		lines[i].Limit = 0
	}
	return lines
}
