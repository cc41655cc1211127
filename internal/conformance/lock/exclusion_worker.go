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

	exclusionTTL     = 5 * time.Second
	exclusionCallers = 8  // of each process
	exclusionInCrowd = 12 // callers of a crowd
	exclusionKeys    = 3
	exclusionLimit   = 3 // permits of a semaphore
)

// exclusionOp is what a caller does once, drawn at random.
type exclusionOp struct {
	keys    []string
	mode    dblock.Mode
	permits int
	fair    bool
	try     bool
	wait    time.Duration // what the context allows
	hold    time.Duration // by WithMaxHold; 0: none
	end     int
}

const (
	endsByRelease = iota
	endsByForce
	endsByExpireIn
	endsByItself // with WithMaxHold
	exclusionEnds
)

func drawExclusionOp() exclusionOp {
	key := fmt.Sprint("k", rand.IntN(exclusionKeys))
	o := exclusionOp{
		keys: []string{key}, try: rand.IntN(2) == 0, wait: time.Duration(rand.ExpFloat64() * float64(50*time.Millisecond)),
		fair: rand.IntN(2) == 0,
	}
	if rand.IntN(4) == 0 {
		o.wait += 2 * time.Second
	}
	if rand.IntN(4) == 0 {
		o.end = rand.IntN(exclusionEnds)
	}
	if !o.fair {
		switch rand.IntN(4) {
		case 0:
			o.mode = dblock.Shared
		case 1:
			o.mode, o.permits = dblock.Permits, 1+rand.IntN(2)
		case 2:
			o.keys = o.keys[:0]
			for _, i := range rand.Perm(exclusionKeys)[:2] {
				o.keys = append(o.keys, fmt.Sprint("k", i))
			}
		}
	}
	switch {
	case o.end == endsByItself:
		o.hold = 100 * time.Millisecond
	case o.end == endsByForce && (o.mode != dblock.Exclusive || len(o.keys) > 1):
		o.end = endsByRelease // readers have one token
	}
	return o
}

// drawCrowdOp draws what a caller of a crowd does: it tries or waits for one key of the process's fair Locker. Calls that
// arrive while a statement is under way share the next one. A waiter's ticket refuses all tries, so most callers try.
func drawCrowdOp(key string) exclusionOp {
	o := exclusionOp{keys: []string{key}, fair: true, try: rand.IntN(16) > 0, wait: time.Second}
	if !o.try {
		o.wait = time.Duration(rand.ExpFloat64() * float64(10*time.Millisecond))
	}
	return o
}

// acquire asks for what an op wants.
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
	if o.hold > 0 {
		opts = append(opts, dblock.WithMaxHold(o.hold))
	}
	switch {
	case len(o.keys) > 1 && o.try:
		return l.TryAcquireAll(ctx, o.keys, opts...)
	case len(o.keys) > 1:
		return l.AcquireAll(ctx, o.keys, opts...)
	case o.try:
		return l.TryAcquire(ctx, o.keys[0], opts...)
	}
	return l.Acquire(ctx, o.keys[0], opts...)
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
	if errors.Is(err, dblock.ErrLost) || errors.Is(err, dblock.ErrNotHeld) || errors.Is(err, dblock.ErrOutcomeUnknown) ||
		errors.Is(err, dblock.ErrBusy) {
		return nil
	}
	return err
}

// exclusionProcess is a process of the test: its callers share Lockers, some of them fair.
type exclusionProcess struct {
	checker  sections
	plain    [2]Leases // of one pool
	fair     Leases
	control  bool // a refusal counts as a grant
	acquired [3]atomic.Int64
}

// excludeAtRandom has callers acquire at random until their time is up, and says what the checker saw.
func (e Lease) excludeAtRandom(dsn string, control bool) error {
	ctx := context.Background()
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
	fmt.Println("ready")
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
	run(exclusionCallers, drawExclusionOp)
	if key := os.Getenv(exclusionCrowd); key != "" {
		run(exclusionInCrowd, func() exclusionOp { return drawCrowdOp(key) })
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
	switch {
	case err == nil:
	case p.control && errors.Is(err, dblock.ErrNotAcquired):
		lock = nil
	case errors.Is(err, dblock.ErrNotAcquired), errors.Is(err, dblock.ErrOutcomeUnknown), errors.Is(err, dblock.ErrBusy):
		return
	default:
		fmt.Printf("error %+v: %v\n", o, err)
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
			fmt.Println("late", o.keys[0], valid.UnixNano(), left.UnixNano())
		}
	case !errors.Is(err, errOverlap):
		fmt.Println("error", err)
	case entered.Before(valid):
		fmt.Println("overlap", o.keys[0], entered.UnixNano(), fmt.Sprintf("%+v", o))
	}
	if lock != nil {
		if err := o.finish(ctx, l, lock); err != nil {
			fmt.Printf("error at the end of %+v: %v\n", o, err)
		}
	}
}
