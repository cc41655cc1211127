package programs

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
)

// use is what the caller does with a lock, up to its release.
func (c *lockClient) use(lock *dblock.Lock, l dblock.Locker, s lockStep, h *hold) {
	for _, f := range lock.Fences() {
		h.Tokens = append(h.Tokens, f.Token)
		if s.Lock == fair {
			h.Handle = hex.EncodeToString(f.Handle[:])
		}
	}
	work := s.Work
	h.Granted = now()
	inside := c.enter(h)
	switch s.End {
	case byExpireIn:
		expireIn(lock, s)
		work = max(work, 3*s.After)
	case byItself:
		work = time.Minute
	case byClose:
		go c.shut(l, s) // Close waits for the release
	}
	if s.Guard {
		c.guarded(lock, l, s)
	}
	if s.Raise {
		c.raised(lock, s)
	}
	if s.Again {
		c.again(lock, l, s, h.Names)
	}
	c.section(s, h, lock, work)
	inside.leave()
	h.Valid, h.Left = lock.ValidUntil().UnixNano(), now()
	if s.End == byForce {
		h.Forced = true
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		f, _ := lock.Fence()
		documented("ForceRelease", l.(leases).ForceRelease(ctx, f.Key, f.Token), dblock.ErrNotHeld, dblock.ErrBusy, dblock.ErrConflict, dblock.ErrClosed,
			dblock.ErrUnavailable, dblock.ErrOutcomeUnknown, context.DeadlineExceeded)
	}
}

// expireIn has a lock end by itself. Another call beside it asks for more time.
func expireIn(lock *dblock.Lock, s lockStep) {
	var both sync.WaitGroup
	calls := []time.Duration{s.After}
	if s.Twice {
		calls = append(calls, 8*s.After)
	}
	for _, d := range calls {
		both.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), s.Within)
			defer cancel()
			documented("ExpireIn", lock.ExpireIn(ctx, d), dblock.ErrLost, dblock.ErrBusy, dblock.ErrConflict, dblock.ErrUnavailable,
				dblock.ErrOutcomeUnknown, context.DeadlineExceeded)
		})
	}
	both.Wait()
}

// enter enters the section of a hold, unless another holder is there.
func (c *lockClient) enter(h *hold) section {
	limit := 0
	if h.Permits > 0 {
		limit = lockLimit
		if h.Limit != lockLimit {
			limit = mostPermits
		}
	}
	inside, err := c.sections.enter(sectionsOf(h), h.Mode == dblock.ModeShared, h.Permits, limit)
	var failed *enterError
	if errors.Is(err, errOverlap) && errors.As(err, &failed) {
		h.Met, h.MetIn = now(), failed.name
	} else if err != nil {
		say("error", failure{"the section", err.Error()})
	}
	return inside
}

func sectionsOf(h *hold) []string {
	var names []string
	for _, name := range h.Names {
		names = append(names, h.Space+" "+name)
	}
	return names
}

// section is the work under a lock. It ends early when the lock is lost.
func (c *lockClient) section(s lockStep, h *hold, lock *dblock.Lock, work time.Duration) {
	if lock == nil { // the control
		h.Granted = now()
		inside := c.enter(h)
		time.Sleep(s.Work)
		inside.leave()
		h.Left = now()
		return
	}
	select {
	case <-lock.Context().Done():
	case <-time.After(work):
	}
}

// end notes how a lock has ended.
func (h *hold) end(err error) {
	h.Released = now()
	var lost *dblock.LostError
	if errors.As(err, &lost) {
		h.Lost = cmp.Or(string(lost.Reason), "lost")
		return
	}
	documented("Release", err)
}

// documented notes an error that is none of those that a call may return.
func documented(call string, err error, these ...error) {
	if err == nil {
		return
	}
	for _, this := range these {
		if errors.Is(err, this) {
			return
		}
	}
	say("error", failure{call, err.Error()})
}

// shut closes a Locker, and has the next step that needs it open another one.
func (c *lockClient) shut(l dblock.Locker, s lockStep) {
	c.mu.Lock()
	for id, known := range c.lockers {
		if known == l {
			delete(c.lockers, id)
		}
	}
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), max(s.Wait, 10*time.Millisecond))
	defer cancel()
	documented("Close", l.Close(ctx), dblock.ErrUnavailable, dblock.ErrBusy, dblock.ErrConflict, dblock.ErrOutcomeUnknown, dblock.ErrClosed, context.DeadlineExceeded)
}

// guarded counts under a lock that is held by one. It is the guard that keeps counts right if
// the lock has been lost.
func (c *lockClient) guarded(lock *dblock.Lock, l dblock.Locker, s lockStep) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	err := c.server.guarded(ctx, l, lock, func(ctx context.Context, t tx) error {
		if s.Mode != dblock.ModeExclusive {
			return nil
		}
		for _, k := range s.Keys {
			if err := bump(ctx, t, c.tally(k)); err != nil {
				return err
			}
		}
		return nil
	})
	unknown := errors.Is(err, dblock.ErrOutcomeUnknown)
	if s.Mode == dblock.ModeExclusive && (err == nil || unknown) {
		for _, k := range s.Keys {
			say("count", count{c.tally(k), unknown})
		}
	}
}

// raised counts in two transactions, below the fence of a resource that each holder raises. The
// second one fails if another holder has begun since.
func (c *lockClient) raised(lock *dblock.Lock, s lockStep) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	fences := lock.Fences()
	read := make([]int64, len(fences))
	err := c.server.run(ctx, func(ctx context.Context, t tx) (err error) {
		for i, f := range fences {
			if err = t.fence(ctx, f, f.Key, true); err == nil {
				read[i], err = t.number(ctx, fmt.Sprintf("SELECT n FROM tally WHERE id = %d", raisedOf(c.Run, s.Keys[i])))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return
	}
	time.Sleep(s.Work / 2)
	err = c.server.run(ctx, func(ctx context.Context, t tx) error {
		for i, f := range fences {
			if err := t.fence(ctx, f, f.Key, false); err != nil {
				return err
			}
			update := fmt.Sprintf("UPDATE tally SET n = %d WHERE id = %d", read[i]+1, raisedOf(c.Run, s.Keys[i]))
			if err := t.exec(ctx, update); err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, dblock.ErrFenced) {
		return
	}
	for _, k := range s.Keys {
		say("count", count{raisedOf(c.Run, k), err != nil})
	}
}

// resize gives a semaphore the number of permits that the step asks for.
func resize(ctx context.Context, l dblock.Locker, s lockStep, name string) {
	r := resizing{Name: "permits " + name, Limit: s.Limit, Called: now()}
	err := l.(leases).SetPermits(ctx, name, s.Limit)
	r.Returned, r.Unknown = now(), errors.Is(err, dblock.ErrOutcomeUnknown)
	documented("SetPermits", err, dblock.ErrBusy, dblock.ErrConflict, dblock.ErrUnavailable, dblock.ErrOutcomeUnknown, dblock.ErrClosed,
		context.DeadlineExceeded)
	if err == nil || r.Unknown {
		say("limit", r)
	}
}

// bump reads a number and writes the next one, which loses updates unless something keeps others
// out.
func bump(ctx context.Context, t tx, id int) error {
	n, err := t.number(ctx, fmt.Sprintf("SELECT n FROM tally WHERE id = %d", id))
	if err != nil {
		return err
	}
	return t.exec(ctx, fmt.Sprintf("UPDATE tally SET n = %d WHERE id = %d", n+1, id))
}

// tally is the number that a lease of a key protects; rowOf is the row that a row lock of a key
// locks.
func (c *lockClient) tally(key int) int { return tallyOf(c.Run, key) }

// again acquires a lock below itself: it is refused, or granted once more.
func (c *lockClient) again(lock *dblock.Lock, l dblock.Locker, s lockStep, names []string) {
	if len(names) > 1 {
		return
	}
	ctx, cancel := context.WithTimeout(lock.Context(), time.Second)
	defer cancel()
	_, err := acquire(ctx, l, s, names)
	if !errors.Is(err, dblock.ErrDeadlock) && ctx.Err() == nil && lock.Context().Err() == nil {
		documented("acquire below itself", fmt.Errorf("want ErrDeadlock: %w", err), dblock.ErrClosed)
	}
}

// leadOnce leads for one term.
func (c *lockClient) leadOnce(l dblock.Locker, s lockStep, h hold) {
	e, err := dblock.NewElector(l, h.Names[0], dblock.ElectorOptions{})
	if err != nil {
		documented("NewElector", err)
		return
	}
	ctx, end := context.WithCancel(context.Background())
	defer end()
	late := time.AfterFunc(s.Wait, end)
	var term *dblock.Lock
	err = e.Run(ctx, func(ctx context.Context, _ dblock.Fence) error {
		defer end()
		late.Stop()
		if lock, _ := dblock.LockOf(ctx); term == nil {
			term = lock
			c.use(lock, l, s, &h)
		}
		return nil
	})
	if term != nil {
		h.end(term.Release(context.Background()))
		say("hold", h)
	} else if ctx.Err() == nil {
		documented("Run", err, dblock.ErrClosed)
	}
}
