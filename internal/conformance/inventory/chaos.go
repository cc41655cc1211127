package inventory

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/inventory"
)

const (
	chaosSellers = 6               // of each Store
	chaosBurst   = 8               // orders that a seller sends at once
	chaosRound   = 8 * time.Second // then the books are closed and all starts anew
	hookRound    = 2 * time.Second
	chaosStock   = 150             // of the scarce SKU
	againTimeout = 3 * time.Minute // how long a healthy server may take to answer everything
)

// SurvivesFaults sells on a server of its own that is killed, frozen and cut off from its clients,
// for 4 s or as long as DBLOCK_SOAK says. It sells with a hook then, and as long again with a
// history of the buyers.
func (e Inventory) SurvivesFaults(t *testing.T) {
	lasts := 4 * time.Second
	if soak := os.Getenv(suite.EnvSoak); soak != "" {
		lasts = suite.Must(time.ParseDuration(soak))(t)
	}
	s, server := e.envOfItsOwn(t)
	if server != nil {
		answersWhileFrozen(t, s, server)
	}
	seed := suite.SeedOf(t)
	random := rand.New(rand.NewPCG(seed, 0))
	n := &suite.FaultInjector{DB: s.db, Kind: e.Kind, Server: server, Random: random, Counts: map[string]int{}}
	stores := map[string]*inventory.Store{}
	for way, o := range ways {
		o.Timeout = suite.ChaosTimeout
		stores[way] = s.open(t, o)
	}
	end := time.Now().Add(lasts)
	for round := uint64(0); !t.Failed() && time.Now().Before(end); round++ {
		newChaos(s, stores, fmt.Sprintf("round %d", round), seed+round+1).run(t, n, min(chaosRound, time.Until(end)))
	}
	if !t.Failed() {
		s.hooksUnderFaults(t, n, seed, lasts)
	}
	if !t.Failed() {
		s.tellsNoLiesUnderFaults(t, n, seed, lasts)
	}
	t.Logf("injected: %v", n.Counts)
}

// hooksUnderFaults sells with a hook until the server was killed meanwhile, and in a long run for a
// quarter of its time: each order that is sold has its row of the owner's, and no other has one.
func (s *env) hooksUnderFaults(t *testing.T, n *suite.FaultInjector, seed uint64, lasts time.Duration) {
	t.Helper()
	store := s.hookedOn(t, s.dsn, &faultconn.Dialer{}, inventory.Options{Timeout: suite.ChaosTimeout}, ownRows)
	kills, end := n.Counts["kill -9"], time.Now().Add(lasts/4)
	goesOn := func() bool { return time.Now().Before(end) || n.Server != nil && n.Counts["kill -9"] == kills }
	for round := uint64(0); round == 0 || goesOn(); round++ {
		c := newChaos(s, map[string]*inventory.Store{"hooked": store}, fmt.Sprintf("hooked %d", round), seed+round)
		c.run(t, n, hookRound)
		if !assert.Empty(t, s.ownRowsAmiss(t, c.name)) || t.Failed() {
			return
		}
	}
	s.execf(t, "DELETE FROM own_order WHERE order_key = '%s'", s.Text(t, "SELECT min(order_key) FROM own_order"))
	s.Exec(t, "INSERT INTO own_order (order_key, n) VALUES ('hooked and forged', 1)")
	assert.Len(t, s.ownRowsAmiss(t, "hooked"), 2, "the control is an order without its row and a row without an order")
}

// chaos is one round: sellers send new orders and old ones again, of an SKU with plenty of units
// and of a scarce one.
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

// verdicts counts the answers to one order.
type verdicts struct{ sold, fresh, soldOut int }

func newChaos(s *env, stores map[string]*inventory.Store, name string, seed uint64) *chaos {
	random := rand.New(rand.NewPCG(seed, 1))
	return &chaos{s: s, stores: stores, name: name, random: random, told: map[string]*verdicts{}, errs: map[string]int{}}
}

func (c *chaos) plenty() string { return c.name + " plenty" }

func (c *chaos) scarce() string { return c.name + " scarce" }

// run has them sell beside the fault injector, then sends everything again until it is answered.
func (c *chaos) run(t *testing.T, n *suite.FaultInjector, lasts time.Duration) {
	c.s.restock(t, c.plenty(), c.plenty(), 1_000_000)
	c.s.restock(t, c.scarce(), c.scarce(), chaosStock)
	ctx, stop := context.WithTimeout(t.Context(), lasts)
	defer stop()
	var sellers sync.WaitGroup
	for _, store := range c.stores {
		for range chaosSellers {
			sellers.Go(func() {
				for ctx.Err() == nil {
					suite.Crowd(chaosBurst, func(int) { c.send(t, store, c.next()) })
				}
			})
		}
	}
	assert.NoError(t, n.Rage(ctx))
	sellers.Wait()
	t.Logf("%s: %d orders, answers %v", c.name, len(c.orders), c.errs)
	if t.Failed() {
		return
	}
	c.sendAllAgain(t)
	if assert.Empty(t, c.check(t), c.name) {
		c.checkNotices(t)
	}
	c.s.sound(t)
}

// next is an order, half of the time a new one.
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

// send sends one order and records the answer. It returns whether that is final.
func (c *chaos) send(t *testing.T, store *inventory.Store, r inventory.Request) (final bool) {
	res, err := store.Reserve(t.Context(), r)
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.told[r.Key]
	switch {
	case err == nil:
		c.errs["sold"]++
		if v.sold++; !res.Replayed {
			v.fresh++
		}
		return true
	case errors.Is(err, inventory.ErrSoldOut):
		c.errs["sold out"]++
		v.soldOut++
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

// sendAllAgain sends every order to every Store until the answer is final.
func (c *chaos) sendAllAgain(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), againTimeout)
	defer cancel()
	var senders sync.WaitGroup
	for _, store := range c.stores {
		var next atomic.Int64
		for range 64 {
			senders.Go(func() {
				for {
					i := int(next.Add(1)) - 1
					if i >= len(c.orders) {
						return
					}
					for r := c.orders[i]; !c.send(t, store, r); time.Sleep(rand.N(10 * time.Millisecond)) {
						if ctx.Err() != nil {
							t.Errorf("%s was not answered in %v on a healthy server", r.Key, againTimeout)
							return
						}
					}
				}
			})
		}
	}
	senders.Wait()
}

// check compares the answers to each order with each other and with the tables.
func (c *chaos) check(t *testing.T) (faults []string) {
	recorded := map[string]string{} // states by key
	for _, row := range c.s.query(t, fmt.Sprintf(
		"SELECT reservation_key, state FROM dblock_reservation WHERE sku IN ('%s', '%s')", c.plenty(), c.scarce())) {
		recorded[row[0]] = row[1]
	}
	isSold := fmt.Sprint(int16(inventory.Sold))
	sold := map[string]int64{}
	for _, r := range c.orders {
		v := c.told[r.Key]
		for fault, is := range map[string]bool{
			"both sold and sold out":         v.sold > 0 && v.soldOut > 0,
			"sold anew twice":                v.fresh > 1,
			"sold, and not recorded so":      v.sold > 0 && recorded[r.Key] != isSold,
			"sold out, and recorded as sold": v.soldOut > 0 && recorded[r.Key] == isSold,
			"never answered":                 v.sold+v.soldOut == 0,
		} {
			if is {
				faults = append(faults, fmt.Sprintf("%s is %s: %+v, recorded is %s", r.Key, fault, *v, recorded[r.Key]))
			}
		}
		if v.sold > 0 {
			sold[r.SKU] += r.Qty
		}
	}
	for _, sku := range []string{c.plenty(), c.scarce()} {
		if b := c.s.balance(t, sku); b.Drift() != 0 || b.Available < 0 || b.Sold != sold[sku] {
			faults = append(faults, fmt.Sprintf("callers were sold %d: %+v", sold[sku], b))
		}
	}
	return faults
}

// checkNotices is the control: the books and the answers are forged in every way that a fault
// could, and check has to find each.
func (c *chaos) checkNotices(t *testing.T) {
	var sold, refused string
	for _, r := range c.orders {
		if v := c.told[r.Key]; v.sold > 0 && r.SKU == c.plenty() {
			sold = r.Key
		} else if v.soldOut > 0 {
			refused = r.Key
		}
	}
	require.NotEmpty(t, sold, c.name)
	change := func(format string, args ...any) func() { return func() { c.s.execf(t, format, args...) } }
	for name, forgery := range map[string][2]func(){
		"a lost sale": {
			change("UPDATE dblock_reservation SET state = 3 WHERE reservation_key = '%s'", sold),
			change("UPDATE dblock_reservation SET state = 2 WHERE reservation_key = '%s'", sold),
		},
		"units out of nothing": {
			change("UPDATE dblock_stock SET available = available + 1 WHERE sku = '%s' AND bucket = 0", c.plenty()),
			change("UPDATE dblock_stock SET available = available - 1 WHERE sku = '%s' AND bucket = 0", c.plenty()),
		},
		"a sale without an answer": {
			change(insertSale, "forged", c.plenty()),
			change("DELETE FROM dblock_reservation WHERE reservation_key = 'forged'"),
		},
		"a sale anew twice":     {func() { c.told[sold].fresh += 2 }, func() { c.told[sold].fresh -= 2 }},
		"sold and sold out":     {func() { c.told[sold].soldOut++ }, func() { c.told[sold].soldOut-- }},
		"sold, though sold out": {func() { c.tell(refused, 1) }, func() { c.tell(refused, -1) }},
	} {
		forgery[0]()
		if name != "sold, though sold out" || refused != "" {
			assert.NotEmpty(t, c.check(t), "%s: %s", c.name, name)
		}
		forgery[1]()
	}
}

// tell changes how often an order was answered as sold.
func (c *chaos) tell(key string, n int) {
	if v := c.told[key]; v != nil {
		v.sold += n
	}
}

const (
	frozenTimeout = time.Second // Options.Timeout

	// A call waits for the one before it and then for its own statement, each with a rollback of up
	// to a second. The rest is for a machine that is busy with other tests.
	frozenBound = 2*(frozenTimeout+time.Second) + 30*time.Second
)

// answersWhileFrozen sends calls of every kind to a frozen server: they end in time, and what they
// say stays true when it goes on. The callers' contexts never end. The control is a call without a
// bound.
func answersWhileFrozen(t *testing.T, s *env, server *devdb.Server) {
	s.stock(t, "frozen", 1000)
	type frozenCall struct {
		d     op
		store *inventory.Store
		err   error
	}
	var calls []frozenCall
	for way, o := range ways {
		o.Timeout = frozenTimeout
		store := s.open(t, o)
		a := inventory.Adjustment{ID: "frozen " + way, SKU: "frozen", Delta: 1}
		ops := []op{onKey(toLookUp, "frozen"), {What: toRestock, Adjustment: a}, {What: "audit"}}
		for _, r := range ordersOf("frozen "+way, 20, "frozen") {
			ops = append(ops, op{What: toReserve, Request: r})
		}
		for _, d := range ops {
			calls = append(calls, frozenCall{d: d, store: store})
		}
	}
	require.NoError(t, server.Freeze())
	control, ended := make(chan error, 1), make(chan struct{})
	go func() { control <- naiveSale(context.Background(), s.db, "frozen") }()
	go func() {
		defer close(ended)
		suite.Crowd(len(calls), func(i int) {
			c := &calls[i]
			if c.d.What == "audit" {
				_, c.err = c.store.Audit(context.Background())
				return
			}
			_, c.err = c.d.once(context.Background(), c.store)
		})
	}()
	select {
	case <-ended:
	case <-time.After(frozenBound):
		t.Errorf("calls hang on a frozen server after %v", frozenBound)
	}
	assert.Empty(t, control, "the control has a frozen server, and no bound")
	require.NoError(t, server.Thaw())
	assert.NoError(t, suite.Wait(t, control, "the control"))
	suite.Wait(t, ended, "the calls")
	for _, c := range calls {
		isOne := errors.Is(c.err, dblock.ErrBusy) || errors.Is(c.err, dblock.ErrUnavailable) || suite.IsUnknown(c.err)
		assert.True(t, isOne, "%s on a frozen server: %v", c.d.What, c.err)
		if c.d.What == toReserve {
			assert.NoError(t, s.honest(t, c.d, c.err, reply{State: inventory.Sold}))
		}
	}
	s.sound(t)
}
