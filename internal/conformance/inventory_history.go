package conformance

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
	"github.com/dblock-go/dblock/inventory"
)

// The steps of a shop's history: what buyers were told must make sense in one order, in which the stock never is below none.
const (
	took     what = "took"      // so many units
	cameBack what = "came back" // so many
	tooFew   what = "too few"   // fewer than so many were left
)

// counter is how much is left of an SKU.
type counter struct{ left int }

func (c counter) next(s step) []state {
	switch {
	case s.what == took && s.permits <= c.left:
		return []state{counter{c.left - s.permits}}
	case s.what == cameBack:
		return []state{counter{c.left + s.permits}}
	case s.what == tooFew && s.permits > c.left:
		return []state{c}
	}
	return nil
}

const (
	tellerSKUs  = 24
	tellerStock = 12 // of each
	tellers     = 16
)

// tale is what happens in one round of a shop: buyers who order, confirm, cancel and let expire, and ask again until they
// know.
type tale struct {
	h    *history
	name string

	// forgets: a crash of the server may lose what others have read, as InnoDB shows a commit before it is on the disk.
	forgets bool

	mu    sync.Mutex
	doers []doer // some may be gone
	n     int
}

func (s *shop) newTale(t *testing.T, name string, doers []doer) *tale {
	t.Helper()
	x := &tale{h: &history{began: time.Now()}, name: name, doers: doers}
	for i := range tellerSKUs {
		s.stock(t, x.sku(i), tellerStock)
	}
	return x
}

func (x *tale) sku(i int) string { return fmt.Sprintf("%s, SKU %d", x.name, i) }

// tell has buyers come until ctx ends.
func (x *tale) tell(ctx context.Context, t *testing.T, seed uint64) {
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
func (x *tale) any(random *rand.Rand) doer {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.doers[random.IntN(len(x.doers))]
}

func (x *tale) newKey() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.n++
	return fmt.Sprintf("%s, order %d", x.name, x.n)
}

// answer is the definite one to a deed that was done over and over, and when the last try of it began.
type answer struct {
	reply
	began int64
	doubt bool // a try before may yet take effect
}

// until does a deed until the answer is definite.
// What may be forgotten is asked for again when it is on the disk.
func (x *tale) until(t *testing.T, random *rand.Rand, d deed) (a answer) {
	for first := x.forgets; !t.Failed(); {
		a.began = x.h.now()
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
func (x *tale) buy(t *testing.T, client int, random *rand.Rand) {
	r := inventory.Request{Key: x.newKey(), SKU: x.sku(random.IntN(tellerSKUs)), Buyer: "b", Qty: 1 + random.Int64N(3)}
	switch random.IntN(4) {
	case 0: // it is sold at once
	case 1:
		r.Hold = time.Duration(1+random.IntN(40)) * time.Millisecond
	default:
		r.Hold = time.Hour
	}
	n := int(r.Qty)
	from := x.h.now()
	got := x.order(t, client, random, r)
	if got.Kind != "" && got.Kind != isExpired {
		if random.IntN(8) == 0 {
			x.restock(t, client, random, r.SKU)
		}
		return
	}
	x.h.note(client, from, x.h.now(), step{what: took, key: r.SKU, permits: n})
	if r.Hold == 0 || r.Hold == time.Hour && random.IntN(8) == 0 {
		return
	}
	began := x.h.now()
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
	x.h.note(client, began, x.h.now(), step{what: cameBack, key: r.SKU, permits: n})
	if random.IntN(4) == 0 {
		x.until(t, random, deed{What: toSweep, Most: 100})
	}
}

// order sends an order until it is known what became of it, now and then twice at once.
func (x *tale) order(t *testing.T, client int, random *rand.Rand, r inventory.Request) (got answer) {
	d := deed{What: toReserve, Request: r}
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
			x.h.note(client, a.began, x.h.now(), step{what: tooFew, key: r.SKU, permits: int(r.Qty)})
		}
	}
	if twice && got.Kind == isSoldOut && twin.Kind != isSoldOut {
		return twin
	}
	if got.Kind != isSoldOut || !got.doubt && !twin.doubt {
		return got
	}
	// A try whose answer was lost may yet sell it: make sure that it never will, or learn that it has.
	from := x.h.now()
	end := x.until(t, random, onKey(toCancel, r.Key))
	switch {
	case end.Kind == isConfirmed:
		got.Kind = ""
	case end.SKU != "" && end.State != inventory.Refused:
		x.h.note(client, 0, x.h.now(), step{what: took, key: r.SKU, permits: int(r.Qty)})
		x.h.note(client, from, x.h.now(), step{what: cameBack, key: r.SKU, permits: int(r.Qty)})
	}
	return got
}

// withEnd is the history with what the books say in the end: so much can be taken of each SKU, and no more.
func (x *tale) withEnd(t *testing.T, s *shop, beside map[string]int64) *history {
	t.Helper()
	books, err := s.Audit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var end []step
	for _, b := range books {
		if left := b.Available + beside[b.SKU]; strings.HasPrefix(b.SKU, x.name) {
			end = append(end, step{what: took, key: b.SKU, permits: int(left)}, step{what: tooFew, key: b.SKU, permits: 1})
		}
	}
	return &history{began: x.h.began, steps: x.h.and(end...)}
}

// isTrue tells whether the tale makes sense.
func (x *tale) isTrue(t *testing.T, s *shop) bool {
	t.Helper()
	for swept := 1; swept > 0; {
		var err error
		if swept, err = s.Sweep(t.Context(), 1000); err != nil {
			t.Fatal(err)
		}
	}
	h := x.withEnd(t, s, nil)
	t.Logf("%s: %v", x.name, h)
	return h.isRight(t, counter{tellerStock})
}

// liesAreNoticed is the control: one step that never was, or one that is left out. Only the SKU that it is about is looked at.
func (x *tale) liesAreNoticed(t *testing.T, s *shop) {
	t.Helper()
	at := slices.IndexFunc(x.h.steps, func(o porcupine.Operation) bool { return o.Input.(step).what == cameBack })
	if at < 0 {
		t.Error("nothing has ever come back: this shows nothing")
		return
	}
	sku := x.h.steps[at].Input.(step).key
	of := func(steps []porcupine.Operation, but int) (some []porcupine.Operation) {
		for i, o := range steps {
			if o.Input.(step).key == sku && i != but {
				some = append(some, o)
			}
		}
		return some
	}
	all := -1
	x.h.forgeriesAreNoticed(t, counter{tellerStock}, map[string][]porcupine.Operation{
		"a unit that nobody was told of":     of(x.withEnd(t, s, map[string]int64{sku: 1}).steps, all),
		"a unit that is gone":                of(x.withEnd(t, s, map[string]int64{sku: -1}).steps, all),
		"a refusal where there is enough":    of(x.h.and(step{what: cameBack, key: sku, permits: 3}, step{what: tooFew, key: sku, permits: 3}), all),
		"a sale of more than there ever was": of(x.h.and(step{what: took, key: sku, permits: math.MaxInt32}), all),
		"units that came back are left out":  of(x.withEnd(t, s, nil).steps, at),
	})
}

// theTaleNotices is the control of the control: a shop without its guards tells what makes no sense.
func theTaleNotices(t *testing.T, e Inventory) {
	for name, sabotage := range sabotages {
		if name == "limits that are not counted" {
			continue // nobody has one here
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := e.shop(t, inventory.Options{})
			x := s.newTale(t, "tale", []doer{doneBy(s.Store), doneBy(s.open(t, s.o))})
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

// tellsNoLies is a tale in peace.
func tellsNoLies(t *testing.T, s *shop) {
	s.keepsBooks(t)
	x := s.newTale(t, "tale", []doer{doneBy(s.Store), doneBy(s.open(t, s.o))})
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Second)
	defer stop()
	x.tell(ctx, t, seedOf(t))
	s.ends(t, x)
}
