package queue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/batch"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

var (
	errLocked  = errors.New("a row is locked")
	errRefused = errors.New("refused by a trigger")
)

// lockedGroup is a driver on which the group "hot" is locked, and which refuses the group "bad".
type lockedGroup struct {
	driver.Driver
	statements int
	inserted   []string // groups
}

func (e *lockedGroup) Enqueue(_ context.Context, r *driver.EnqueueRequest) ([]driver.Duplicate, error) {
	e.statements++
	for _, j := range r.Jobs {
		switch j.Group {
		case "hot":
			return nil, errLocked
		case "bad":
			return nil, errRefused
		}
	}
	for _, j := range r.Jobs {
		e.inserted = append(e.inserted, j.Group)
	}
	return nil, nil
}

func (*lockedGroup) IsLocked(err error) bool { return errors.Is(err, errLocked) }

func (*lockedGroup) Classify(err error) sqlerr.Class {
	if errors.Is(err, errRefused) {
		return sqlerr.BadInput
	}
	return sqlerr.Unclassified
}

func callOf(groups ...string) keyedCall {
	var jobs []driver.Insert
	for _, g := range groups {
		jobs = append(jobs, driver.Insert{Queue: "q", Group: g})
	}
	c, _ := newKeyedCall(jobs)
	return c
}

// TestCallsOfALockedKeyGoApartTogether: a crowd of calls for a locked group costs its neighbours a
// few statements, however large it is.
func TestCallsOfALockedKeyGoApartTogether(t *testing.T) {
	t.Parallel()
	e := &lockedGroup{}
	q := &enqueuer{db: newStatements(e, time.Second), o: &Options{Timeout: time.Second}}
	q.makeQueues()
	var calls []keyedCall
	var cold []string
	for i := range 512 {
		calls = append(calls, callOf("hot"))
		if i%32 == 0 {
			g := fmt.Sprintf("cold %02d", i/32)
			calls, cold = append(calls, callOf(g)), append(cold, g)
		}
	}
	calls = append(calls, callOf("bad"), callOf("cold 00", "hot"))
	answers, err := q.insertLanes(t.Context(), calls, false)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range calls {
		a := answers[i]
		switch g := c.jobs[len(c.jobs)-1].Group; {
		case g == "hot" && (!a.Alone || a.Err != nil || a.Behind != c.lane):
			t.Errorf("call %d of the locked group: %+v", i, a)
		case g == "bad" && !errors.Is(a.Err, errRefused):
			t.Errorf("the call that is refused: %+v", a)
		case g != "hot" && g != "bad" && (a.Alone || a.Err != nil):
			t.Errorf("call %d of %s: %+v", i, g, a)
		}
	}
	slices.Sort(e.inserted)
	if !slices.Equal(e.inserted, cold) {
		t.Errorf("enqueued into %v", e.inserted)
	}
	if e.statements > 32 {
		t.Errorf("%d statements for %d calls", e.statements, len(calls))
	}
	t.Logf("%d statements", e.statements)
}

// lockedForever is a driver on which a group stays locked.
type lockedForever struct {
	lockedGroup
	waited int // statements
}

func (e *lockedForever) Enqueue(_ context.Context, r *driver.EnqueueRequest) ([]driver.Duplicate, error) {
	if slices.ContainsFunc(r.Jobs, func(j driver.Insert) bool { return j.Kind == "refused" }) {
		return nil, errRefused
	}
	e.waited++
	return nil, dblock.ErrBusy
}

func (*lockedForever) Classify(err error) sqlerr.Class {
	if errors.Is(err, errRefused) {
		return sqlerr.BadInput
	}
	return sqlerr.Busy
}

// TestCallsThatHaveWaitedAreNotDivided: a statement that has waited for a key for Options.Timeout
// is answered for all its calls. None waits once more, though the server refuses some of them.
func TestCallsThatHaveWaitedAreNotDivided(t *testing.T) {
	t.Parallel()
	e := &lockedForever{}
	q := &enqueuer{db: newStatements(e, time.Second), o: &Options{Timeout: time.Second}}
	var calls []*keyedResult
	for n := range 20 {
		call := callOf("hot")
		if n%7 == 3 {
			call.jobs[0].Kind = "refused"
		}
		calls = append(calls, &keyedResult{keyedCall: call})
	}
	q.insertCalls(t.Context(), calls, 0, new(insertion))
	for i, c := range calls {
		if !errors.Is(c.Err, dblock.ErrBusy) && !errors.Is(c.Err, errRefused) {
			t.Errorf("call %d: %+v", i, c.Result)
		}
	}
	if e.waited != 1 {
		t.Errorf("%d statements waited, want 1", e.waited)
	}
}

// smallPool is a driver whose pool has few connections. Each statement takes a second.
type smallPool struct {
	driver.Driver
	free chan struct{}
}

func (e *smallPool) Enqueue(ctx context.Context, _ *driver.EnqueueRequest) ([]driver.Duplicate, error) {
	select {
	case e.free <- struct{}{}:
		defer func() { <-e.free }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	time.Sleep(time.Second)
	return nil, nil
}

func (*smallPool) Classify(error) sqlerr.Class { return sqlerr.Busy }

// TestLargeCallsQueueWithoutATime: many calls come at once that share no statement. They wait
// longer than Options.Timeout, and are enqueued. More than Options.MaxQueue are refused. In the
// control the calls go straight to the driver.
func TestLargeCallsQueueWithoutATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const calls = 40
		e := &smallPool{free: make(chan struct{}, largeInFlight)}
		q := &enqueuer{db: newStatements(e, 3*time.Second), o: &Options{Timeout: 3 * time.Second, MaxQueue: calls}}
		q.makeQueues()
		together := func(n int, call func() error) (errs []error) {
			var mu sync.Mutex
			var all sync.WaitGroup
			for range n {
				all.Go(func() {
					if err := call(); err != nil {
						mu.Lock()
						defer mu.Unlock()
						errs = append(errs, err)
					}
				})
			}
			all.Wait()
			return errs
		}
		queued := func() error {
			_, err := q.large.Do(t.Context(), callOf(""))
			return err
		}
		if errs := together(calls, queued); len(errs) > 0 {
			t.Errorf("%d are refused: %v", len(errs), errs[0])
		}
		errs := together(2*calls, queued)
		if len(errs) < calls-largeInFlight || !errors.Is(errs[0], dblock.ErrOverloaded) {
			t.Errorf("%d of %d are refused: %v", len(errs), 2*calls, errs)
		}
		errs = together(calls, func() error {
			_, err := q.insert(t.Context(), callOf("").jobs, 0, 1)
			return err
		})
		if len(errs) == 0 {
			t.Error("the control refuses none")
		}
	})
}

// TestCallsAreDividedByTheirKeys: as near to the middle as that can be.
func TestCallsAreDividedByTheirKeys(t *testing.T) {
	t.Parallel()
	for want, calls := range map[int][]keyedCall{
		1: {callOf("a"), callOf("b"), callOf("b"), callOf("b")},
		3: {callOf("a"), callOf("a"), callOf("a"), callOf("b")},
		2: {callOf("a"), callOf("a"), callOf("b"), callOf("b")},
		4: {callOf("a"), callOf("a"), callOf("a"), callOf("a")}, // not at all
		5: {callOf("a"), callOf("a"), callOf("a"), callOf("a"), callOf("a"), callOf("a", "b")},
		6: {callOf("a", "b"), callOf("b", "a"), callOf("a", "b", "a"), callOf("a", "b"), callOf("a", "b"), callOf("b", "a", "b")}, // not at all
	} {
		var all []*keyedResult
		for _, c := range calls {
			all = append(all, &keyedResult{keyedCall: c})
		}
		if at := divide(all); at != want {
			t.Errorf("%d calls are divided at %d, want %d", len(calls), at, want)
		}
	}
}

// TestLanes: calls share a lane if enqueuing them locks exactly the same keys.
func TestLanes(t *testing.T) {
	t.Parallel()
	later := driver.Insert{Queue: "q", Group: "a", Delay: time.Second}
	now, both := driver.Insert{Queue: "q", Group: "a"}, driver.Insert{Queue: "q", Group: "a", Unique: "a"}
	seen := make(map[string]int)
	for i, calls := range [][][]driver.Insert{
		{{later}, {later, later}},
		{{now}, {now, now}, {later, now}, {now, later}, {later, now, later}},
		{{both}, {both, now}, {now, both}, {later, both, now}},
		{{{Queue: "q", Group: "b"}}}, {{{Queue: "r", Group: "a"}}}, {{{Queue: "q", Unique: "a"}}},
		{{now, {Queue: "q", Group: "b"}}, {{Queue: "q", Group: "b"}, now}},
		{{now, {Queue: "r", Group: "a"}}, {{Queue: "r", Group: "a"}, now}},
	} {
		for _, jobs := range calls {
			c, lanes := newKeyedCall(jobs)
			if of, has := seen[c.lane]; has && of != i || c.several != (len(lanes) > 1) {
				t.Errorf("calls %d and %d have the lane %q, of %q", of, i, c.lane, lanes)
			}
			seen[c.lane] = i
		}
	}
	if len(seen) != 8 {
		t.Errorf("%d lanes", len(seen))
	}
}

// lockedRow is a driver on which a trigger of the kind "locked" waits for a row that another
// transaction has locked.
type lockedRow struct {
	driver.Driver
	bounded  bool
	released chan struct{}
}

func (e *lockedRow) Enqueue(ctx context.Context, r *driver.EnqueueRequest) ([]driver.Duplicate, error) {
	time.Sleep(time.Millisecond)
	if !slices.ContainsFunc(r.Jobs, func(j driver.Insert) bool { return j.Kind == "locked" }) {
		return nil, nil
	}
	var bound <-chan time.Time
	if e.bounded && r.Wait > 0 {
		bound = time.After(r.Wait)
	}
	select {
	case <-e.released:
		return nil, nil
	case <-bound:
		return nil, errLocked
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (*lockedRow) IsLocked(err error) bool     { return errors.Is(err, errLocked) }
func (*lockedRow) Classify(error) sqlerr.Class { return sqlerr.Busy }

// TestATaskThatWaitsStopsNoOther: tasks without keys whose INSERT waits stop no others. In the
// control, statements wait as long as they may.
func TestATaskThatWaitsStopsNoOther(t *testing.T) {
	t.Parallel()
	for _, bounded := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			const timeout = 10 * time.Second
			e := &lockedRow{bounded: bounded, released: make(chan struct{})}
			q := &enqueuer{db: newStatements(e, timeout), o: &Options{Timeout: timeout, MaxQueue: 1000}}
			q.makeQueues()
			var made atomic.Int64
			call := func(kind string, large bool) error {
				n := made.Add(1)
				job := driver.Insert{ID: driver.ID{byte(n >> 8), byte(n)}, Kind: kind}
				if large {
					job.Payload = make([]byte, maxMergedBytes)
				}
				c, _ := newKeyedCall([]driver.Insert{job})
				_, err := q.sendPlain(t.Context(), c)
				return err
			}
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() {
					if err := call("locked", i%2 == 0); err != nil && bounded {
						t.Error(err)
					}
				})
			}
			began := time.Now()
			var others sync.WaitGroup
			for i := range 80 {
				others.Go(func() {
					for range 20 {
						if err := call("free", i%2 == 0); err != nil && bounded {
							t.Error(err)
						}
					}
				})
			}
			others.Wait()
			if took := time.Since(began); took < timeout/2 != bounded {
				t.Errorf("bounded: %v: others took %v", bounded, took)
			}
			close(e.released)
			all.Wait()
		})
	}
}

// oneAtATime is a driver on which two statements with a group in common lock each other out.
type oneAtATime struct {
	driver.Driver
	mu    sync.Mutex
	inUse map[string]bool
}

func (e *oneAtATime) Enqueue(_ context.Context, r *driver.EnqueueRequest) ([]driver.Duplicate, error) {
	groups := make(map[string]bool)
	for _, j := range r.Jobs {
		groups[j.Group] = true
	}
	e.mu.Lock()
	for g := range groups {
		for e.inUse[g] {
			e.mu.Unlock()
			if r.Wait > 0 {
				return nil, errLocked
			}
			time.Sleep(time.Millisecond) // in the server's queue
			e.mu.Lock()
		}
	}
	maps.Copy(e.inUse, groups)
	e.mu.Unlock()
	time.Sleep(10 * time.Millisecond)
	e.mu.Lock()
	defer e.mu.Unlock()
	for g := range groups {
		delete(e.inUse, g)
	}
	return nil, nil
}

func (*oneAtATime) IsLocked(err error) bool     { return errors.Is(err, errLocked) }
func (*oneAtATime) Classify(error) sqlerr.Class { return sqlerr.Unclassified }

// TestCallsWithAGroupInCommonGoOneAfterTheOther, if they have other keys, too. A call of the group
// alone is not kept waiting by them, nor is one of another group.
func TestCallsWithAGroupInCommonGoOneAfterTheOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &oneAtATime{inUse: make(map[string]bool)}
		q := &enqueuer{db: newStatements(e, time.Minute), o: &Options{Timeout: time.Minute, MaxQueue: 1000}}
		q.makeQueues()
		var all sync.WaitGroup
		repeat := func(n int, most time.Duration, jobs func(n int) []driver.Insert) {
			all.Go(func() {
				for i := range n {
					c, _ := newKeyedCall(jobs(i))
					began := time.Now()
					if _, err := q.keyed.Do(t.Context(), c); err != nil {
						t.Error(err)
					}
					if took := time.Since(began); took > most {
						t.Errorf("%d jobs of group %q took %v", len(c.jobs), c.jobs[0].Group, took)
					}
				}
			})
		}
		for caller := range 20 {
			repeat(20, time.Second, func(n int) []driver.Insert {
				return []driver.Insert{{Queue: "q", Group: "g", Unique: fmt.Sprint(caller, n)}}
			})
		}
		repeat(20, time.Second, func(int) []driver.Insert { return []driver.Insert{{Queue: "q", Group: "g"}} })
		repeat(20, 100*time.Millisecond, func(int) []driver.Insert { return []driver.Insert{{Queue: "q", Group: "another"}} })
		all.Wait()
	})
}

// lockedQueue is a driver on whose server the rows of the queue "a" are locked. A statement waits
// for a second at least.
type lockedQueue struct{ lockedRow }

func (*lockedQueue) Enqueue(ctx context.Context, r *driver.EnqueueRequest) ([]driver.Duplicate, error) {
	if !slices.ContainsFunc(r.Jobs, func(j driver.Insert) bool { return j.Queue == "a" }) {
		return nil, nil
	}
	var wait <-chan time.Time
	if r.Wait > 0 {
		wait = time.After(time.Second)
	}
	select {
	case <-wait:
	case <-ctx.Done():
	}
	return nil, errLocked
}

// TestAQueueThatIsLockedStopsNoOther: a crowd of tasks for it waits, and of those for another queue
// a few, once. In the control they share statements.
func TestAQueueThatIsLockedStopsNoOther(t *testing.T) {
	t.Parallel()
	for _, apart := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			const timeout = 10 * time.Second
			q := &enqueuer{db: newStatements(&lockedQueue{}, timeout), o: &Options{Timeout: timeout, MaxQueue: 1000}}
			q.makeQueues()
			var made atomic.Int64
			call := func(queue string) error {
				n := made.Add(1)
				c, _ := newKeyedCall([]driver.Insert{{ID: driver.ID{byte(n >> 8), byte(n)}, Kind: "k", Queue: queue}})
				send := q.apart.Do
				if apart {
					send = q.sendPlain
				}
				_, err := send(t.Context(), c)
				return err
			}
			var all sync.WaitGroup
			var refused, late atomic.Int64
			for range 200 {
				all.Go(func() { _ = call("a") })
				for range 4 {
					all.Go(func() {
						began := time.Now()
						if call("b") != nil {
							refused.Add(1)
						}
						if time.Since(began) > timeout/2 {
							late.Add(1)
						}
					})
				}
				time.Sleep(100 * time.Millisecond)
			}
			all.Wait()
			if refused.Load() > 0 && apart || late.Load() > 0 == apart {
				t.Errorf("apart: %v: %d of 800 are refused, %d are late", apart, refused.Load(), late.Load())
			}
		})
	}
}

// conflictQueue is a driver on whose server each task for the queue "a" meets a conflict.
type conflictQueue struct{ lockedRow }

func (*conflictQueue) Enqueue(_ context.Context, r *driver.EnqueueRequest) ([]driver.Duplicate, error) {
	if slices.ContainsFunc(r.Jobs, func(j driver.Insert) bool { return j.Queue == "a" }) {
		return nil, errLocked
	}
	return nil, nil
}

func (*conflictQueue) IsLocked(error) bool         { return false }
func (*conflictQueue) Classify(error) sqlerr.Class { return sqlerr.Retryable }

// TestConflictsOfAQueueStopNoOther: ten tasks a second meet them, each time that they are sent. In
// the control statements are repeated, and not divided.
func TestConflictsOfAQueueStopNoOther(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]func(n int64) string{
		"plain":   func(int64) string { return "" },
		"keyed":   func(n int64) string { return fmt.Sprint(n) },
		"control": func(int64) string { return "" },
	} {
		synctest.Test(t, func(t *testing.T) {
			const timeout = 10 * time.Second
			q := &enqueuer{db: newStatements(&conflictQueue{}, timeout), o: &Options{Timeout: timeout, MaxQueue: 1000}}
			q.makeQueues()
			if name == "control" {
				q.plain = batch.New(batch.Options[keyedCall, []driver.Duplicate]{
					MaxQueue: 1000, PerKey: 2, MaxInFlight: 2, Key: keyedCall.key, MaxBatch: maxMerged,
					Run: func(ctx context.Context, calls []keyedCall, _ bool) ([]batch.Result[[]driver.Duplicate], error) {
						var jobs []driver.Insert
						for _, c := range calls {
							jobs = append(jobs, c.jobs...)
						}
						_, err := q.insert(ctx, jobs, 0, insertTries)
						return make([]batch.Result[[]driver.Duplicate], len(calls)), err
					},
				})
			}
			var made atomic.Int64
			call := func(queue string) error {
				n := made.Add(1)
				c, _ := newKeyedCall([]driver.Insert{{Kind: "k", Queue: queue, ID: driver.ID{byte(n >> 8), byte(n)}, Unique: key(n)}})
				send := q.sendPlain
				if key(n) != "" {
					send = q.keyed.Do
				}
				_, err := send(t.Context(), c)
				return err
			}
			var all sync.WaitGroup
			var longest atomic.Int64
			for range 100 {
				all.Go(func() {
					if call("a") == nil {
						t.Error("a task that meets conflicts is enqueued")
					}
				})
				all.Go(func() {
					began := time.Now()
					if err := call("b"); err != nil && name != "control" {
						t.Error(err)
					}
					for took := int64(time.Since(began)); ; {
						if old := longest.Load(); took <= old || longest.CompareAndSwap(old, took) {
							break
						}
					}
				})
				time.Sleep(100 * time.Millisecond)
			}
			all.Wait()
			if took := time.Duration(longest.Load()); took > 200*time.Millisecond != (name == "control") {
				t.Errorf("%s: a task of another queue took up to %v", name, took)
			}
		})
	}
}

// slowConflicts is a conflictQueue whose server takes a while for each statement.
type slowConflicts struct{ conflictQueue }

func (s *slowConflicts) Enqueue(ctx context.Context, r *driver.EnqueueRequest) ([]driver.Duplicate, error) {
	time.Sleep(3 * time.Millisecond)
	return s.conflictQueue.Enqueue(ctx, r)
}

// TestConflictsInLanesLeaveRoom: forty callers with a key each meet conflicts again and again. Half
// of the calls with free keys take little time. In the control each statement of a lane is
// repeated.
func TestConflictsInLanesLeaveRoom(t *testing.T) {
	t.Parallel()
	for _, control := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			const timeout, callers = 10 * time.Second, 40
			q := &enqueuer{db: newStatements(&slowConflicts{}, timeout), o: &Options{Timeout: timeout, MaxQueue: 1000}}
			q.makeQueues()
			if control {
				q.keyed = batch.New(batch.Options[keyedCall, []driver.Duplicate]{
					MaxQueue: 1000, PerKey: inFlight, MaxInFlight: inFlight, Waiters: keyedWaiters, MaxWait: timeout, Apart: true,
					Key: keyedCall.key, MaxBatch: maxMerged,
					Run: func(ctx context.Context, calls []keyedCall, _ bool) ([]batch.Result[[]driver.Duplicate], error) {
						return q.insertLanes(ctx, calls, false)
					},
				})
			}
			send := func(ctx context.Context, n int, queue string) error {
				c, _ := newKeyedCall([]driver.Insert{{Kind: "k", Queue: queue, ID: driver.ID{byte(n >> 8), byte(n)}, Unique: fmt.Sprint(n)}})
				_, err := q.keyed.Do(ctx, c)
				return err
			}
			var all sync.WaitGroup
			ctx, cancel := context.WithCancel(t.Context())
			for n := range callers {
				all.Go(func() {
					for ctx.Err() == nil {
						if send(ctx, n, "a") == nil {
							t.Error("a task that meets conflicts is enqueued")
						}
					}
				})
			}
			time.Sleep(2 * time.Second)
			var took []time.Duration
			for n := range 100 {
				began := time.Now()
				if err := send(t.Context(), callers+n, "b"); err != nil {
					t.Error(err)
				}
				took = append(took, time.Since(began))
			}
			cancel()
			all.Wait()
			slices.Sort(took)
			if took[50] > 30*time.Millisecond != control {
				t.Errorf("control: %v: half of the calls took more than %v", control, took[50])
			}
			if err := q.keyed.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestACallOfSeveralQueuesBlamesNone: one of its queues is locked. Further calls for the same
// queues are sent apart, and those for the other queue are not.
func TestACallOfSeveralQueuesBlamesNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const timeout = 10 * time.Second
		q := &enqueuer{db: newStatements(&lockedQueue{}, timeout), o: &Options{Timeout: timeout, MaxQueue: 1000}}
		q.makeQueues()
		of := func(queues ...string) keyedCall {
			var jobs []driver.Insert
			for n, queue := range queues {
				jobs = append(jobs, driver.Insert{ID: driver.ID{byte(n)}, Kind: "k", Queue: queue})
			}
			c, _ := newKeyedCall(jobs)
			return c
		}
		if _, err := q.sendPlain(t.Context(), of("b", "a")); !errors.Is(err, dblock.ErrBusy) {
			t.Error(err)
		}
		if !q.stuck.has(of("a", "b", "b")) || q.stuck.has(of("b")) || q.stuck.has(of("b", "c")) {
			t.Errorf("stuck are %v", q.stuck.found)
		}
	})
}

// TestAQueueCountsAsStuckForAWhile: after a short wait for a second, for twice as long if it is
// found again soon, and for a minute at most.
func TestAQueueCountsAsStuckForAWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s stuckQueues
		c, _ := newKeyedCall([]driver.Insert{{Kind: "k", Queue: "a"}})
		lasts := func() time.Duration {
			began := time.Now()
			for s.has(c) {
				time.Sleep(time.Millisecond)
			}
			return time.Since(began)
		}
		s.add("a", time.Millisecond)
		if took := lasts(); took != time.Second {
			t.Errorf("after a short wait it lasts for %v", took)
		}
		for _, want := range []time.Duration{2, 4, 8, 16, 32, 60, 60} {
			s.add("a", time.Millisecond)
			if took := lasts(); took != want*time.Second {
				t.Errorf("found again it lasts for %v, want %d s", took, want)
			}
		}
		time.Sleep(2 * time.Minute)
		s.add("a", time.Second)
		s.add("a", time.Millisecond)
		if took := lasts(); took != 20*time.Second {
			t.Errorf("after a second's wait it lasts for %v", took)
		}
	})
}
