package faultmatrix

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/dblock-go/dblock/inventory"
	"github.com/dblock-go/dblock/queue"
)

const (
	plentySKU  = "plenty"
	scarceSKU  = "scarce"
	controlSKU = "control-sku"
	plenty     = 1_000_000
	scarce     = 20

	jobKind        = "effect"
	controlJobKind = "control"
	controlPrefix  = "control-"
)

var errBadDay = errors.New("a bad day")

// limit is what a caller allows; some are impatient, so that their contexts end while the call is
// under way.
func limit() time.Duration {
	if rand.IntN(3) == 0 {
		return rand.N(4 * time.Millisecond)
	}
	return callLimit
}

// order has some customers buy at once, whose orders share statements.
func (w *worker) order() {
	var all sync.WaitGroup
	for range 1 + rand.IntN(6) {
		all.Go(w.buy)
	}
	all.Wait()
}

// buy buys a unit. A customer clicks twice, and one without a definite answer sends the same order
// again.
func (w *worker) buy() {
	o := op{Kind: opOrder, ID: w.newID()}
	o.Key = o.ID
	sku := plentySKU
	if rand.IntN(3) == 0 {
		sku = scarceSKU
	}
	least := 1 + rand.IntN(2)
	for tries := 0; tries < 4; tries++ {
		if tries > 0 {
			w.log.note(op{Kind: opRepeat, ID: o.ID, Key: o.Key})
		}
		err := w.reserve(&o, sku)
		if tries+1 >= least && outcomeOf(err) != unknown {
			return
		}
		time.Sleep(rand.N(5 * time.Millisecond))
	}
}

func (w *worker) reserve(o *op, sku string) error {
	return w.call(o, limit(), func(ctx context.Context) error {
		_, err := w.c.store.Reserve(ctx, inventory.Request{Key: o.Key, SKU: sku, Buyer: "b", Qty: 1})
		return err
	})
}

// orderControl has some customers of the control buy at once. Some leave while the statement that
// they share is under way, which is then committed.
func (w *worker) orderControl() {
	var all sync.WaitGroup
	for range 4 {
		all.Go(w.orderUnkeyed)
	}
	all.Wait()
}

// orderUnkeyed is the control of an order: sent again, it has another key, and an unknown outcome
// counts as a refusal.
func (w *worker) orderUnkeyed() {
	id := controlPrefix + w.newID()
	for n := range 2 {
		o := op{Kind: opOrder, Control: true, ID: id, Key: fmt.Sprint(id, "#", n)}
		_ = w.call(&o, limit(), func(ctx context.Context) error {
			_, err := w.c.store.Reserve(ctx, inventory.Request{Key: o.Key, SKU: controlSKU, Buyer: "b", Qty: 1})
			if outcomeOf(err) == unknown {
				return errBadMapping
			}
			return err
		})
	}
}

// errBadMapping is what the control makes of an unknown outcome.
var errBadMapping = fmt.Errorf("%w: taken for a refusal", errFunc)

// enqueue hands in a job, which may have a group or a unique key, and one of the control.
func (w *worker) enqueue() {
	for _, control := range []bool{false, true} {
		o := op{Kind: opEnqueue, Control: control, ID: w.newID()}
		task, wait := queue.Task{Kind: jobKind, MaxAttempts: 1000}, limit()
		switch key := rand.IntN(8); {
		case control:
			o.ID, task.Kind, wait = controlPrefix+o.ID, controlJobKind, callLimit
		case key < 2:
			task.Group, task.GroupLimit = fmt.Sprint(key), 1+key
		case key < 4:
			task.Unique = fmt.Sprint(key)
		}
		task.Args = o.ID
		_ = w.call(&o, wait, func(ctx context.Context) error {
			_, err := w.c.queue.Enqueue(ctx, task)
			return err
		})
	}
}

// handle does jobs: each inserts a row. The control's handler does so outside of the job's
// transaction, and returns nil whether it could or not.
func (w *worker) handle() error {
	effect := func(job string) string {
		return "INSERT INTO matrix_effect (job) VALUES ('" + strings.ReplaceAll(job, "'", "") + "')"
	}
	err := w.c.handleTx(jobKind, func(ctx context.Context, tx querier, job string) error {
		if err := tx.exec(ctx, effect(job)); err != nil {
			return err
		}
		if rand.IntN(8) == 0 {
			return errBadDay
		}
		return nil
	})
	control := func(ctx context.Context, job queue.Job[string]) error {
		bad := rand.IntN(6)
		if bad > 2 {
			return nil // its work has failed
		}
		_, _ = w.c.pool.ExecContext(ctx, effect(job.Args))
		if bad == 1 {
			return errBadDay
		}
		return nil
	}
	return errors.Join(err, queue.Handle(w.c.queue, controlJobKind, control))
}
