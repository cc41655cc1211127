package bench

import (
	"context"
	"errors"
	"time"

	"github.com/dblock-go/dblock"
)

// settled is how long a leader leads before it resigns, so that the one before it campaigns again.
const settled = 5 * held

// candidates are two processes, one of which leads.
type candidates struct {
	lockers  [2]Locker
	electors [2]*dblock.Elector
	leads    chan led // each term, when it begins
	now      led

	stop  context.CancelFunc
	ended chan error // what each Run returned
	runs  int
}

// led is the beginning of a term.
type led struct {
	by int
	at time.Time
}

func openResignations(ctx context.Context, env *Env) (_ Workload, err error) {
	c := &candidates{leads: make(chan led), ended: make(chan error, 2)}
	var runs context.Context
	runs, c.stop = context.WithCancel(context.WithoutCancel(ctx))
	for i := range c.lockers {
		if c.lockers[i], err = openLease(ctx, env, 0, 0); err != nil {
			return nil, errors.Join(err, c.close())
		}
		leases := c.lockers[i].(lockerOn).Locker
		c.electors[i], err = dblock.NewElector(leases, "leader", dblock.ElectorOptions{StandBack: settled})
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
	}
	for i := range c.electors {
		c.runs++
		go func() {
			c.ended <- c.electors[i].Run(runs, func(ctx context.Context, _ dblock.Fence) error { return c.lead(ctx, i) })
		}()
	}
	if c.now, err = c.next(ctx); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return paced{op: c.resign, close: c.close}, nil
}

// lead leads until its term ends.
func (c *candidates) lead(ctx context.Context, by int) error {
	select {
	case c.leads <- led{by, time.Now()}:
		<-ctx.Done()
	case <-ctx.Done():
	}
	return nil
}

func (c *candidates) next(ctx context.Context) (led, error) {
	select {
	case l := <-c.leads:
		return l, nil
	case <-ctx.Done():
		return led{}, context.Cause(ctx)
	}
}

// resign has whoever leads resign, and waits for the other one to lead.
func (c *candidates) resign(ctx context.Context) (took time.Duration, err error) {
	if !sleepUntil(ctx, time.Now().Add(settled)) {
		return 0, context.Cause(ctx)
	}
	began := time.Now()
	resigned := make(chan error, 1)
	go func() { resigned <- c.electors[c.now.by].Resign(ctx) }()
	next, err := c.next(ctx)
	if err = errors.Join(err, <-resigned); err != nil {
		return 0, err
	}
	c.now = next
	return next.at.Sub(began), nil
}

func (c *candidates) close() error {
	c.stop()
	var errs []error
	for range c.runs {
		if err := <-c.ended; !errors.Is(err, context.Canceled) {
			errs = append(errs, err)
		}
	}
	for _, l := range c.lockers {
		if l != nil {
			errs = append(errs, l.Close())
		}
	}
	return errors.Join(errs...)
}
