package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
)

const (
	cutTTL = 3 * time.Second // long enough for a busy machine to keep a member alive

	// cutFree is after how long at the latest a key is free while the process lives whose call got
	// no answer. Without its list of unresolved operations the key would be held for ever.
	cutFree = 30 * time.Second
)

// cutLeases is the process of one trial.
type cutLeases struct {
	Leases
	suite.Trial
	t         *testing.T
	other     Leases // another process
	mode      string // of the trial; its keys begin with it
	closePool func()
}

func (x *cutLeases) Key() string { return x.mode + x.Trial.Key() }

type cutTrial func(x *cutLeases) (struck bool, err error)

// cutEverywhere runs a trial for each cut at each call on the wire, or in a short run at every nth
// call only.
func (v *env) cutEverywhere(t *testing.T, cuts []suite.Cut, nth int, trial cutTrial) {
	v.cutBeside(t, v.process(t, LeaseOptions{}), "", cuts, nth, trial)
}

// cutBeside is cutEverywhere for goroutines other than the test's.
func (v *env) cutBeside(t *testing.T, other Leases, mode string, cuts []suite.Cut, nth int, trial cutTrial) {
	if os.Getenv(suite.EnvSoak) != "" {
		nth = 1
	}
	first := 1 + rand.IntN(nth)
	if nth > 1 {
		t.Logf("every %d calls, from %d", nth, first)
	}
	suite.Everywhere(t, cuts, func(c suite.Cut, k int) (struck bool, err error) {
		x := &cutLeases{t: t, other: other, mode: mode}
		x.Begin(t.Context(), c, first+(k-1)*nth)
		o := LeaseOptions{TTL: cutTTL, Poll: 50 * time.Millisecond}
		if x.Leases, x.closePool, err = v.e.OpenOn(t.Context(), v.DSN, &x.Dialer, o); err != nil {
			return false, err
		}
		struck, err = trial(x)
		return struck, errors.Join(err, x.end())
	})
}

// end ends the process: all that it has dialled is closed.
func (x *cutLeases) end() error {
	x.Dialer.CloseAll() // a pool would wait for a server that is stalled
	closeWithin(x, 5*time.Second)
	x.GiveUp()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		x.closePool()
	}()
	late := suite.Soon(x.t)
	select {
	case <-closed:
	case <-late.Done():
		return errors.New("the pool does not close: a connection was not given back")
	}
	for x.Dialer.Open() > 0 {
		x.Dialer.Release() // what a pool closes in the background ends with this
		if !suite.SleepFor(late, 5*time.Millisecond) {
			return fmt.Errorf("%d connections are left open", x.Dialer.Open())
		}
	}
	return nil
}

// part is what is acquired of a key, and the whole of it, which is free if no caller has anything.
type part struct{ some, whole []dblock.Option }

var (
	exclusive = part{}
	aReader   = part{some: []dblock.Option{dblock.WithShared()}}
	permits   = part{some: []dblock.Option{dblock.WithPermits(2, 3)}, whole: []dblock.Option{dblock.WithPermits(3, 3)}}
)

func anAcquireCutAnywhere(t *testing.T, v *env)   { v.cutAcquires(t, exclusive, false, true) }
func aReaderCutAnywhere(t *testing.T, v *env)     { v.cutAcquires(t, aReader, false) }
func aPermitCutAnywhere(t *testing.T, v *env)     { v.cutAcquires(t, permits, false) }
func aReleaseCutAnywhere(t *testing.T, v *env)    { v.cutReleases(t, exclusive) }
func aReadersEndCutAnywhere(t *testing.T, v *env) { v.cutReleases(t, aReader) }
func aPermitsEndCutAnywhere(t *testing.T, v *env) { v.cutReleases(t, permits) }

func (v *env) cutAcquires(t *testing.T, p part, cold ...bool) {
	v.cutEverywhere(t, suite.Cuts(cold...), 1, warm(p, func(x *cutLeases) (bool, error) { return x.acquire(p) }))
	v.allIsFree(t, p)
}

// warm holds another lock during a trial: the process has joined, and has a connection.
func warm(p part, trial cutTrial) cutTrial {
	return func(x *cutLeases) (bool, error) {
		lock, err := x.Acquire(x.t.Context(), "warm "+x.Key(), p.some...)
		if err != nil {
			return false, err
		}
		defer func() { _ = lock.Release(x.t.Context()) }()
		return trial(x)
	}
}

// acquire cuts an acquisition. Its answer is true, and what was left behind is given back while the
// process lives.
func (x *cutLeases) acquire(p part) (struck bool, err error) {
	x.Arm()
	lock, told := x.TryAcquire(x.Ctx, x.Key(), p.some...)
	struck = x.Heal()
	if told != nil {
		return struck, errors.Join(x.excused(struck, told), x.isFreeSoon(told, p))
	}
	if lock.Context().Err() != nil { // a stall for so long may cost the member
		return struck, x.isFreeSoon(context.Cause(lock.Context()), p)
	}
	err = x.isNotHeldTwice(lock, p)
	if end := lock.Release(x.t.Context()); !errors.Is(end, dblock.ErrLost) {
		err = errors.Join(err, end)
	}
	return struck, errors.Join(err, x.isFreeSoon(nil, p))
}

// cutReleases cuts a release. It never fails, and is carried out.
func (v *env) cutReleases(t *testing.T, p part) {
	v.cutEverywhere(t, suite.Cuts(false), 1, held(p, func(x *cutLeases, lock *dblock.Lock) (bool, error) {
		x.Arm()
		told := lock.Release(x.Ctx)
		struck := x.Heal()
		if told != nil && !errors.Is(told, dblock.ErrLost) {
			return struck, told
		}
		return struck, x.isFreeSoon(told, p)
	}))
	v.allIsFree(t, p)
}

// held acquires the lock that a trial disturbs. On a busy machine a statement may take longer than
// it is waited for.
func held(p part, trial func(x *cutLeases, lock *dblock.Lock) (bool, error)) cutTrial {
	return func(x *cutLeases) (bool, error) {
		for ctx := suite.Soon(x.t); ; {
			lock, err := x.TryAcquire(ctx, x.Key(), p.some...)
			if err == nil {
				return trial(x, lock)
			}
			if ctx.Err() != nil || except(err, dblock.ErrOutcomeUnknown, dblock.ErrBusy, dblock.ErrNotAcquired) != nil {
				return false, err
			}
		}
	}
}

// isNotHeldTwice fails if another process has the key while lock is held. If lock was lost, others
// may have it.
func (x *cutLeases) isNotHeldTwice(lock *dblock.Lock, p part) error {
	next, err := x.other.TryAcquire(x.t.Context(), lock.Key(), p.whole...)
	if err != nil {
		return nil
	}
	if lock.Context().Err() == nil {
		err = fmt.Errorf("%s: two have it", lock.Key())
	}
	return errors.Join(err, next.Release(x.t.Context()))
}

// excused fails an error that the cut does not explain.
func (x *cutLeases) excused(struck bool, err error) error {
	unavailable := suite.IsUnknown(err) || errors.Is(err, dblock.ErrUnavailable) || errors.Is(err, dblock.ErrBusy)
	if struck && (unavailable || x.Cut.Cancels() && errors.Is(err, context.Canceled)) {
		return nil
	}
	return fmt.Errorf("struck %v, and yet: %w", struck, err)
}

func (x *cutLeases) isFreeSoon(told error, p part) error {
	return isFreeSoon(x.t, x.other, x.Key(), told, p)
}

// isFreeSoon acquires the key as another process. After an error that says that nothing was written
// it is free at once.
func isFreeSoon(t *testing.T, other Leases, key string, told error, p part) error {
	acquire := other.Acquire
	if suite.Definite(told) && !errors.Is(told, dblock.ErrLost) {
		acquire = other.TryAcquire
	}
	ctx, cancel := context.WithTimeout(t.Context(), cutFree)
	defer cancel()
	next, err := acquire(ctx, key, p.whole...)
	if err != nil {
		return fmt.Errorf("%s: not free after %v: %w", key, told, err)
	}
	return next.Release(t.Context())
}

// allIsFree acquires all that is held when the processes that were cut are gone. What arrived last
// may have been granted to a dead one, and gives way.
func (v *env) allIsFree(t *testing.T, p part) {
	t.Helper()
	l := v.process(t, LeaseOptions{})
	for _, table := range []string{"dblock_lease", "dblock_reader", "dblock_permit"} {
		held := " FROM " + table + " WHERE handle IS NOT NULL AND lease_key NOT LIKE 'warm%'" // released last
		for v.Count(t, "SELECT count(*)"+held) > 0 {
			var key string
			if v.DB.QueryRowContext(t.Context(), "SELECT lease_key"+held+" LIMIT 1").Scan(&key) == nil {
				require.NoError(t, isFreeSoon(t, l, key, nil, p))
			}
		}
	}
}

// aWaitForReadersCutAnywhere: a writer makes itself the holder, waits until the readers are gone,
// and takes the key. Wherever that is cut, it has the key alone or keeps others out for a short
// time only.
func aWaitForReadersCutAnywhere(t *testing.T, v *env) {
	v.cutEverywhere(t, suite.Cuts(false), 1, warm(exclusive, func(x *cutLeases) (struck bool, err error) {
		key := x.Key()
		reads, err := x.other.Acquire(t.Context(), key, dblock.WithShared())
		if err != nil {
			return false, err
		}
		x.Arm()
		writer := startWaiter(x.Ctx, x, key)
		if v.waitsOrEnds(t, key, writer) && writer.err == nil {
			err = fmt.Errorf("%s: a writer has it beside a reader", key)
		}
		err = errors.Join(err, reads.Release(t.Context()))
		told := writer.refused()
		if struck = x.Heal(); told != nil { // the holder that it made itself is given back in the background
			return struck, errors.Join(err, x.excused(struck, told), x.isFreeSoon(nil, exclusive))
		}
		lock := writer.lock
		if next, e := x.other.TryAcquire(t.Context(), key, dblock.WithShared()); e == nil {
			if err = errors.Join(err, next.Release(t.Context())); lock.Context().Err() == nil {
				err = errors.Join(err, fmt.Errorf("%s: a reader is beside a writer", key))
			}
		}
		if end := lock.Release(t.Context()); !errors.Is(end, dblock.ErrLost) {
			err = errors.Join(err, end)
		}
		return struck, errors.Join(err, x.isFreeSoon(nil, exclusive))
	}))
	v.allIsFree(t, exclusive)
}

// waitsOrEnds waits until a writer keeps readers out, or its call has ended.
func (v *env) waitsOrEnds(t *testing.T, key string, w *waiter) (ended bool) {
	query := fmt.Sprintf("SELECT count(*) FROM dblock_lease WHERE lease_key = '%s' AND handle IS NOT NULL", key)
	for ctx, n := suite.Soon(t), 0; ; {
		err := v.DB.QueryRowContext(ctx, query).Scan(&n)
		select {
		case <-w.done:
			return true
		case <-time.After(5 * time.Millisecond):
			if !assert.NoError(t, err) || n > 0 {
				return false
			}
		}
	}
}

// anExpireInCutAnywhere moves the end of a lock while the network breaks: no other process acquires
// the key before the lock has ended.
func anExpireInCutAnywhere(t *testing.T, v *env) {
	ofPart := func(p part) cutTrial {
		return held(p, func(x *cutLeases, lock *dblock.Lock) (bool, error) { return x.expires(lock, p) })
	}
	other := v.process(t, LeaseOptions{})
	modes := map[string]cutTrial{
		"exclusive": ofPart(exclusive), "shared": ofPart(aReader), "term": (*cutLeases).leadAndExpire,
		"permits": ofPart(part{some: []dblock.Option{dblock.WithPermits(2, 2)},
			whole: []dblock.Option{dblock.WithPermits(1, 2)}}),
		"set": func(x *cutLeases) (bool, error) {
			lock, err := x.AcquireAll(suite.Soon(t), []string{x.Key(), x.Key() + " too"})
			if err != nil {
				return false, err
			}
			return x.expires(lock, exclusive)
		},
	}
	var all sync.WaitGroup // the trials mostly wait
	for mode, trial := range modes {
		for _, c := range suite.Cuts(false) {
			all.Go(func() { v.cutBeside(t, other, mode, []suite.Cut{c}, 1, trial) })
		}
	}
	all.Wait()
}

// leadAndExpire moves the end of a term.
func (x *cutLeases) leadAndExpire() (struck bool, err error) {
	e, err := dblock.NewElector(x, x.Key(), dblock.ElectorOptions{})
	if err != nil {
		return false, err
	}
	ctx, end := context.WithCancel(x.t.Context())
	defer end()
	led := false
	_ = e.Run(ctx, func(ctx context.Context, _ dblock.Fence) error {
		lock, _ := dblock.LockOf(ctx)
		led = true
		struck, err = x.expires(lock, exclusive)
		end() // one term is enough
		return nil
	})
	if !led {
		return false, errors.New("the candidate does not lead")
	}
	return struck, err
}

// expires cuts an ExpireIn of lock, and has another process try its keys until its time is up.
func (x *cutLeases) expires(lock *dblock.Lock, p part) (struck bool, err error) {
	defer func() {
		x.Dialer.CloseAll() // a release waits for a connection that is stalled
		_ = lock.Release(x.t.Context())
	}()
	x.Arm()
	told := lock.ExpireIn(x.Ctx, 300*time.Millisecond)
	struck = x.Heal()
	if told != nil && !errors.Is(told, dblock.ErrLost) {
		if err := x.excused(struck, told); err != nil {
			return struck, err
		}
	}
	for end := time.Now().Add(600 * time.Millisecond); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		for _, key := range lock.Keys() {
			next, err := x.other.TryAcquire(x.t.Context(), key, p.whole...)
			if err != nil {
				continue
			}
			if lock.Context().Err() == nil {
				err = fmt.Errorf("%s: told %w, and two have it", key, told)
			}
			return struck, errors.Join(err, next.Release(x.t.Context()))
		}
	}
	return struck, nil
}

func aLeaseCloseCutAnywhere(t *testing.T, v *env) {
	for _, mode := range []faultconn.Mode{faultconn.CutBefore, faultconn.CutAfter} {
		for k, struck := 1, true; struck; k++ {
			var dialer faultconn.Dialer
			l := v.processOn(t, &dialer, LeaseOptions{TTL: time.Hour})
			suite.IsFree(t, l, "key")
			dialer.Arm(k, mode, nil)
			require.NoError(t, l.Close(suite.Soon(t)), "%v call %d", mode, k)
			struck = dialer.Disarm()
			assert.Zero(t, v.Count(t, suite.Members), "%v call %d: the process has not left", mode, k)
			v.Exec(t, "DELETE FROM dblock_member")
		}
	}
}
