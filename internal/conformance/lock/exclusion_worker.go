package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
)

const (
	exclusionDir   = "DBLOCK_TEST_EXCLUSION_DIR"
	exclusionFor   = "DBLOCK_TEST_EXCLUSION_FOR"
	exclusionCrowd = "DBLOCK_TEST_EXCLUSION_CROWD" // the key of the process's crowd; empty: it has none

	exclusionTTL   = 5 * time.Second
	exclusionKeys  = 3
	exclusionLimit = 3 // permits of a semaphore
)

// exclusionOp is what a caller does once.
type exclusionOp struct {
	keys      []string
	mode      dblock.Mode
	permits   int
	fair, try bool
	wait      time.Duration // what the context allows
	end       int
}

const (
	endsByRelease = iota
	endsByForce
	endsByExpireIn
	endsByItself // with WithMaxHold
)

func drawExclusionOp() exclusionOp {
	i := rand.IntN(exclusionKeys)
	o := exclusionOp{
		keys: []string{fmt.Sprint("k", i)}, try: rand.IntN(2) == 0, fair: rand.IntN(2) == 0,
		wait: time.Duration(rand.ExpFloat64() * float64(50*time.Millisecond)),
	}
	if rand.IntN(4) == 0 {
		o.wait += 2 * time.Second
	}
	if rand.IntN(4) == 0 {
		o.end = rand.IntN(endsByItself + 1)
	}
	if !o.fair {
		switch rand.IntN(4) {
		case 0:
			o.mode = dblock.Shared
		case 1:
			o.mode, o.permits = dblock.Permits, 1+rand.IntN(2)
		case 2:
			o.keys = append(o.keys, fmt.Sprint("k", (i+1+rand.IntN(exclusionKeys-1))%exclusionKeys))
		}
	}
	if o.end == endsByForce && (o.mode != dblock.Exclusive || len(o.keys) > 1) {
		o.end = endsByRelease // readers have one token
	}
	return o
}

// drawCrowdOp draws what a caller of a crowd does with one key of the process's fair Locker. Calls
// that arrive while a statement is under way share the next one: one grant must not be given to
// several of them. A waiter's ticket refuses all tries, so most callers try.
func drawCrowdOp(key string) exclusionOp {
	if rand.IntN(16) > 0 {
		return exclusionOp{keys: []string{key}, fair: true, try: true, wait: time.Second}
	}
	return exclusionOp{keys: []string{key}, fair: true,
		wait: time.Duration(rand.ExpFloat64() * float64(10*time.Millisecond))}
}

func (o exclusionOp) acquire(ctx context.Context, l Leases) (*dblock.Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, o.wait)
	defer cancel()
	var opts []dblock.Option
	switch o.mode {
	case dblock.Shared:
		opts = append(opts, dblock.WithShared())
	case dblock.Permits:
		opts = append(opts, dblock.WithPermits(o.permits, exclusionLimit))
	}
	if o.end == endsByItself {
		opts = append(opts, dblock.WithMaxHold(100*time.Millisecond))
	}
	all, one := l.AcquireAll, l.Acquire
	if o.try {
		all, one = l.TryAcquireAll, l.TryAcquire
	}
	if len(o.keys) > 1 {
		return all(ctx, o.keys, opts...)
	}
	return one(ctx, o.keys[0], opts...)
}

// finish ends a lock as an op says. A lock that is lost was forced, or has ended by itself.
func (o exclusionOp) finish(ctx context.Context, l Leases, lock *dblock.Lock) error {
	var err error
	switch o.end {
	case endsByItself:
		<-lock.Context().Done()
		return nil
	case endsByForce:
		fence, _ := lock.Fence()
		err = l.ForceRelease(ctx, fence.Key, fence.Token)
	case endsByExpireIn:
		err = lock.ExpireIn(ctx, time.Duration(1+rand.IntN(20))*time.Millisecond)
		if err == nil && rand.IntN(2) == 0 {
			<-lock.Context().Done()
		}
	}
	err = errors.Join(err, lock.Release(ctx))
	return except(err, dblock.ErrLost, dblock.ErrNotHeld, dblock.ErrOutcomeUnknown, dblock.ErrBusy)
}

// except returns nil for errors of these kinds.
func except(err error, kinds ...error) error {
	for _, kind := range kinds {
		if errors.Is(err, kind) {
			return nil
		}
	}
	return err
}

// exclusionProcess is a process of the test: its callers share Lockers.
type exclusionProcess struct {
	checker  sections
	plain    [2]Leases // of one pool
	fair     Leases
	control  bool // a refusal counts as a grant
	acquired [3]atomic.Int64
}

// excludeAtRandom has callers acquire at random until their time is up, and says what they saw.
func (e Lease) excludeAtRandom(ctx context.Context, dsn string, control bool) error {
	o := LeaseOptions{TTL: exclusionTTL, Poll: 100 * time.Millisecond}
	lasts, err := time.ParseDuration(os.Getenv(exclusionFor))
	if err != nil {
		return err
	}
	p := &exclusionProcess{checker: sections{os.Getenv(exclusionDir)}, control: control}
	if p.plain[0], p.plain[1], _, err = e.OpenPair(ctx, dsn, &faultconn.Dialer{}, o, o); err != nil {
		return err
	}
	o.Fair = true
	if p.fair, _, err = e.Open(ctx, dsn, o); err != nil {
		return err
	}
	until := time.Now().Add(lasts)
	var callers sync.WaitGroup
	run := func(n int, draw func() exclusionOp) {
		for range n {
			callers.Go(func() {
				for time.Now().Before(until) {
					p.once(ctx, draw())
				}
			})
		}
	}
	run(8, drawExclusionOp)
	if key := os.Getenv(exclusionCrowd); key != "" {
		run(12, func() exclusionOp { return drawCrowdOp(key) })
	}
	callers.Wait()
	fmt.Println("done", p.acquired[0].Load(), p.acquired[1].Load(), p.acquired[2].Load())
	suite.WaitToGoOn()
	return nil
}

// once does one op.
func (p *exclusionProcess) once(ctx context.Context, o exclusionOp) {
	l := p.plain[rand.IntN(len(p.plain))]
	if o.fair {
		l = p.fair
	}
	lock, err := o.acquire(ctx, l)
	if e := except(err, dblock.ErrNotAcquired, dblock.ErrOutcomeUnknown, dblock.ErrBusy); e != nil {
		fmt.Printf("error %+v: %v\n", o, e)
	}
	if err != nil && !(p.control && errors.Is(err, dblock.ErrNotAcquired)) {
		return
	}
	valid := time.Now().Add(time.Minute)
	if lock != nil {
		p.acquired[o.mode].Add(1)
		valid = lock.ValidUntil()
	}
	inside, err := p.checker.enter(o)
	entered := time.Now()
	switch {
	case err == nil:
		time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
		inside.leave()
		if left := time.Now(); left.After(valid) {
			fmt.Println("late", valid.UnixNano(), left.UnixNano())
		}
	case !errors.Is(err, errOverlap):
		fmt.Println("error", err)
	case entered.Before(valid):
		fmt.Println("overlap", entered.UnixNano(), fmt.Sprintf("%+v", o))
	}
	if lock != nil {
		if err := o.finish(ctx, l, lock); err != nil {
			fmt.Printf("error at the end of %+v: %v\n", o, err)
		}
	}
}
