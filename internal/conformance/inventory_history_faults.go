package conformance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/inventory"
)

// taleProcesses are killed now and then, and others take their place.
const taleProcesses = 2

// tellsNoLiesUnderFaults is a tale after the other while the server is killed, frozen and cut off, answers get lost, and
// processes are killed that have asked for something.
func (s *shop) tellsNoLiesUnderFaults(t *testing.T, n *nemesis, seed uint64, lasts time.Duration) {
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
		for i := 0; n.lull(ctx, 400*time.Millisecond); i++ {
			c.strike(ctx, t, x, i)
		}
		<-told
		stop()
		s.ends(t, x)
	}
}

// tellingCrowd is who can be asked, and what strikes them.
type tellingCrowd struct {
	s       *shop
	n       *nemesis
	doers   []doer // the processes last
	dialers []*faultconn.Dialer
	kill    [taleProcesses]func()
}

func (c *tellingCrowd) open(t *testing.T) {
	t.Helper()
	for _, strategy := range []inventory.Strategy{inventory.Merge, inventory.Merge, inventory.Direct, inventory.SkipLocked} {
		dialer := &faultconn.Dialer{}
		store, closePool, err := c.s.e.OpenOn(t.Context(), c.s.dsn, dialer, inventory.Options{Strategy: strategy, Timeout: chaosTimeout})
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
func (c *tellingCrowd) process(t *testing.T, i int) (do doer) {
	t.Helper()
	do, c.kill[i] = c.s.startDoer(t, inventory.Options{Timeout: chaosTimeout})
	return do
}

func (c *tellingCrowd) strike(ctx context.Context, t *testing.T, x *tale, i int) {
	t.Helper()
	switch i % 4 {
	case 0:
		c.n.did["lose answers"]++
		for _, d := range c.dialers {
			d.Arm(1+c.n.random.IntN(8), faultconn.CutAfter, nil)
		}
	case 1:
		c.n.did["kill -9 a client"]++
		which := c.n.random.IntN(taleProcesses)
		c.kill[which]()
		do := c.process(t, which)
		x.mu.Lock()
		defer x.mu.Unlock()
		c.doers[len(c.dialers)+which] = do // the tale's, too
	default:
		what, err := c.n.strike(ctx)
		if err != nil {
			t.Errorf("the nemesis itself failed, to %s: %v", what, err)
		}
		c.n.did[what]++
	}
}

// ends holds a tale against the books.
func (s *shop) ends(t *testing.T, x *tale) {
	t.Helper()
	if t.Failed() {
		return
	}
	s.settled(t)
	if !x.isTrue(t, s) {
		t.Errorf("no shop would have answered so:\n%s", x.withEnd(t, s, nil).wrong(counter{tellerStock}))
	}
	x.liesAreNoticed(t, s)
	s.balanced(t)
}

// settled waits for what the server may still be doing for those who are gone: it takes every row lock.
func (s *shop) settled(t *testing.T) {
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
func (x *tale) restock(t *testing.T, client int, random *rand.Rand, sku string) {
	a := inventory.Adjustment{ID: x.newKey(), SKU: sku, Delta: 1 + random.Int64N(3)}
	from := x.h.now()
	x.until(t, random, deed{What: toRestock, Adjustment: a})
	x.h.note(client, from, x.h.now(), step{what: cameBack, key: sku, permits: int(a.Delta)})
}
