package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// readersAndWritersThroughCrashes has readers look at values and writers update them, some of whom give up while they
// wait: nobody writes while somebody reads, and who reads under a guard sees what was written last, also where
// members are declared dead.
func readersAndWritersThroughCrashes(t *testing.T, v *env) {
	v.goThroughCrashes(t, func(c *crashes, _ bool) crashTest {
		o := c.updates(true)
		o.keys, o.works, o.each, o.forged = sharedKeys, suite.Read, 20, (*suite.History).ForgedReads
		o.use = c.readOrWrite
		return o
	})
}

// permitsThroughCrashes has processes take permits while their number changes: what is held fits into it whenever
// some are granted. Where members are declared dead it is what guards keep that fits.
func permitsThroughCrashes(t *testing.T, v *env) {
	v.goThroughCrashes(t, func(c *crashes, exclusive bool) crashTest {
		o := crashTest{
			keys: sharedKeys, works: suite.Left, each: 20, use: c.permits, begin: c.permit,
			model:  func(bool) suite.State { return suite.Permitted{Limit: firstLimit} },
			forged: func(h *suite.History, _ bool) map[string][]porcupine.Operation { return h.ForgedPermits() },
			whole: func(t *testing.T, l Leases, key string) []dblock.Option {
				c.permit(t, key)
				return []dblock.Option{dblock.WithPermits(firstLimit, firstLimit)}
			},
		}
		if !exclusive {
			o.use = c.guardedPermits
		}
		return o
	})
}

// firstLimit is the number of permits that a semaphore begins with, mostLimit the largest that it is given.
const firstLimit, mostLimit = 3, 5

// readOrWrite reads mostly. A writer may have less patience than readers take.
func (c *crashes) readOrWrite(ctx context.Context, t *testing.T, h *suite.History, client int, l Leases, key string) {
	switch rand.N(8) {
	case 0:
		c.update(ctx, t, h, client, l, key, rand.N(40*time.Millisecond), true)
	case 1, 2:
		c.update(ctx, t, h, client, l, key, 2*crashTTL, true)
	default:
		c.hold(ctx, t, h, client, l, suite.Step{Key: key, Mode: dblock.Shared}, 2*crashTTL, func(lock *dblock.Lock) {
			c.look(ctx, h, client, l, lock)
		}, dblock.WithShared())
	}
}

// look reads the value under a guard, in the transaction's own words: it writes down what it saw.
func (c *crashes) look(ctx context.Context, h *suite.History, client int, l Leases, lock *dblock.Lock) {
	f, _ := lock.Fence()
	s := suite.Step{What: suite.Read, Key: f.Key, Mode: f.Mode, Token: f.Token}
	id, began := c.value.Add(1), h.Now()
	statement := fmt.Sprintf("INSERT INTO seen SELECT %d, n FROM guarded WHERE lease_key = '%s'", id, f.Key)
	if err := c.v.e.Guarded(ctx, l, lock, statement, func() { time.Sleep(rand.N(5 * time.Millisecond)) }); err != nil {
		return // what it saw does not count
	}
	ended := h.Now()
	if err := c.v.db.QueryRowContext(ctx, fmt.Sprintf("SELECT n FROM seen WHERE id = %d", id)).Scan(&s.Was); err == nil {
		h.Note(client, began, ended, s)
	}
}

// permit gives a semaphore the number of permits that it begins with.
func (c *crashes) permit(t *testing.T, key string) {
	t.Helper()
	for ctx := suite.Soon(t); ; { // a pool may have connections yet that were ended
		err := c.all[0].SetPermits(ctx, key, firstLimit)
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// permits takes some, of the number that there were when it was last seen; now and then it changes that.
func (c *crashes) permits(ctx context.Context, t *testing.T, h *suite.History, client int, l Leases, key string) {
	if rand.N(12) == 0 {
		c.change(ctx, t, h, client, l, key)
		return
	}
	limit := c.limitOf(key)
	n := 1 + rand.N(limit)
	s := suite.Step{Key: key, Mode: dblock.Permits, Permits: n, Limit: limit}
	c.hold(ctx, t, h, client, limitSeer{l, c}, s, time.Second, func(*dblock.Lock) { time.Sleep(rand.N(30 * time.Millisecond)) },
		dblock.WithPermits(n, limit))
}

func (c *crashes) limitOf(key string) int {
	limit, _ := c.limits.LoadOrStore(key, firstLimit)
	return limit.(int)
}

// change gives a semaphore another number of permits.
func (c *crashes) change(ctx context.Context, t *testing.T, h *suite.History, client int, l Leases, key string) {
	s := suite.Step{What: suite.Limited, Key: key, Mode: dblock.Permits, Limit: 1 + rand.N(mostLimit)}
	began := h.Now()
	err := l.SetPermits(ctx, key, s.Limit)
	c.answered(t, err)
	switch {
	case err == nil:
		c.limits.Store(key, s.Limit)
		h.Note(client, began, h.Now(), s)
	case !errors.Is(err, dblock.ErrBusy) && !errors.Is(err, dblock.ErrUnavailable):
		s.What = suite.Doubtful
		h.Note(client, began, suite.Never, s)
	}
}

// limitSeer is a Locker that notes which number of permits a semaphore is said to have.
type limitSeer struct {
	Leases
	c *crashes
}

func (l limitSeer) Acquire(ctx context.Context, key string, opts ...dblock.Option) (*dblock.Lock, error) {
	lock, err := l.Leases.Acquire(ctx, key, opts...)
	if limit := (*dblock.LimitError)(nil); errors.As(err, &limit) {
		l.c.limits.Store(key, limit.Stored)
	}
	return lock, err
}

// guardedPermits takes some and guards a transaction by them: they are held for as long as that is open, whoever is dead.
func (c *crashes) guardedPermits(ctx context.Context, t *testing.T, h *suite.History, client int, l Leases, key string) {
	waits, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	s := suite.Step{Key: key, Mode: dblock.Permits, Permits: 1 + rand.N(firstLimit), Limit: firstLimit}
	lock, err := l.Acquire(waits, key, dblock.WithPermits(s.Permits, firstLimit))
	c.answered(t, err)
	if err != nil {
		time.Sleep(rand.N(10 * time.Millisecond))
		return
	}
	var in, out int64
	began := h.Now()
	err = c.v.e.Guarded(ctx, l, lock, "SELECT 1", func() {
		in = h.Now()
		time.Sleep(rand.N(10 * time.Millisecond))
		out = h.Now()
	})
	if err != nil {
		out = began // it was ended, at whatever time
	}
	if in != 0 {
		s.What = suite.Granted
		h.Note(client, began, in, s)
		s.What = suite.Left
		h.Note(client, out, h.Now(), s)
	}
	if err := lock.Release(ctx); err != nil && !errors.Is(err, dblock.ErrLost) {
		t.Errorf("release of %q: %v", key, err)
	}
}
