package inventory

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/inventory"
)

// The steps of a history of buyers: their answers must make sense in one order, in which no SKU
// ever has fewer than no units.
const (
	took     suite.What = "took"      // a number of units
	cameBack suite.What = "came back" // a number of units
	tooFew   suite.What = "too few"   // fewer units were left than that number
)

// counter is the state of an SKU: how many units are left.
type counter struct{ left int }

func (c counter) Next(s suite.Step) []suite.State {
	switch {
	case s.What == took && s.Permits <= c.left:
		return []suite.State{counter{c.left - s.Permits}}
	case s.What == cameBack:
		return []suite.State{counter{c.left + s.Permits}}
	case s.What == tooFew && s.Permits > c.left:
		return []suite.State{c}
	}
	return nil
}

const (
	buyerSKUs  = 24
	buyerStock = 12 // of each
	buyerCount = 16
)

// buyers order, confirm, cancel and let holds expire. They repeat each call until its answer is
// definite.
type buyers struct {
	h    *suite.History
	s    *env
	name string

	// forgets: a crash of the server may lose what others have read, as InnoDB shows a commit
	// before it is on the disk.
	forgets bool

	mu      sync.Mutex
	workers []worker // some may be gone
	n       int
}

func (s *env) buyers(t *testing.T, name string, workers ...worker) *buyers {
	t.Helper()
	x := &buyers{h: &suite.History{Began: time.Now()}, s: s, name: name, workers: workers}
	for i := range buyerSKUs {
		s.stock(t, x.sku(i), buyerStock)
	}
	return x
}

func (x *buyers) sku(i int) string { return fmt.Sprintf("%s, SKU %d", x.name, i) }

// buy has buyers come until ctx ends.
func (x *buyers) buy(ctx context.Context, t *testing.T, seed uint64) {
	suite.Crowd(buyerCount, func(i int) {
		b := &buyer{x, t, i, rand.New(rand.NewPCG(seed, uint64(i)))}
		for ctx.Err() == nil && !t.Failed() {
			b.buy()
		}
	})
}

func (x *buyers) any(random *rand.Rand) worker {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.workers[random.IntN(len(x.workers))]
}

func (x *buyers) newKey() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.n++
	return fmt.Sprintf("%s, order %d", x.name, x.n)
}

// buyer is one of them.
type buyer struct {
	*buyers
	t      *testing.T
	number int
	random *rand.Rand
}

func (b *buyer) note(from int64, what suite.What, sku string, units int64) {
	b.h.Note(b.number, from, b.h.Now(), step(what, sku, units))
}

func step(what suite.What, sku string, units int64) suite.Step {
	return suite.Step{What: what, Key: sku, Permits: int(units)}
}

// answer is the definite reply to an op, and when its last try began.
type answer struct {
	reply
	began int64
	doubt bool // an earlier try may yet take effect
}

// until repeats an op until the answer is definite, and on the disk.
func (b *buyer) until(d op) (a answer) {
	for first := b.forgets; !b.t.Failed(); {
		a.began = b.h.Now()
		r, err := b.any(b.random)(b.t.Context(), d)
		if err == nil && (r.Kind == "" || kinds[r.Kind] != nil) {
			if r.Replayed && first {
				first = false
				time.Sleep(50 * time.Millisecond)
				continue
			}
			a.reply = r
			return a
		}
		a.doubt = a.doubt || err != nil || strings.Contains(r.Kind, dblock.ErrOutcomeUnknown.Error())
		busy := strings.Contains(r.Kind, dblock.ErrBusy.Error()) || strings.Contains(r.Kind, dblock.ErrUnavailable.Error())
		if !a.doubt && !busy {
			b.t.Errorf("%s: an error of no kind: %s", d.Request.Key, r.Kind)
		}
		time.Sleep(rand.N(10 * time.Millisecond))
	}
	return a
}

// buy is one order, and what becomes of it.
func (b *buyer) buy() {
	r := inventory.Request{Key: b.newKey(), SKU: b.sku(b.random.IntN(buyerSKUs)), Buyer: "b", Qty: 1 + b.random.Int64N(3)}
	switch b.random.IntN(4) {
	case 0: // it is sold at once
	case 1:
		r.Hold = time.Duration(1+b.random.IntN(40)) * time.Millisecond
	default:
		r.Hold = time.Hour
	}
	from := b.h.Now()
	if got := b.order(r); got.Kind != "" && got.Kind != isExpired {
		if b.random.IntN(8) == 0 {
			a := inventory.Adjustment{ID: b.newKey(), SKU: r.SKU, Delta: 1 + b.random.Int64N(3)}
			from = b.h.Now()
			b.until(op{What: toRestock, Adjustment: a})
			b.note(from, cameBack, r.SKU, a.Delta)
		}
		return
	}
	b.note(from, took, r.SKU, r.Qty)
	if r.Hold == 0 || r.Hold == time.Hour && b.random.IntN(8) == 0 {
		return
	}
	if r.Hold == time.Hour { // else a sweeper may have been there before
		from = b.h.Now()
	}
	if b.random.IntN(3) == 0 && b.until(onKey(toConfirm, r.Key)).Kind == "" {
		return
	}
	c := b.until(onKey(toCancel, r.Key))
	if c.Kind != "" || c.State != inventory.Cancelled && c.State != inventory.Expired {
		b.t.Errorf("%s was held, and cancelled: %+v", r.Key, c)
	}
	b.note(from, cameBack, r.SKU, r.Qty)
	if b.random.IntN(4) == 0 {
		b.until(op{What: toSweep, Most: 100})
	}
}

// order sends an order until it is known what became of it, now and then twice at once.
func (b *buyer) order(r inventory.Request) (got answer) {
	d := op{What: toReserve, Request: r}
	answers := make([]answer, 1, 2)
	if b.random.IntN(3) == 0 {
		answers = answers[:2]
	}
	twin := *b
	twin.random = rand.New(rand.NewPCG(b.random.Uint64(), 0))
	suite.Crowd(len(answers), func(i int) { answers[i] = []*buyer{b, &twin}[i].until(d) })
	doubt := false
	for _, a := range answers {
		if doubt = doubt || a.doubt; a.Kind == isSoldOut && a.Detail != "as before" {
			b.note(a.began, tooFew, r.SKU, r.Qty)
		}
	}
	for _, got = range answers {
		if got.Kind != isSoldOut {
			return got
		}
	}
	if !doubt {
		return got
	}
	// A try whose answer was lost may yet sell it: make sure that it never does, or learn that it
	// has.
	from := b.h.Now()
	switch end := b.until(onKey(toCancel, r.Key)); {
	case end.Kind == isConfirmed:
		got.Kind = ""
	case end.SKU != "" && end.State != inventory.Refused:
		b.note(0, took, r.SKU, r.Qty)
		b.note(from, cameBack, r.SKU, r.Qty)
	}
	return got
}

// withEnd is the history with what the books say in the end: all units that are left, and some
// beside, can be taken of each SKU, and no more.
func (x *buyers) withEnd(t *testing.T, beside map[string]int64) *suite.History {
	t.Helper()
	var end []suite.Step
	for _, b := range suite.Must(x.s.Audit(t.Context()))(t) {
		if left := b.Available + beside[b.SKU]; strings.HasPrefix(b.SKU, x.name) {
			end = append(end, step(took, b.SKU, left), step(tooFew, b.SKU, 1))
		}
	}
	return &suite.History{Began: x.h.Began, Steps: x.h.And(end...)}
}

// isRight reports whether the history makes sense.
func (x *buyers) isRight(t *testing.T) bool {
	t.Helper()
	for swept := 1; swept > 0; {
		swept = suite.Must(x.s.Sweep(t.Context(), 1000))(t)
	}
	h := x.withEnd(t, nil)
	t.Logf("%s: %v", x.name, h)
	return h.IsRight(t, counter{buyerStock})
}

// end checks the history and the books. The controls are histories of one SKU with a step more, or
// less.
func (x *buyers) end(t *testing.T) {
	t.Helper()
	if t.Failed() {
		return
	}
	// This waits for what is still under way.
	for _, table := range []string{"dblock_reservation", "dblock_quota", "dblock_stock"} {
		x.s.lockRows(t, "SELECT 1 FROM "+table+" FOR UPDATE")()
	}
	if !x.isRight(t) {
		t.Errorf("no Store would have answered so:\n%s", x.withEnd(t, nil).Wrong(counter{buyerStock}))
	}
	back, at, found := x.h.First(func(s suite.Step) bool { return s.What == cameBack })
	require.True(t, found, "something came back")
	sku := back.Key
	of := func(steps []porcupine.Operation, but int) (some []porcupine.Operation) {
		for i, o := range steps {
			if o.Input.(suite.Step).Key == sku && i != but {
				some = append(some, o)
			}
		}
		return some
	}
	x.h.ForgeriesAreNoticed(t, counter{buyerStock}, map[string][]porcupine.Operation{
		"a unit too many":                    of(x.withEnd(t, map[string]int64{sku: 1}).Steps, -1),
		"a unit too few":                     of(x.withEnd(t, map[string]int64{sku: -1}).Steps, -1),
		"a refusal of enough":                of(x.h.And(step(cameBack, sku, 3), step(tooFew, sku, 3)), -1),
		"a sale of more than there ever was": of(x.h.And(step(took, sku, math.MaxInt32)), -1),
		"units that came back are left out":  of(x.withEnd(t, nil).Steps, at),
	})
	x.s.balanced(t)
}

// theTaleNotices is the control of the control: the history of a database without its guards makes
// no sense.
func theTaleNotices(t *testing.T, e Inventory) {
	for name, control := range controls {
		if name == "limits that are not counted" {
			continue // no buyer has one here
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := e.env(t, patient(merged))
			x := s.buyers(t, "tale", doneBy(s.Store), doneBy(s.open(t, s.o)))
			control(t, s)
			for seed := range uint64(20) {
				ctx, stop := context.WithTimeout(t.Context(), time.Second)
				x.buy(ctx, t, seed)
				stop()
				if !x.isRight(t) {
					return
				}
			}
			t.Error("the history makes sense")
		})
	}
}

// tellsNoLies is a history without faults.
func tellsNoLies(t *testing.T, s *env) {
	s.keepsBooks(t)
	x := s.buyers(t, "tale", doneBy(s.Store), doneBy(s.open(t, s.o)))
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Second)
	defer stop()
	x.buy(ctx, t, suite.SeedOf(t))
	x.end(t)
}

// tellsNoLiesUnderFaults has one history after the other while the server is killed, frozen and cut
// off, answers are lost, and processes that wait for an answer are killed, and replaced.
func (s *env) tellsNoLiesUnderFaults(t *testing.T, n *suite.FaultInjector, seed uint64, lasts time.Duration) {
	t.Helper()
	var workers []worker
	var dialers []*faultconn.Dialer
	for _, o := range []inventory.Options{merged, merged, direct} {
		dialers = append(dialers, &faultconn.Dialer{})
		o.Timeout = suite.ChaosTimeout
		store := s.openOn(t, dialers[len(dialers)-1], o)
		workers = append(workers, doneBy(store))
	}
	var processes [2]*process
	for i := range processes {
		processes[i] = s.startProcess(t, inventory.Options{Timeout: suite.ChaosTimeout})
		workers = append(workers, processes[i].do)
	}
	strike := func(ctx context.Context, i int, x *buyers) {
		switch i % 4 {
		case 0:
			n.Counts["lose answers"]++
			for _, d := range dialers {
				d.Arm(1+n.Random.IntN(8), faultconn.CutAfter, nil)
			}
		case 1:
			n.Counts["kill -9 a client"]++
			which := n.Random.IntN(len(processes))
			processes[which].kill()
			processes[which] = s.startProcess(t, inventory.Options{Timeout: suite.ChaosTimeout})
			x.mu.Lock()
			defer x.mu.Unlock()
			workers[len(dialers)+which] = processes[which].do // those of x, too
		default:
			what, err := n.Strike(ctx)
			assert.NoError(t, err, what)
			n.Counts[what]++
		}
	}
	s.keepsBooks(t)
	end := time.Now().Add(lasts)
	for round := uint64(0); !t.Failed() && time.Now().Before(end); round++ {
		x := s.buyers(t, fmt.Sprintf("tale %d", round), workers...)
		x.forgets = !s.Postgres()
		ctx, stop := context.WithTimeout(t.Context(), min(chaosRound, time.Until(end)))
		bought := make(chan struct{})
		go func() {
			defer close(bought)
			x.buy(ctx, t, seed+round)
		}()
		for i := 0; n.Lull(ctx, 400*time.Millisecond); i++ {
			strike(ctx, i, x)
		}
		<-bought
		stop()
		x.end(t)
	}
}
