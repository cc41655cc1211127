package inventory

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/inventory"
)

// taleProcesses are killed now and then, and others take their place.
const taleProcesses = 2

// tellsNoLiesUnderFaults is a log after the other while the server is killed, frozen and cut off, answers get lost, and
// processes are killed that have asked for something.
func (s *env) tellsNoLiesUnderFaults(t *testing.T, n *suite.FaultInjector, seed uint64, lasts time.Duration) {
	t.Helper()
	c := &tellingCrowd{s: s, n: n}
	c.open(t)
	s.keepsBooks(t)
	end := time.Now().Add(lasts)
	for round := uint64(0); !t.Failed() && time.Now().Before(end); round++ {
		x := s.newTale(t, fmt.Sprintf("tale %d", round), c.doers)
		x.forgets = s.e.Kind != devdb.Postgres
		ctx, stop := context.WithTimeout(t.Context(), min(chaosRound, time.Until(end)))
		told := make(chan struct{})
		go func() {
			defer close(told)
			x.tell(ctx, t, seed+round)
		}()
		for i := 0; n.Lull(ctx, 400*time.Millisecond); i++ {
			c.strike(ctx, t, x, i)
		}
		<-told
		stop()
		s.ends(t, x)
	}
}

// tellingCrowd is who can be asked, and what strikes them.
type tellingCrowd struct {
	s       *env
	n       *suite.FaultInjector
	doers   []worker // the processes last
	dialers []*faultconn.Dialer
	kill    [taleProcesses]func()
}

func (c *tellingCrowd) open(t *testing.T) {
	t.Helper()
	for _, strategy := range []inventory.Strategy{inventory.Merge, inventory.Merge, inventory.Direct, inventory.SkipLocked} {
		dialer := &faultconn.Dialer{}
		store, closePool, err := c.s.e.OpenOn(t.Context(), c.s.dsn, dialer, inventory.Options{Strategy: strategy, Timeout: suite.ChaosTimeout})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(closePool)
		c.doers, c.dialers = append(c.doers, doneBy(store)), append(c.dialers, dialer)
	}
	for i := range c.kill {
		c.doers = append(c.doers, c.process(t, i))
	}
}

// process starts the i-th process.
func (c *tellingCrowd) process(t *testing.T, i int) (do worker) {
	t.Helper()
	do, c.kill[i] = c.s.startDoer(t, inventory.Options{Timeout: suite.ChaosTimeout})
	return do
}

func (c *tellingCrowd) strike(ctx context.Context, t *testing.T, x *buyerLog, i int) {
	t.Helper()
	switch i % 4 {
	case 0:
		c.n.Counts["lose answers"]++
		for _, d := range c.dialers {
			d.Arm(1+c.n.Random.IntN(8), faultconn.CutAfter, nil)
		}
	case 1:
		c.n.Counts["kill -9 a client"]++
		which := c.n.Random.IntN(taleProcesses)
		c.kill[which]()
		do := c.process(t, which)
		x.mu.Lock()
		defer x.mu.Unlock()
		c.doers[len(c.dialers)+which] = do // the tale's, too
	default:
		what, err := c.n.Strike(ctx)
		if err != nil {
			t.Errorf("no fault was injected: cannot %s: %v", what, err)
		}
		c.n.Counts[what]++
	}
}

// ends holds a log against the books.
func (s *env) ends(t *testing.T, x *buyerLog) {
	t.Helper()
	if t.Failed() {
		return
	}
	s.settled(t)
	if !x.isTrue(t, s) {
		t.Errorf("no shop would have answered so:\n%s", x.withEnd(t, s, nil).Wrong(counter{tellerStock}))
	}
	x.liesAreNoticed(t, s)
	s.balanced(t)
}

// settled waits for what the server may still be doing for those who are gone: it takes every row lock.
func (s *env) settled(t *testing.T) {
	t.Helper()
	for _, table := range []string{"dblock_reservation", "dblock_quota", "dblock_stock"} {
		tx, err := s.db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.ExecContext(t.Context(), "SELECT 1 FROM "+table+" FOR UPDATE"); err != nil {
			t.Error(err)
		}
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
	}
}

// restock has some come in where too few were left.
func (x *buyerLog) restock(t *testing.T, client int, random *rand.Rand, sku string) {
	a := inventory.Adjustment{ID: x.newKey(), SKU: sku, Delta: 1 + random.Int64N(3)}
	from := x.h.Now()
	x.until(t, random, op{What: toRestock, Adjustment: a})
	x.h.Note(client, from, x.h.Now(), suite.Step{What: cameBack, Key: sku, Permits: int(a.Delta)})
}
