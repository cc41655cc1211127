package lock

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// servesThoseWhoWaitInLine: all of one process that wait for a key get it, in the order in which they
// came.
func servesThoseWhoWaitInLine(t *testing.T, v Place) {
	l := v.process(t, LeaseOptions{})
	const callers = 30
	lock := suite.Acquire(t, l, "k")
	var line sync.WaitGroup
	var mu sync.Mutex
	var served []int
	for i := range callers {
		ctx := &watched{Context: suite.Soon(t), looked: make(chan struct{})}
		line.Go(func() {
			lock, err := l.Acquire(ctx, "k")
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			served = append(served, i)
			mu.Unlock()
			suite.Release(t, lock)
		})
		<-ctx.looked
		time.Sleep(20 * time.Millisecond) // for those that look at their context before they are in the queue
	}
	suite.Release(t, lock)
	line.Wait()
	for i, who := range served {
		if who != i {
			t.Errorf("served %v", served)
			break
		}
	}
	if len(served) != callers {
		t.Errorf("%d were served", len(served))
	}
}

// watched is a context that shows that a call has looked whether it ends.
type watched struct {
	context.Context
	once   sync.Once
	looked chan struct{}
}

func (w *watched) Done() <-chan struct{} {
	w.once.Do(func() { close(w.looked) })
	return w.Context.Done()
}

// wakesAnotherProcess: it hears of a release long before its poll is due.
func wakesAnotherProcess(t *testing.T, v Place) {
	a, b := v.process(t, LeaseOptions{}), v.process(t, LeaseOptions{Poll: time.Minute})
	lock := suite.Acquire(t, a, "k")
	got := make(chan *dblock.Lock, 1)
	go func() {
		lock, err := b.Acquire(suite.Soon(t), "k")
		if err != nil {
			t.Error(err)
		}
		got <- lock
	}()
	for ctx, waiters := suite.Soon(t), 0; waiters == 0; _, _, waiters = v.Rows(t) {
		if ctx.Err() != nil {
			t.Fatal("nobody waits")
		}
		time.Sleep(time.Millisecond)
	}
	time.Sleep(20 * time.Millisecond) // it may be asking once more before it sleeps
	began := time.Now()
	suite.Release(t, lock)
	next := <-got
	if next == nil {
		return
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("woken after %v", took)
	}
	suite.Release(t, next)
}

func aWaitEndsWithItsContext(t *testing.T, v Place) {
	a, b := v.process(t, LeaseOptions{Label: "a"}), v.process(t, LeaseOptions{})
	lock := suite.Acquire(t, a, "k")
	for name, l := range map[string]dblock.Locker{"another process": b, "the same process": a} {
		for within := 100 * time.Millisecond; ; within *= 2 {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			_, err := l.Acquire(ctx, "k")
			cancel()
			if errors.Is(err, dblock.ErrOutcomeUnknown) {
				break // the moment came while a statement was under way: as honest
			}
			held := suite.IsHeld(t, err, "k")
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v does not say what ended the wait", name, err)
			}
			if held.Holder == (dblock.Holder{}) && within < time.Minute {
				continue // the server had not answered yet
			}
			if a.Caps().Fencing && name == "another process" && held.Holder.Token != token(t, lock) {
				t.Errorf("held by %+v", held.Holder)
			}
			break
		}
	}
	if lock.Context().Err() != nil {
		t.Error("the holder's lock ended")
	}
	suite.Release(t, lock)
	suite.Release(t, suite.Acquire(t, b, "k"))
}

// aGuardFencesOff: who has lost the lease writes nothing.
func aGuardFencesOff(t *testing.T, v *env) {
	v.exec(t, "CREATE TABLE written (n INT)")
	const write = "INSERT INTO written VALUES (1)"
	a, b := v.process(t, LeaseOptions{}), v.process(t, LeaseOptions{})
	lock := suite.Acquire(t, a, "k")
	if err := v.e.Guarded(t.Context(), a, lock, write, func() {}); err != nil {
		t.Fatal(err)
	}
	v.exec(t, "UPDATE dblock_member SET expires_at = '2000-01-01'") // a was paused for too long, and has not noticed
	next := suite.Acquire(t, b, "k")
	if err := v.e.Guarded(t.Context(), a, lock, write, func() {}); !errors.Is(err, dblock.ErrFenced) {
		t.Errorf("the old holder's write: %v", err)
	}
	if n := v.count(t, "SELECT count(*) FROM written"); n != 1 {
		t.Errorf("%d writes, want 1", n)
	}
	if err := v.e.Guarded(t.Context(), b, next, write, func() {}); err != nil {
		t.Errorf("the new holder's write: %v", err)
	}
	suite.Release(t, next)
	_ = lock.Release(t.Context())
}

// aGuardKeepsOthersOut: while a guarded transaction is open nobody takes the lease over, however dead
// its holder looks.
func aGuardKeepsOthersOut(t *testing.T, v *env) {
	v.exec(t, "CREATE TABLE written (n INT)")
	a, b := v.process(t, LeaseOptions{}), v.process(t, LeaseOptions{})
	lock := suite.Acquire(t, a, "k")
	err := v.e.Guarded(t.Context(), a, lock, "INSERT INTO written VALUES (1)", func() {
		v.exec(t, "DELETE FROM dblock_member")
		for range 3 {
			if next, err := b.TryAcquire(t.Context(), "k"); err == nil {
				t.Error("taken over inside a guarded transaction")
				suite.Release(t, next)
			}
		}
	})
	if err != nil {
		t.Error(err)
	}
	suite.Release(t, suite.Acquire(t, b, "k"))
	_ = lock.Release(t.Context())
}

// oneSweepsAtATime: of two processes that are to sweep one does, and the other when that one is gone.
func oneSweepsAtATime(t *testing.T, v Place) {
	l := v.process(t, LeaseOptions{})
	if err := l.RunSweeper(t.Context(), 0); !errors.Is(err, dblock.ErrInvalid) {
		t.Errorf("every 0s: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	first, second := v.process(t, LeaseOptions{}), v.process(t, LeaseOptions{})
	firstCtx, stopFirst := context.WithCancel(ctx)
	sweep := func(ctx context.Context, l Leases) {
		if err := l.RunSweeper(ctx, time.Second); !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
	}
	all.Go(func() { sweep(firstCtx, first) })
	sweeper := func() (member string) {
		for ctx := suite.Soon(t); ctx.Err() == nil; time.Sleep(time.Millisecond) {
			held, err := l.Held(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if len(held) == 1 {
				return held[0].Holder.Member
			}
		}
		t.Fatal("nobody sweeps")
		return ""
	}
	before := sweeper()
	all.Go(func() { sweep(ctx, second) })
	suite.Release(t, suite.Acquire(t, l, "old"))
	v.AgeLeases(t)
	for ctx, leases := suite.Soon(t), 2; leases == 2; _, leases, _ = v.Rows(t) { // the sweeper's is the other one
		if ctx.Err() != nil {
			t.Fatal("nothing is swept")
		}
		time.Sleep(time.Millisecond)
	}
	if after := sweeper(); after != before {
		t.Errorf("%s swept, and then %s", before, after)
	}
	stopFirst()
	for ctx := suite.Soon(t); sweeper() == before; {
		if ctx.Err() != nil {
			t.Fatal("nobody took over")
		}
	}
	cancel()
	all.Wait()
}

// takesOverFromTheKilled kills -9 a holder: who waits has the lock when the holder's time is up.
func takesOverFromTheKilled(t *testing.T, v *env) {
	v.exec(t, "CREATE TABLE counter (n INT)")
	v.exec(t, "INSERT INTO counter VALUES (0)")
	holder := v.startHolder(t, suite.Soon(t), guardedWrites)
	if !holder.Lines.Scan() { // it holds the key most of the time, and now for certain
		t.Fatal("the holder ended")
	}
	_ = suite.Suspend(holder.Process)
	_ = holder.Process.Kill()
	_ = holder.Wait()
	began := time.Now()
	l := v.process(t, LeaseOptions{})
	suite.Release(t, suite.Acquire(t, l, "counter"))
	took := time.Since(began)
	t.Logf("taken over after %v of a TTL of %v", took, pauseTTL)
	if took > 20*pauseTTL {
		t.Errorf("taken over after %v", took)
	}
}

// aRaisedFenceKeepsOthersOut: once the next holder has begun to read, the one before it writes nothing, in
// whatever database that is.
func aRaisedFenceKeepsOthersOut(t *testing.T, v *env) {
	l := v.process(t, LeaseOptions{})
	old := suite.Acquire(t, l, "k")
	suite.Release(t, old)
	next := suite.Acquire(t, l, "k")
	defer suite.Release(t, next)
	inTx := func(check func(context.Context, *sql.Tx, dblock.Fence, string) error, lock *dblock.Lock, resource string) error {
		tx, err := v.db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		f, _ := lock.Fence()
		if err := check(t.Context(), tx, f, resource); err != nil {
			return err
		}
		return tx.Commit()
	}
	for i, step := range []struct {
		check  func(context.Context, *sql.Tx, dblock.Fence, string) error
		lock   *dblock.Lock
		fenced bool
	}{
		{v.e.CheckRaised, old, true}, // it has not been raised at all
		{v.e.Raise, old, false},
		{v.e.Raise, old, false}, // again
		{v.e.CheckRaised, old, false},
		{v.e.CheckRaised, next, true}, // it has not begun
		{v.e.Raise, next, false},
		{v.e.CheckRaised, next, false},
		{v.e.CheckRaised, old, true},
		{v.e.Raise, old, true},
		{v.e.CheckRaised, next, false},
	} {
		if err := inTx(step.check, step.lock, "report"); step.fenced != errors.Is(err, dblock.ErrFenced) || !step.fenced && err != nil {
			t.Errorf("step %d: %v", i, err)
		}
	}
	if err := inTx(v.e.Raise, old, "another one"); err != nil {
		t.Error(err)
	}
	if err := inTx(v.e.Raise, old, ""); !errors.Is(err, dblock.ErrInvalid) {
		t.Errorf("no resource: %v", err)
	}
}
