package inventory

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/inventory"
)

const (
	chaosSellers = 6               // of each Store
	chaosBurst   = 8               // orders that a seller sends at once
	chaosRound   = 8 * time.Second // then the books are closed and all starts anew
)

// SurvivesFaults sells on a server of its own that is killed, frozen and cut off from its clients,
// for 4 s or as long as DBLOCK_SOAK says; then with a hook, and as long again while buyers come and go of whom a history is kept.
func (e Inventory) SurvivesFaults(t *testing.T) {
	lasts := 4 * time.Second
	if soak := os.Getenv(suite.EnvSoak); soak != "" {
		var err error
		if lasts, err = time.ParseDuration(soak); err != nil {
			t.Fatalf("%s: %v", suite.EnvSoak, err)
		}
	}
	s, server := e.envOfItsOwn(t)
	if server != nil {
		answersWhileFrozen(t, s, server)
	}
	seed := suite.SeedOf(t)
	n := &suite.FaultInjector{DB: s.db, Kind: e.Kind, Server: server, Random: rand.New(rand.NewPCG(seed, 0)), Counts: map[string]int{}}
	stores := map[string]*inventory.Store{}
	for _, strategy := range []inventory.Strategy{inventory.Merge, inventory.Direct, inventory.SkipLocked, inventory.CAS} {
		stores[strategy.String()] = s.open(t, inventory.Options{Strategy: strategy, Timeout: suite.ChaosTimeout})
	}
	end := time.Now().Add(lasts)
	for round := 0; !t.Failed() && time.Now().Before(end); round++ {
		c := newChaos(s, stores, fmt.Sprintf("round %d", round), seed+uint64(round)+1)
		c.run(t, n, min(chaosRound, time.Until(end)))
	}
	if !t.Failed() {
		s.hooksUnderFaults(t, n, seed, lasts)
	}
	if !t.Failed() {
		s.tellsNoLiesUnderFaults(t, n, seed, lasts)
	}
	t.Logf("injected: %v", n.Counts)
}

// chaos is one round: sellers that send new orders and old ones again, and what each was told.
type chaos struct {
	s      *env
	stores map[string]*inventory.Store
	name   string
	random *rand.Rand // under mu

	mu     sync.Mutex
	orders []inventory.Request
	told   map[string]*verdicts
	errs   map[string]int // how often each kind of answer was given
}

// verdicts counts what was said of one order.
type verdicts struct{ sold, fresh, soldOut int }

const plenty, scarceStock = 1_000_000, 150

func newChaos(s *env, stores map[string]*inventory.Store, name string, seed uint64) *chaos {
	return &chaos{
		s: s, stores: stores, name: name, random: rand.New(rand.NewPCG(seed, 1)),
		told: map[string]*verdicts{}, errs: map[string]int{},
	}
}

func (c *chaos) plenty() string { return c.name + " plenty" }

func (c *chaos) scarce() string { return c.name + " scarce" }

// run has them sell while the fault injector is at work, then sends everything again until it is answered.
func (c *chaos) run(t *testing.T, n *suite.FaultInjector, lasts time.Duration) {
	for sku, units := range map[string]int64{c.plenty(): plenty, c.scarce(): scarceStock} {
		if _, err := c.s.Restock(t.Context(), inventory.Adjustment{ID: sku, SKU: sku, Delta: units}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithTimeout(t.Context(), lasts)
	defer stop()
	var sellers sync.WaitGroup
	for _, store := range c.stores {
		for range chaosSellers {
			sellers.Go(func() {
				for ctx.Err() == nil {
					c.sell(t, store)
				}
			})
		}
	}
	if err := n.Rage(ctx); err != nil {
		t.Error(err)
	}
	sellers.Wait()
	t.Logf("%s: %d orders, answers %v", c.name, len(c.orders), c.errs)
	if t.Failed() {
		return
	}
	c.sendAllAgain(t)
	faults := c.check(t)
	for _, fault := range faults {
		t.Errorf("%s: %s", c.name, fault)
	}
	if len(faults) == 0 {
		c.checkNotices(t)
	}
	c.s.sound(t)
}

// sell sends a burst of orders at once, half of them new. The caller is never the one to give up.
func (c *chaos) sell(t *testing.T, store *inventory.Store) {
	var burst sync.WaitGroup
	for range chaosBurst {
		burst.Go(func() { c.send(t, store, c.next()) })
	}
	burst.Wait()
}

func (c *chaos) next() inventory.Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.orders) > 0 && c.random.IntN(2) == 0 {
		return c.orders[c.random.IntN(len(c.orders))]
	}
	sku := c.plenty()
	if c.random.IntN(4) == 0 {
		sku = c.scarce()
	}
	r := order(fmt.Sprintf("%s, order %d", c.name, len(c.orders)), sku, 1)
	c.orders = append(c.orders, r)
	c.told[r.Key] = &verdicts{}
	return r
}

// send sends one order and notes the answer. It returns whether that is one for good.
func (c *chaos) send(t *testing.T, store *inventory.Store, r inventory.Request) bool {
	res, err := store.Reserve(t.Context(), r)
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.told[r.Key]
	switch {
	case err == nil:
		v.sold++
		if !res.Replayed {
			v.fresh++
		}
		c.errs["sold"]++
		return true
	case errors.Is(err, inventory.ErrSoldOut):
		v.soldOut++
		c.errs["sold out"]++
		return true
	}
	for _, allowed := range []error{dblock.ErrBusy, dblock.ErrUnavailable, dblock.ErrOutcomeUnknown} {
		if errors.Is(err, allowed) {
			c.errs[allowed.Error()]++
			return false
		}
	}
	t.Errorf("%s: an error of no kind: %v", r.Key, err)
	return true
}
