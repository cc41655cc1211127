package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// dueGroups is a driver of which groups have due jobs, and some of them are locked.
type dueGroups struct {
	lockedGroup
	due, locked []driver.Group
	waited      time.Duration // for those that are locked
	recent      int           // promotions of jobs without a group
}

func (*dueGroups) Exhausted() bool { return false }

func (*dueGroups) RowWaits() int { return 0 }

func (e *dueGroups) Maintenance() driver.Maintenance { return promotions{nil, e} }

// promotions is the maintenance of dueGroups.
type promotions struct {
	driver.Maintenance
	e *dueGroups
}

func (m promotions) DueGroups(context.Context, driver.DueCursor) ([]driver.Group, driver.DueCursor, error) {
	return slices.Clone(m.e.due), driver.DueCursor{}, nil
}

func (m promotions) Promote(_ context.Context, r *driver.PromoteRequest) (int, error) {
	e := m.e
	if len(r.Groups) == 0 {
		if r.Since != everDue {
			e.recent++
		}
		return 0, nil
	}
	if slices.ContainsFunc(r.Groups, func(g driver.Group) bool { return slices.Contains(e.locked, g) }) {
		e.waited += r.Wait
		time.Sleep(r.Wait)
		return 0, errLocked
	}
	e.due = slices.DeleteFunc(e.due, func(g driver.Group) bool { return slices.Contains(r.Groups, g) })
	return len(r.Groups), nil
}

// TestLockedGroupsDelayNoOthers: beside a hundred locked groups a promotion waits for little in
// all, and goes on with other groups and with jobs without a group meanwhile. When the groups are
// free, it finds them.
func TestLockedGroupsDelayNoOthers(t *testing.T) {
	t.Parallel()
	e := &dueGroups{}
	for n := range 100 {
		e.locked = append(e.locked, driver.Group{Queue: "q", Key: fmt.Sprint("locked ", n)})
	}
	p := &promoter{db: newStatements(e, time.Minute), ttl: time.Minute}
	for round := range 3 {
		others := []driver.Group{{Queue: "q", Key: fmt.Sprint("a ", round)}, {Queue: "q", Key: fmt.Sprint("z ", round)}}
		e.due = append(slices.Insert(slices.Clone(e.locked), 50, others[0]), others[1])
		e.waited, e.recent = 0, 0
		n, err := p.promoteGroups(t.Context(), new(refusal))
		if err != nil || n != len(others) {
			t.Errorf("round %d: %d jobs are promoted, %v", round, n, err)
		}
		most := suspectsTime + groupWait
		if round == 0 {
			most = 1500 * time.Millisecond // it learns which groups are locked
		}
		if e.waited > most || round == 0 && e.recent == 0 {
			t.Errorf("round %d: waited for %v, and promoted jobs without a group %d times", round, e.waited, e.recent)
		}
	}
	e.locked = nil
	if n, err := p.promoteGroups(t.Context(), new(refusal)); err != nil || n != 100 || len(e.due) > 0 {
		t.Errorf("%d groups that are free are promoted, %v; %d are left", n, err, len(e.due))
	}
}

// backlog is a driver of which one queue has a backlog of jobs without a group.
type backlog struct {
	driver.Driver
	rows *backlogRows
}

type backlogRows struct {
	driver.Maintenance
	left   int
	others int // jobs of another queue, whose time came last
	at     int // how many of the backlog were left when the others were promoted
}

func (d backlog) Maintenance() driver.Maintenance { return d.rows }
func (backlog) Exhausted() bool                   { return false }

func (r *backlogRows) Promote(_ context.Context, p *driver.PromoteRequest) (int, error) {
	switch {
	case p.Urgent, p.Since != everDue && p.OfEach == 0:
		return 0, nil
	case p.OfEach > 0 && r.others > 0:
		r.at = r.left
		n := r.others
		r.others = 0
		return n, nil
	}
	n := min(r.left, p.Max)
	r.left -= n
	return n, nil
}

// TestABacklogStopsNoOtherQueue: jobs of another queue are promoted after its first step.
func TestABacklogStopsNoOtherQueue(t *testing.T) {
	t.Parallel()
	d := backlog{rows: &backlogRows{left: 50_500, others: 3}}
	p := &promoter{db: newStatements(d, time.Minute), ttl: time.Minute}
	n, err := p.promotePlain(t.Context(), new(refusal))
	if err != nil || n != 50_503 || d.rows.at != 49_500 {
		t.Errorf("promoted %d, with %v; when the others were, %d were left", n, err, d.rows.at)
	}
}

// stuckQueue is a driver of due jobs, those of some queues are locked.
type stuckQueue struct {
	lockedGroup
	rows *stuckRows
}

func (d *stuckQueue) Maintenance() driver.Maintenance { return d.rows }

type stuckRows struct {
	driver.Maintenance
	mu     sync.Mutex
	due    []driver.DueJob
	locked map[string]bool // queues
	one    driver.ID       // that is locked
	wait   time.Duration   // of a statement that meets a locked job
	waits  map[bool]int    // statements that met a locked job: of some queues alone, or of others too
}

func (r *stuckRows) add(queue string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for range n {
		r.due = append(r.due, driver.DueJob{DueCursor: driver.DueCursor{Job: driver.ID(member.NewID())}, Queue: queue})
	}
}

func (r *stuckRows) DueJobs(_ context.Context, d *driver.DueRequest) (jobs []driver.DueJob, _ error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, j := range r.due {
		if slices.Contains(d.Queues, j.Queue) == d.OfThese && len(jobs) < d.Max {
			jobs = append(jobs, j)
		}
	}
	return jobs, nil
}

func (r *stuckRows) Promote(_ context.Context, p *driver.PromoteRequest) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	these := make(map[driver.ID]bool)
	for _, j := range p.Jobs {
		these[j.Job] = true
	}
	promotes := func(j driver.DueJob) bool { return p.Jobs == nil || these[j.Job] }
	met, others := false, false
	for _, j := range r.due {
		locked := r.locked[j.Queue] || r.one == j.Job
		met = met || promotes(j) && locked
		others = others || promotes(j) && !locked
	}
	if met {
		r.waits[others]++
		r.mu.Unlock()
		time.Sleep(r.wait)
		r.mu.Lock()
		return 0, errLocked
	}
	before := len(r.due)
	r.due = slices.DeleteFunc(r.due, promotes)
	return before - len(r.due), nil
}

// TestALockedJobDelaysItsQueue, and no other, and for no longer than it is locked.
func TestALockedJobDelaysItsQueue(t *testing.T) {
	t.Parallel()
	r := &stuckRows{locked: map[string]bool{"a": true}, waits: make(map[bool]int)}
	var calls sync.WaitGroup
	p := &promoter{db: newStatements(&stuckQueue{rows: r}, time.Minute), ttl: time.Minute, calls: &calls, ending: context.Background(), announce: func() {}}
	for round := range 20 {
		r.add("a", 5)
		r.add("b", 5)
		n, _, err := p.promoteStep(t.Context(), everDue, new(refusal))
		if err != nil || n != 5 {
			t.Fatalf("round %d: %d jobs are promoted, %v", round, n, err)
		}
	}
	calls.Wait()
	if r.waits[true] > 10 {
		t.Errorf("%d statements for other queues met a locked job", r.waits[true])
	}
	r.locked = nil
	for range 3 {
		if _, _, err := p.promoteStep(t.Context(), everDue, new(refusal)); err != nil {
			t.Fatal(err)
		}
		calls.Wait()
	}
	if len(r.due) != 0 || len(p.stuck) != 0 {
		t.Errorf("when none is locked, %d jobs are left, and %d queues are stuck", len(r.due), len(p.stuck))
	}
}

// promoterOf promotes jobs whose server waits for a second for each that is locked.
func promoterOf(r *stuckRows) (p *promoter, calls *sync.WaitGroup) {
	r.wait, r.waits, calls = time.Second, make(map[bool]int), new(sync.WaitGroup)
	return &promoter{db: newStatements(&stuckQueue{rows: r}, time.Minute), ttl: time.Minute, calls: calls, ending: context.Background(), announce: func() {}}, calls
}

// TestManyStuckQueuesDelayOthersOnce: the jobs of 40 queues are locked.
func TestManyStuckQueuesDelayOthersOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &stuckRows{locked: make(map[string]bool)}
		p, calls := promoterOf(r)
		for n := range 40 {
			queue := fmt.Sprint("locked", n)
			r.locked[queue] = true
			r.add(queue, 5)
		}
		delay := func() time.Duration {
			r.add("b", 5)
			began := time.Now()
			for n := 0; n < 5; {
				promoted, _, err := p.promoteStep(t.Context(), everDue, new(refusal))
				if err != nil {
					t.Fatal(err)
				}
				n += promoted
			}
			return time.Since(began)
		}
		if took := delay(); took > 20*time.Second { // 40 queues take a second each, and four are tried at once
			t.Errorf("the jobs of another queue took %v", took)
		}
		for range 10 { // all are known to be stuck after that
			_, _, _ = p.promoteStep(t.Context(), everDue, new(refusal))
		}
		if took := delay(); took > 0 {
			t.Errorf("when they are known to be stuck, those of another queue took %v", took)
		}
		calls.Wait()
		r.locked = nil
		_, _, _ = p.promoteStep(t.Context(), everDue, new(refusal))
		calls.Wait()
		if len(r.due) != 0 || len(p.stuck) != 0 {
			t.Errorf("when none is locked, %d jobs are left, and %d queues are stuck", len(r.due), len(p.stuck))
		}
	})
}

// TestALockedJobDelaysNoneOfItsQueue for long: of 5,000 jobs the first is locked.
func TestALockedJobDelaysNoneOfItsQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &stuckRows{}
		p, calls := promoterOf(r)
		r.add("a", 5000)
		r.one = r.due[0].Job
		step := func() {
			_, _, _ = p.promoteStep(t.Context(), everDue, new(refusal))
			calls.Wait()
		}
		began := time.Now()
		for len(r.due) > 1 {
			step()
		}
		if took := time.Since(began); took > 20*time.Second { // a second for each halving, and few more
			t.Errorf("the others took %v", took)
		}
		for range 100 { // jobs that come later never wait
			began := time.Now()
			r.add("a", 5)
			for len(r.due) > 1 {
				step()
			}
			if took := time.Since(began); took > 2*rowWaitTime {
				t.Fatalf("jobs that came later took %v", took)
			}
		}
		r.one = driver.ID{}
		step()
		if len(r.due) != 0 || len(p.stuck) != 0 {
			t.Errorf("when it is not locked, %d jobs are left, and %d queues are stuck", len(r.due), len(p.stuck))
		}
	})
}

// TestATryThatHasEndedIsCounted: the jobs of a stuck queue are promoted before Promote looks at
// what became of them.
func TestATryThatHasEndedIsCounted(t *testing.T) {
	t.Parallel()
	r := &stuckRows{}
	p, calls := promoterOf(r)
	r.add("a", 5)
	p.stuck = make(map[string]*stuckJobs)
	p.addStuck("a")
	n, _, err := p.promoteStep(t.Context(), everDue, new(refusal))
	calls.Wait()
	if tried, tryErr := p.tryNow(t.Context()); n+tried.promoted != 5 || err != nil || tryErr != nil || tried.err != nil {
		t.Errorf("%d and %d jobs are promoted, %v, %v, %v", n, tried.promoted, err, tryErr, tried.err)
	}
	if tried, err := p.tryNow(t.Context()); tried.promoted != 0 || err != nil {
		t.Errorf("%d are promoted twice, %v", tried.promoted, err)
	}
}

// TestALockThatEndsIsNoError: a job is locked at first. What becomes of it in the end counts.
func TestALockThatEndsIsNoError(t *testing.T) {
	t.Parallel()
	for _, ends := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			r := &stuckRows{}
			p, calls := promoterOf(r)
			r.add("a", 5)
			r.one = r.due[0].Job
			if ends {
				time.AfterFunc(2500*time.Millisecond, func() {
					r.mu.Lock()
					defer r.mu.Unlock()
					r.one = driver.ID{}
				})
			}
			var refused refusal
			_, _, err := p.promoteStep(t.Context(), everDue, &refused)
			tried, tryErr := p.tryNow(t.Context())
			if err := errors.Join(err, tryErr, refused.err, tried.err); err != nil || refused.any() == nil {
				t.Errorf("%v; at first a job is locked: %v", err, refused.any())
			}
			if ends == (tried.locked != nil) || ends == p.hasStuck() {
				t.Errorf("the lock ends: %v: the error is %v", ends, tried.locked)
			}
			calls.Wait()
		})
	}
}
