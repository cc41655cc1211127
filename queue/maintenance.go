package queue

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// maintenanceTask is what one process at a time does for all. Two at a time would do no harm, but
// the same work twice: each passes over what the other has locked.
type maintenanceTask struct {
	name  string
	every time.Duration
	doing string // in words
	do    func(ctx context.Context) error

	answers func() int64 // that it got from the server so far; nil: that is not counted
}

const (
	pruneEvery  = 10 * time.Minute
	pruneStep   = 1000        // rows that one statement deletes
	goneFor     = time.Hour   // after it has expired the row of a member is deleted
	electAgain  = time.Minute // after an error that goes on
	maxFailures = 3           // of a task in a row: then another process is to be elected

	slowPromotion = time.Second     // of few jobs
	slowFailure   = 3 * time.Second // which is enough for another process to be elected

	// longestPatience is how long all may be refused before another process is to be elected, if
	// this one has promoted a job. Else that begins with refusedFor, and doubles each time.
	longestPatience = time.Minute
)

// errSlow says that a task was done, and took long for what there was to do. This process may be
// starved: of a connection of its pool, for example.
var errSlow = errors.New("it was slow")

// errAllRefused says that the server has refused all that this process has promoted for a while. It
// may not refuse it to the user of another process.
var errAllRefused = errors.New("all was refused")

// maintainer does the maintenance of a worker.
type maintainer struct {
	w      *worker
	q      *Queue
	forgot time.Time // when it last called forget; the rescue task uses it alone
}

// tasks are the tasks for which a worker wants to be elected.
func (m *maintainer) tasks() []maintenanceTask {
	var all []maintenanceTask
	if m.w.o.Promote >= 0 {
		var promoted time.Time // when it last did, or all was refused
		patience := refusedFor // with refusals
		promote := func(ctx context.Context) error {
			began := time.Now()
			n, r, err := m.q.promote(ctx)
			refused := r.any()
			m.refused("promoting a job", refused)
			switch {
			case n > 0: // the server does not refuse this process
				promoted, patience = time.Now(), longestPatience
			case err == nil && refused != nil && time.Since(promoted) > patience:
				promoted, patience = time.Now(), min(2*patience, longestPatience)
				return errAllRefused
			}
			if err == nil && refused == nil && n < promoteStep && time.Since(began) >= slowPromotion {
				return errSlow
			}
			return err
		}
		all = append(all, maintenanceTask{"promote", m.w.o.Promote, "promoting jobs whose time has come", promote, m.q.promoter.answers.Load})
	}
	if m.w.o.Rescue >= 0 {
		all = append(all, maintenanceTask{"rescue", m.w.o.Rescue, "rescuing the jobs of processes that are gone", func(ctx context.Context) error {
			_, _, refused, err := m.q.rescue(ctx, m.w.o.Backoff)
			m.refused("rescuing a job", refused)
			return errors.Join(err, m.deleteMembers(ctx))
		}, nil})
	}
	if m.q.o.History > 0 {
		all = append(all, maintenanceTask{"history", pruneEvery, "deleting old history", func(ctx context.Context) error {
			_, err := m.q.PruneHistory(ctx)
			return err
		}, nil})
	}
	if f := m.q.o.Observer.Stats; f != nil {
		all = append(all, maintenanceTask{"stats", m.w.o.Stats, "counting jobs", func(ctx context.Context) error {
			s, err := m.q.Stats(ctx)
			if err == nil {
				f(s)
			}
			return err
		}, nil})
	}
	return all
}

// refused reports that the server refuses a job. The task was done for the others.
func (m *maintainer) refused(doing string, err error) {
	if err != nil {
		m.q.trouble(doing, err)
	}
}

// run does this worker's tasks while it is elected, until ctx ends. If there can be no
// election, it does them all the same.
func (m *maintainer) run(ctx context.Context) {
	tasks := m.tasks()
	for len(tasks) > 0 && ctx.Err() == nil {
		err := m.lead(ctx, tasks)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, dblock.ErrClosed) { // the election was given up
			_ = pace.Sleep(ctx, pace.Jitter(time.Second))
			continue
		}
		until, cancel := context.WithCancel(ctx)
		if !errors.Is(err, dblock.ErrUnsupported) { // which stays so
			m.q.trouble("electing a worker for maintenance", err)
			until, cancel = context.WithTimeout(ctx, electAgain)
		}
		m.repeat(until, tasks, func() {}) // without elections no other process can take over
		cancel()
	}
}

// leaderKey is the key of the lease for which the workers with these tasks compete. Workers with
// other tasks have a leader of their own: no task is left out, and some are done twice.
func leaderKey(tasks []maintenanceTask) string {
	names := make([]string, len(tasks))
	for i, t := range tasks {
		names[i] = t.name
	}
	return "dblock/queue/" + strings.Join(names, "+")
}

// lead does the tasks whenever this worker is elected, until ctx ends.
func (m *maintainer) lead(ctx context.Context, tasks []maintenanceTask) error {
	locker, err := m.q.election.locker(ctx)
	if err != nil {
		return err
	}
	e, err := dblock.NewElector(locker, leaderKey(tasks), dblock.ElectorOptions{Failed: func(err error) {
		if ctx.Err() == nil {
			m.q.trouble("electing a worker for maintenance", err)
		}
	}})
	if err != nil {
		return err
	}
	return e.Run(ctx, func(ctx context.Context, _ dblock.Fence) error {
		if f := m.q.o.Observer.Elected; f != nil {
			for _, t := range tasks {
				f(t.name, true)
				defer f(t.name, false)
			}
		}
		m.repeat(ctx, tasks, func() {
			_ = e.Resign(ctx)
			if m.q.driver.Exhausted() { // the lease can't be released
				m.q.election.giveUp()
			}
		})
		return nil
	})
}

// repeat does each task at once and then again and again, beside the others, until ctx ends. It
// calls giveUp if one fails again and again.
func (m *maintainer) repeat(ctx context.Context, tasks []maintenanceTask, giveUp func()) {
	var all sync.WaitGroup
	for _, t := range tasks {
		all.Go(func() { m.repeatOne(ctx, t, giveUp) })
	}
	all.Wait()
}

// watch calls giveUp if a task has got no answer for slowFailure, as it waits for a connection of
// an exhausted pool. stop ends the watch.
func (m *maintainer) watch(t maintenanceTask, giveUp func()) (stop func()) {
	if t.answers == nil {
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		ticker := time.NewTicker(slowFailure)
		defer ticker.Stop()
		for last := t.answers(); ; {
			select {
			case <-done:
				return
			case <-ticker.C:
			}
			now := t.answers()
			if now == last && m.q.driver.Exhausted() {
				giveUp()
				return
			}
			last = now
		}
	}()
	return func() { close(done) }
}

// repeatOne calls giveUp after maxFailures failures in a row, after one that took long, and if all
// was refused. A task that was slow has failed, too.
func (m *maintainer) repeatOne(ctx context.Context, t maintenanceTask, giveUp func()) {
	for failures := 0; ; {
		began := time.Now()
		stop := m.watch(t, giveUp)
		err := t.do(ctx)
		stop()
		isRefused := errors.Is(err, errAllRefused)
		if err != nil && !errors.Is(err, errSlow) && !isRefused && ctx.Err() == nil {
			m.q.trouble(t.doing, err)
		}
		failures++
		if err == nil {
			failures = 0
		}
		if failures == maxFailures || isRefused || err != nil && time.Since(began) >= slowFailure {
			giveUp()
			failures = 0
		}
		if pace.Sleep(ctx, pace.Jitter(t.every)) != nil {
			return
		}
	}
}

// deleteMembers deletes, now and then, old requests to cancel jobs that have ended, and the rows of
// processes that are gone. Rescues evict only those that had claims.
func (m *maintainer) deleteMembers(ctx context.Context) error {
	if time.Since(m.forgot) <= pruneEvery {
		return nil
	}
	m.forgot = time.Now()
	return m.q.db.within(ctx, func(ctx context.Context) error {
		_, err := m.q.driver.Maintenance().Prune(ctx, &driver.PruneRequest{Kind: driver.StaleRequests})
		if err == nil {
			gone := driver.PruneRequest{Kind: driver.GoneMembers, Age: goneFor, Max: pruneStep}
			var n int
			if n, err = m.q.driver.Maintenance().Prune(ctx, &gone); n == pruneStep {
				m.forgot = time.Time{} // there may be more
			}
		}
		return err
	})
}

// election is what all workers of a Queue share: the leases, which are made when they are first
// wanted.
type election struct {
	q      *Queue
	mu     sync.Mutex
	leases dblock.Locker
}

func (e *election) locker(ctx context.Context) (dblock.Locker, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.leases != nil {
		return e.leases, nil
	}
	ctx, cancel := context.WithTimeout(ctx, e.q.o.Timeout)
	defer cancel()
	l, err := e.q.driver.Leases(ctx, e.q.member.TTL(), e.q.o.Label)
	if err == nil {
		e.leases = l
	}
	return l, err
}

// giveUp has the member of the leases leave, which has a connection of its own: it frees the leases
// of all workers at once.
func (e *election) giveUp() {
	e.mu.Lock()
	leases := e.leases
	e.leases = nil
	e.mu.Unlock()
	if leases == nil {
		return
	}
	e.q.records.Go(func() {
		ctx, cancel := context.WithTimeout(e.q.recorded, time.Second)
		defer cancel()
		_ = leases.Close(ctx) // the leases are free, or end with their TTL
	})
}

func (e *election) close(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.leases == nil {
		return nil
	}
	return e.leases.Close(ctx)
}

// PruneHistory deletes what is older than Options.History days, and returns how many rows that
// were; nothing, if no history is kept. Workers do so by themselves.
func (q *Queue) PruneHistory(ctx context.Context) (pruned int, err error) {
	if err := q.begin(); err != nil {
		return 0, err
	}
	defer q.calls.Done()
	if q.o.History == 0 {
		return 0, nil
	}
	for {
		full := false
		err := q.db.inSteps(ctx, "deleting old history", pruneStep, func(ctx context.Context, most int) error {
			n, err := q.driver.Maintenance().Prune(ctx, &driver.PruneRequest{Kind: driver.OldHistory, Age: time.Duration(q.o.History) * driver.Day, Max: most})
			pruned, full = pruned+n, n == most
			return err
		})
		if err != nil || !full {
			return pruned, err
		}
	}
}
