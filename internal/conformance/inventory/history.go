package inventory

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/inventory"
)

// The steps of an env's history: what buyers were told must make sense in one order, in which the stock never is below none.
const (
	took     suite.What = "took"      // a number of units
	cameBack suite.What = "came back" // a number of units
	tooFew   suite.What = "too few"   // fewer units were left than that number
)

// counter is how much is left of an SKU.
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
	tellerSKUs  = 24
	tellerStock = 12 // of each
	tellers     = 16
)

// buyerLog is what happens in one round of an env: buyers who order, confirm, cancel and let expire, and ask again until they
// know.
type buyerLog struct {
	h    *suite.History
	name string

	// forgets: a crash of the server may lose what others have read, as InnoDB shows a commit before it is on the disk.
	forgets bool

	mu    sync.Mutex
	doers []worker // some may be gone
	n     int
}

func (s *env) newTale(t *testing.T, name string, doers []worker) *buyerLog {
	t.Helper()
	x := &buyerLog{h: &suite.History{Began: time.Now()}, name: name, doers: doers}
	for i := range tellerSKUs {
		s.stock(t, x.sku(i), tellerStock)
	}
	return x
}

func (x *buyerLog) sku(i int) string { return fmt.Sprintf("%s, SKU %d", x.name, i) }

// tell has buyers come until ctx ends.
func (x *buyerLog) tell(ctx context.Context, t *testing.T, seed uint64) {
	var buyers sync.WaitGroup
	for client := range tellers {
		random := rand.New(rand.NewPCG(seed, uint64(client)))
		buyers.Go(func() {
			for ctx.Err() == nil && !t.Failed() {
				x.buy(t, client, random)
			}
		})
	}
	buyers.Wait()
}

// any is one of those who can do something.
func (x *buyerLog) any(random *rand.Rand) worker {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.doers[random.IntN(len(x.doers))]
}

func (x *buyerLog) newKey() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.n++
	return fmt.Sprintf("%s, order %d", x.name, x.n)
}

// answer is the definite one to an op that was done over and over, and when the last try of it began.
type answer struct {
	reply
	began int64
	doubt bool // a try before may yet take effect
}

// until does an op until the answer is definite.
// What may be forgotten is asked for again when it is on the disk.
func (x *buyerLog) until(t *testing.T, random *rand.Rand, d op) (a answer) {
	for first := x.forgets; !t.Failed(); {
		a.began = x.h.Now()
		r, err := x.any(random)(t.Context(), d)
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
			t.Errorf("%s: an error of no kind: %s", d.Request.Key, r.Kind)
		}
		time.Sleep(rand.N(10 * time.Millisecond))
	}
	return a
}

// buy is one order, and what becomes of it.
func (x *buyerLog) buy(t *testing.T, client int, random *rand.Rand) {
	r := inventory.Request{Key: x.newKey(), SKU: x.sku(random.IntN(tellerSKUs)), Buyer: "b", Qty: 1 + random.Int64N(3)}
	switch random.IntN(4) {
	case 0: // it is sold at once
	case 1:
		r.Hold = time.Duration(1+random.IntN(40)) * time.Millisecond
	default:
		r.Hold = time.Hour
	}
	n := int(r.Qty)
	from := x.h.Now()
	got := x.order(t, client, random, r)
	if got.Kind != "" && got.Kind != isExpired {
		if random.IntN(8) == 0 {
			x.restock(t, client, random, r.SKU)
		}
		return
	}
	x.h.Note(client, from, x.h.Now(), suite.Step{What: took, Key: r.SKU, Permits: n})
	if r.Hold == 0 || r.Hold == time.Hour && random.IntN(8) == 0 {
		return
	}
	began := x.h.Now()
	if r.Hold < time.Hour {
		began = from // a sweeper may have been there before
	}
	if random.IntN(3) == 0 {
		if c := x.until(t, random, onKey(toConfirm, r.Key)); c.Kind == "" {
			return
		}
	}
	c := x.until(t, random, onKey(toCancel, r.Key))
	if c.Kind != "" || c.State != inventory.Cancelled && c.State != inventory.Expired {
		t.Errorf("%s was held, and cancelled: %+v", r.Key, c)
	}
	x.h.Note(client, began, x.h.Now(), suite.Step{What: cameBack, Key: r.SKU, Permits: n})
	if random.IntN(4) == 0 {
		x.until(t, random, op{What: toSweep, Most: 100})
	}
}

// order sends an order until it is known what became of it, now and then twice at once.
func (x *buyerLog) order(t *testing.T, client int, random *rand.Rand, r inventory.Request) (got answer) {
	d := op{What: toReserve, Request: r}
	var twin answer
	var both sync.WaitGroup
	twice := random.IntN(3) == 0
	if twice {
		other := rand.New(rand.NewPCG(random.Uint64(), 0))
		both.Go(func() { twin = x.until(t, other, d) })
	}
	got = x.until(t, random, d)
	both.Wait()
	for _, a := range []answer{got, twin} {
		if a.Kind == isSoldOut && a.Detail != "as before" {
			x.h.Note(client, a.began, x.h.Now(), suite.Step{What: tooFew, Key: r.SKU, Permits: int(r.Qty)})
		}
	}
	if twice && got.Kind == isSoldOut && twin.Kind != isSoldOut {
		return twin
	}
	if got.Kind != isSoldOut || !got.doubt && !twin.doubt {
		return got
	}
	// A try whose answer was lost may yet sell it: make sure that it never will, or learn that it has.
	from := x.h.Now()
	end := x.until(t, random, onKey(toCancel, r.Key))
	switch {
	case end.Kind == isConfirmed:
		got.Kind = ""
	case end.SKU != "" && end.State != inventory.Refused:
		x.h.Note(client, 0, x.h.Now(), suite.Step{What: took, Key: r.SKU, Permits: int(r.Qty)})
		x.h.Note(client, from, x.h.Now(), suite.Step{What: cameBack, Key: r.SKU, Permits: int(r.Qty)})
	}
	return got
}

// withEnd is the history with what the books say in the end: so much can be taken of each SKU, and no more.
func (x *buyerLog) withEnd(t *testing.T, s *env, beside map[string]int64) *suite.History {
	t.Helper()
	books, err := s.Audit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var end []suite.Step
	for _, b := range books {
		if left := b.Available + beside[b.SKU]; strings.HasPrefix(b.SKU, x.name) {
			end = append(end, suite.Step{What: took, Key: b.SKU, Permits: int(left)}, suite.Step{What: tooFew, Key: b.SKU, Permits: 1})
		}
	}
	return &suite.History{Began: x.h.Began, Steps: x.h.And(end...)}
}

// isTrue tells whether the log makes sense.
func (x *buyerLog) isTrue(t *testing.T, s *env) bool {
	t.Helper()
	for swept := 1; swept > 0; {
		var err error
		if swept, err = s.Sweep(t.Context(), 1000); err != nil {
			t.Fatal(err)
		}
	}
	h := x.withEnd(t, s, nil)
	t.Logf("%s: %v", x.name, h)
	return h.IsRight(t, counter{tellerStock})
}

// liesAreNoticed is the control: one step that never was, or one that is left out. Only the SKU that it is about is looked at.
func (x *buyerLog) liesAreNoticed(t *testing.T, s *env) {
	t.Helper()
	at := slices.IndexFunc(x.h.Steps, func(o porcupine.Operation) bool { return o.Input.(suite.Step).What == cameBack })
	if at < 0 {
		t.Error("nothing has ever come back: this shows nothing")
		return
	}
	sku := x.h.Steps[at].Input.(suite.Step).Key
	of := func(steps []porcupine.Operation, but int) (some []porcupine.Operation) {
		for i, o := range steps {
			if o.Input.(suite.Step).Key == sku && i != but {
				some = append(some, o)
			}
		}
		return some
	}
	all := -1
	x.h.ForgeriesAreNoticed(t, counter{tellerStock}, map[string][]porcupine.Operation{
		"a unit that nobody was told of":     of(x.withEnd(t, s, map[string]int64{sku: 1}).Steps, all),
		"a unit that is gone":                of(x.withEnd(t, s, map[string]int64{sku: -1}).Steps, all),
		"a refusal where there is enough":    of(x.h.And(suite.Step{What: cameBack, Key: sku, Permits: 3}, suite.Step{What: tooFew, Key: sku, Permits: 3}), all),
		"a sale of more than there ever was": of(x.h.And(suite.Step{What: took, Key: sku, Permits: math.MaxInt32}), all),
		"units that came back are left out":  of(x.withEnd(t, s, nil).Steps, at),
	})
}

// theTaleNotices is the control of the control: an env without its guards tells what makes no sense.
func theTaleNotices(t *testing.T, e Inventory) {
	for name, sabotage := range controls {
		if name == "limits that are not counted" {
			continue // nobody has one here
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := e.env(t, inventory.Options{})
			x := s.newTale(t, "tale", []worker{doneBy(s.Store), doneBy(s.open(t, s.o))})
			sabotage(t, s)
			for seed := range uint64(20) {
				ctx, stop := context.WithTimeout(t.Context(), time.Second)
				x.tell(ctx, t, seed)
				stop()
				if !x.isTrue(t, s) {
					return
				}
			}
			t.Error("the history made sense: the test of histories could not fail")
		})
	}
}

// tellsNoLies is a log in peace.
func tellsNoLies(t *testing.T, s *env) {
	s.keepsBooks(t)
	x := s.newTale(t, "tale", []worker{doneBy(s.Store), doneBy(s.open(t, s.o))})
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Second)
	defer stop()
	x.tell(ctx, t, suite.SeedOf(t))
	s.ends(t, x)
}
