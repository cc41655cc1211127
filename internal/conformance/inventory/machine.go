package inventory

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/inventory"
)

const (
	modelSteps    = 600 // half of them by one caller, and half by several at once
	soakSteps     = 10_000
	soakProcesses = 3
	modelCallers  = 8
	callerSKUs    = 4 // of each caller

	toExpire = "expire" // moves the end of a hold into the past
)

// answersAsTheModelDoes does random ops in several Stores; a soak, in several processes.
func answersAsTheModelDoes(t *testing.T, s *env) {
	steps := modelSteps
	s.o.RecordRefusals = s.o.Direct
	workers := []worker{doneBy(s.open(t, s.o)), doneBy(s.open(t, s.o))}
	if os.Getenv(suite.EnvSoak) != "" {
		steps = soakSteps
		for range soakProcesses {
			workers = append(workers, s.startProcess(t, s.o).do)
		}
	}
	s.keepsBooks(t)
	assert.NoError(t, s.checks(t, workers, steps))
	s.balanced(t)
}

// answersAsTheModelDoesFromAllotments has units in allotments of other Stores.
func answersAsTheModelDoesFromAllotments(t *testing.T, s *env) {
	s.keepsBooks(t)
	var workers []worker
	for _, units := range []int64{0, 2, 5} { // a Store without one looks for those of others, too
		workers = append(workers, doneBy(s.openClosed(t, inventory.Options{Allotment: units})))
	}
	assert.NoError(t, s.checks(t, workers, modelSteps))
	s.balanced(t)
}

// theModelNotices is the control: without one of its guards a database gives other answers.
func theModelNotices(t *testing.T, e Inventory) {
	for name, sabotage := range controls {
		if name == "keys that are no keys" {
			continue // only two orders at once would both be the first
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := e.env(t, inventory.Options{})
			sabotage(t, s)
			assert.Error(t, s.checks(t, []worker{doneBy(s.Store)}, modelSteps), "the test of the model cannot fail")
		})
	}
}

// checker compares the answers to random ops with the model's.
type checker struct {
	s       *env
	workers []worker
	sweeps  sync.RWMutex // held alone to sweep, which changes orders of every caller
	mu      sync.Mutex
	model   *model
}

// checks does random ops. Its error is the first answer that is not the model's.
func (s *env) checks(t *testing.T, workers []worker, steps int) error {
	t.Helper()
	c := &checker{s: s, workers: workers, model: newModel(s.o.RecordRefusals)}
	seed := suite.SeedOf(t)
	if err := c.work(t.Context(), "alone", seed, steps/2); err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	suite.Crowd(modelCallers, func(i int) {
		if err := c.work(ctx, fmt.Sprint("caller ", i), seed+uint64(i)+1, steps/2/modelCallers); err != nil {
			stop(err)
		}
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	got, err := s.Audit(ctx)
	for i := range got { // the model has no allotments
		got[i].Available, got[i].Allotted = got[i].Available+got[i].Allotted, 0
	}
	if diff := cmp.Diff(c.model.books(), got); err == nil && diff != "" {
		err = fmt.Errorf("the books (-model +store):\n%s", diff)
	}
	return err
}

// work does one op after the other, as one caller of its own name.
func (c *checker) work(ctx context.Context, name string, seed uint64, steps int) error {
	d := &dice{Rand: rand.New(rand.NewPCG(seed, 0)), name: name}
	for i := 0; i < steps && ctx.Err() == nil; i++ {
		if err := c.step(ctx, d.next(), c.workers[d.IntN(len(c.workers))]); err != nil {
			return fmt.Errorf("%s, step %d: %w", name, i, err)
		}
	}
	return nil
}

// step does an op, and compares its answer with the model's.
func (c *checker) step(ctx context.Context, d op, do worker) error {
	if d.What == toSweep {
		c.sweeps.Lock()
		defer c.sweeps.Unlock()
	} else {
		c.sweeps.RLock()
		defer c.sweeps.RUnlock()
	}
	if d.What == toExpire {
		c.mu.Lock()
		moment := c.model.expire(d.Request.Key)
		c.mu.Unlock()
		if moment == 0 {
			return nil
		}
		return c.s.expire(ctx, d.Request.Key, moment)
	}
	got, err := do(ctx, d)
	if err != nil || ctx.Err() != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if diff := cmp.Diff(c.model.do(d), got); diff != "" {
		return fmt.Errorf("%+v (-model +store):\n%s", d, diff)
	}
	return nil
}

// expire ends a hold, at a second of a day long ago.
func (s *env) expire(ctx context.Context, key string, moment int64) error {
	at := time.Date(2000, 1, 1, 0, 0, int(moment), 0, time.UTC).Format("2006-01-02 15:04:05")
	if s.Postgres() {
		at += "+00"
	}
	return suite.Second(s.db.ExecContext(ctx, fmt.Sprintf(
		"UPDATE dblock_reservation SET expires_at = '%s' WHERE reservation_key = '%s' AND state = 1", at, key)))
}

// dice draws the ops of a caller. Its SKUs, buyers and keys are no other caller's, so that the
// model knows each answer, however many callers there are. They share statements.
type dice struct {
	*rand.Rand
	name             string
	sent             []op // orders
	stocked, changes int  // SKUs, and changes of their stock
}

// next draws an order of any kind, one sent before, a key with other contents, or any change.
func (d *dice) next() op {
	if d.stocked < callerSKUs {
		d.stocked++
		return d.restock(d.stocked-1, 4+d.Int64N(8))
	}
	if len(d.sent) == 0 || d.IntN(25) == 0 {
		d.order() // its key may be used before it is sent
	}
	recent := d.sent[len(d.sent)-1-d.IntN(min(6, len(d.sent)))]
	key := recent.Request.Key
	switch n := d.IntN(100); {
	case n < 30:
		return d.order()
	case n < 38: // its hold and its limit may differ: they are not its identity
		if recent.What == toReserve && d.IntN(2) == 0 {
			recent.Request.Hold, recent.Request.Limit = d.hold(), d.Int64N(4)
		}
		return recent
	case n < 42:
		return d.orderOf(key)
	case n < 54:
		return onKey(toConfirm, key)
	case n < 68:
		return onKey(toCancel, key)
	case n < 72:
		extend := onKey(toExtend, key)
		extend.Request.Hold = time.Hour + d.hold()
		return extend
	case n < 82:
		return onKey(toExpire, key)
	case n < 86:
		return onKey(toLookUp, key)
	case n < 90:
		return op{What: toSweep, Most: 1 + d.IntN(6)}
	}
	return d.restock(d.IntN(callerSKUs), d.Int64N(9)-3)
}

func (d *dice) order() op {
	d.sent = append(d.sent, d.orderOf(fmt.Sprintf("%s, order %d", d.name, len(d.sent))))
	return d.sent[len(d.sent)-1]
}

// orderOf is an order or a cart. Lines of one SKU have one limit.
func (d *dice) orderOf(key string) op {
	r := inventory.Request{Key: key, Buyer: fmt.Sprintf("%s, buyer %d", d.name, d.IntN(3)), Hold: d.hold()}
	if d.IntN(3) > 0 {
		l := d.line()
		r.SKU, r.Qty, r.Limit, r.Unstocked = l.SKU, l.Qty, l.Limit, l.Unstocked
		return op{What: toReserve, Request: r}
	}
	o := op{What: toCart, Request: r}
	for range 1 + d.IntN(4) {
		l := d.line()
		for _, other := range o.Lines {
			if other.SKU == l.SKU {
				l.Limit = other.Limit
			}
		}
		o.Lines = append(o.Lines, l)
	}
	return o
}

// hold is so long that nothing expires by itself; a quarter is sold at once.
func (d *dice) hold() time.Duration { return time.Duration(d.IntN(4)) * time.Hour }

func (d *dice) line() inventory.Line {
	l := inventory.Line{SKU: fmt.Sprintf("%s, SKU %d", d.name, d.IntN(callerSKUs)), Qty: 1 + d.Int64N(3)*d.Int64N(2)}
	l.Limit = []int64{0, 0, 0, 1, 3, 5}[d.IntN(6)]
	switch d.IntN(30) {
	case 0:
		l.SKU = d.name + ", unknown"
	case 1, 2, 3:
		l.SKU, l.Unstocked = d.name+", coupon", true
	}
	return l
}

// restock repeats a change now and then.
func (d *dice) restock(sku int, delta int64) op {
	d.changes++
	return restocks(inventory.Adjustment{
		ID:  fmt.Sprintf("%s, change %d", d.name, d.changes-1-d.IntN(min(2, d.changes))),
		SKU: fmt.Sprintf("%s, SKU %d", d.name, sku), Delta: delta,
	})
}
