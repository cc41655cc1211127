package programs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/inventory/mysqlinventory"
	"github.com/dblock-go/dblock/inventory/pginventory"
)

// inventoryOp is a call as its caller saw it. A process logs it before the call and after it.
type inventoryOp struct {
	ID      int64 // in its process
	Process int
	Do      string
	Key     string           `json:",omitempty"` // of an order, or of an adjustment
	Buyer   string           `json:",omitempty"`
	Lines   []inventory.Line `json:",omitempty"` // of an order, or the adjustment's
	Hold    time.Duration    `json:",omitempty"`
	Records bool             `json:",omitempty"` // RecordRefusals
	Hook    bool             `json:",omitempty"`
	Tx      bool             `json:",omitempty"` // in a transaction of the caller's
	Latch   time.Duration    `json:",omitempty"`
	Faults  bool             `json:"-"` // of its program
	Called  int64

	Returned int64                      `json:",omitempty"` // 0: the process was killed before
	Answer   string                     `json:",omitempty"`
	State    inventory.ReservationState `json:",omitempty"`
	Got      string                     `json:",omitempty"` // the contents
	Until    int64                      `json:",omitempty"` // ExpiresAt
	Replayed bool                       `json:",omitempty"`
	Short    []inventory.Shortage       `json:",omitempty"`
	Used     int64                      `json:",omitempty"` // of a buyer's limit
}

// Answers to calls.
const (
	granted     = "ok"
	soldOut     = "sold out"
	overLimit   = "over the limit"
	isCancelled = "cancelled"
	isExpired   = "expired"
	isConfirmed = "confirmed"
	isReused    = "reused"
	isUnknown   = "unknown SKU"
	notFound    = "not found"
	nothing     = "nothing was written"
	unresolved  = "unknown"
	undefined   = "undocumented"
)

// answerOf is what an error says.
func answerOf(err error) string {
	if err == nil {
		return granted
	}
	for _, a := range []struct {
		err  error
		says string
	}{
		{dblock.ErrOutcomeUnknown, unresolved}, {inventory.ErrSoldOut, soldOut}, {inventory.ErrLimitExceeded, overLimit},
		{inventory.ErrCancelled, isCancelled}, {inventory.ErrExpired, isExpired},
		{inventory.ErrAlreadyConfirmed, isConfirmed}, {inventory.ErrKeyReused, isReused},
		{inventory.ErrUnknownSKU, isUnknown}, {inventory.ErrNotFound, notFound},
		{dblock.ErrBusy, nothing}, {dblock.ErrConflict, nothing}, {dblock.ErrOverloaded, nothing}, {dblock.ErrUnavailable, nothing},
		{dblock.ErrClosed, nothing}, {context.DeadlineExceeded, nothing},
	} {
		if errors.Is(err, a.err) {
			return a.says
		}
	}
	return undefined
}

// end notes how a call has ended.
func (o *inventoryOp) end(ctx context.Context, r inventory.Reservation, err error) {
	o.Returned, o.Answer = now(), answerOf(err)
	if err == nil {
		o.State, o.Got, o.Replayed = r.State, contentsOf(r.Lines), r.Replayed
		if r.SKU != "" {
			o.Got = contentsOf([]inventory.Line{{SKU: r.SKU, Qty: r.Qty}})
		}
		if !r.ExpiresAt.IsZero() {
			o.Until = r.ExpiresAt.UnixNano()
		}
	}
	var short *inventory.SoldOutError
	var limit *inventory.BuyerLimitError
	switch {
	case errors.As(err, &short):
		o.Replayed, o.Short = short.Replayed, short.Short
		if len(o.Short) == 0 {
			o.Short = []inventory.Shortage{{SKU: short.SKU, Wanted: short.Wanted, Available: short.Available}}
		}
	case errors.As(err, &limit):
		o.Replayed, o.Short, o.Used = limit.Replayed, []inventory.Shortage{{SKU: limit.SKU, Wanted: limit.Wanted}}, limit.Used
	}
	if o.Answer == undefined && !(o.Hook && errors.Is(err, inventory.ErrRejected)) {
		say("error", failure{o.Do, err.Error()})
	}
	if o.Answer == undefined {
		o.Answer = nothing
	}
	say("end", o)
	if errors.Is(err, dblock.ErrClosed) {
		time.Sleep(time.Millisecond) // until another caller has opened the Store
	}
}

// inventoryClient is a process of an inventoryProgram.
type inventoryClient struct {
	job
	program inventoryProcess
	server  server
	ids     atomic.Int64

	mu      sync.Mutex
	stores  []*inventory.Store
	closing []*sync.Mutex
	orders  []inventoryOp // as they were sent
}

// openStore opens a Store. A hook writes a row for each order that is granted.
func openStore(ctx context.Context, s server, o storeOptions) (*inventory.Store, error) {
	options := inventory.Options{
		Direct: o.Direct, Allotment: o.Allotment, SoldOutTTL: o.Latch, RecordRefusals: o.Records,
		Timeout: 2 * time.Second,
	}
	if my, ok := s.(myServer); ok {
		var more []mysqlinventory.Option
		if o.Hook {
			hook := func(ctx context.Context, tx mysqlinventory.HookTx, all []inventory.Reservation) error {
				_, err := tx.ExecContext(ctx, effectsOf(all))
				return err
			}
			more = append(more, mysqlinventory.WithHook(hook))
		}
		return mysqlinventory.New(ctx, my.db, options, more...)
	}
	var more []pginventory.Option
	if o.Hook {
		hook := func(ctx context.Context, tx pginventory.HookTx, all []inventory.Reservation) error {
			_, err := tx.Exec(ctx, effectsOf(all))
			return err
		}
		more = append(more, pginventory.WithHook(hook))
	}
	return pginventory.New(ctx, s.(pgServer).pool, options, more...)
}

func effectsOf(all []inventory.Reservation) string {
	var values []string
	for _, r := range all {
		values = append(values, fmt.Sprintf("('%s')", r.Key))
	}
	return "INSERT INTO effect (task) VALUES " + strings.Join(values, ", ")
}

func openInventory(ctx context.Context, j job) (client, error) {
	c := &inventoryClient{job: j}
	err := json.Unmarshal(j.Program, &c.program)
	if err == nil {
		c.server, err = openServer(ctx, j.Kind, j.DSN)
	}
	if err != nil {
		return nil, err
	}
	for _, o := range c.program.Stores {
		s, err := openStore(ctx, c.server, o)
		if err != nil {
			return nil, err
		}
		c.stores, c.closing = append(c.stores, s), append(c.closing, &sync.Mutex{})
	}
	return c, nil
}

func (c *inventoryClient) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, s := range c.stores {
		documented("Close", s.Close(ctx))
	}
	c.server.close()
}

func (c *inventoryClient) run() {
	var all, sweeper sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	if c.program.Sweeps {
		sweeper.Go(func() {
			for ctx.Err() == nil {
				documented("RunSweeper", c.store(0).RunSweeper(ctx, 10*time.Millisecond), context.Canceled, dblock.ErrClosed)
				time.Sleep(time.Millisecond)
			}
		})
	}
	for _, caller := range c.program.Callers {
		for range caller.Copies {
			all.Go(func() {
				for range caller.Times {
					for _, s := range caller.Steps {
						c.once(s)
					}
				}
			})
		}
	}
	all.Wait()
	cancel()
	sweeper.Wait()
}

func (c *inventoryClient) store(n int) *inventory.Store {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stores[n%len(c.stores)]
}

// begin logs a call that is about to be made.
func (c *inventoryClient) begin(o *inventoryOp) {
	o.ID, o.Process, o.Called = c.ids.Add(1), c.Process, now()
	say("call", o)
}

// once takes a step.
func (c *inventoryClient) once(s inventoryStep) {
	ctx, cancel := context.WithTimeout(context.Background(), s.Wait)
	defer cancel()
	store := c.store(s.Store)
	switch s.Do {
	case confirms, aborts, extends, looks:
		c.change(ctx, store, s, s.Do, c.someKey(s.Hot))
	case sweeps:
		_, err := store.Sweep(ctx, 1+int(s.Qty)*10)
		documented("Sweep", err, inventoryRefusals...)
	case restocks:
		c.restock(ctx, store, s)
	case audits:
		books, err := store.Audit(ctx, nameOf(c.Run, 0), nameOf(c.Run, 1), nameOf(c.Run, 2))
		documented("Audit", err, inventoryRefusals...)
		for _, b := range books {
			if b.Drift() != 0 || b.Available < 0 || b.Allotted < 0 {
				say("drift", fmt.Sprintf("Audit says %+v", b))
			}
		}
	case repairs:
		repaired, err := store.Repair(ctx, nameOf(c.Run, 0), nameOf(c.Run, 1), nameOf(c.Run, 2), nameOf(c.Run, coupon))
		documented("Repair", err, inventoryRefusals...)
		for _, r := range repaired {
			say("drift", fmt.Sprintf("Repair says %+v", r))
		}
	case reopens:
		c.reopen(s.Store)
	default:
		c.order(ctx, store, s)
	}
}

// inventoryRefusals are errors that say that nothing was done, or maybe.
var inventoryRefusals = []error{
	dblock.ErrOverloaded, dblock.ErrBusy, dblock.ErrConflict, dblock.ErrUnavailable, dblock.ErrClosed, dblock.ErrOutcomeUnknown,
	context.DeadlineExceeded,
}

// someKey is a key that all processes use, or that of one of the last orders.
func (c *inventoryClient) someKey(hot int) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if hot > 0 || len(c.orders) == 0 {
		return fmt.Sprintf("%s-hot-%d", c.Run, hot)
	}
	return c.orders[len(c.orders)-1-rand.IntN(min(8, len(c.orders)))].Key
}

// newKey is one that all processes use, or a new one.
func (c *inventoryClient) newKey(hot int) string {
	if hot > 0 {
		return fmt.Sprintf("%s-hot-%d", c.Run, hot)
	}
	return fmt.Sprintf("%s-%d-%d", c.Run, c.Process, c.ids.Add(1))
}

// change confirms, cancels, extends or looks up an order.
func (c *inventoryClient) change(ctx context.Context, store *inventory.Store, s inventoryStep, what, key string) {
	o := inventoryOp{Do: what, Key: key, Hold: max(s.Hold, time.Millisecond)}
	c.begin(&o)
	var r inventory.Reservation
	var err error
	switch what {
	case confirms:
		r, err = store.Confirm(ctx, key)
	case aborts:
		r, err = store.Cancel(ctx, key)
	case extends:
		r, err = store.Extend(ctx, key, o.Hold)
	case looks:
		r, err = store.Lookup(ctx, key)
	}
	o.end(ctx, r, err)
}

func (c *inventoryClient) restock(ctx context.Context, store *inventory.Store, s inventoryStep) {
	line := inventory.Line{SKU: nameOf(c.Run, s.SKU), Qty: s.Qty}
	o := inventoryOp{Do: restocks, Key: "in " + c.newKey(s.Hot), Lines: []inventory.Line{line}}
	c.begin(&o)
	replayed, err := store.Restock(ctx, inventory.Adjustment{ID: o.Key, SKU: line.SKU, Delta: line.Qty})
	o.Replayed = replayed
	o.end(ctx, inventory.Reservation{Replayed: replayed}, err)
}

// reopen closes a Store beside all that uses it, and opens another one.
func (c *inventoryClient) reopen(n int) {
	n %= len(c.stores)
	if !c.closing[n].TryLock() {
		return
	}
	defer c.closing[n].Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	documented("Close", c.store(n).Close(ctx), context.DeadlineExceeded)
	for {
		s, err := openStore(context.Background(), c.server, c.program.Stores[n])
		if err != nil {
			time.Sleep(10 * time.Millisecond) // the faults do not let it be opened now
			continue
		}
		c.mu.Lock()
		c.stores[n] = s
		c.mu.Unlock()
		return
	}
}
