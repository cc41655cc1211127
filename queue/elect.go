package queue

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/pace"
)

// duty is what one process at a time does for all. Two at a time would do no harm, but the same work twice: what they do passes over what
// others have locked.
type duty struct {
	name  string
	every time.Duration
	doing string // in words
	do    func(ctx context.Context) error
}

const (
	pruneEvery   = 10 * time.Minute
	pruneStep    = 1000        // rows that one statement deletes
	electAgain   = time.Minute // after an error that goes on
	mostFailures = 3           // of a duty in a row: then another process is to be elected
)

// duties are those for which a worker campaigns.
func (w *worker) duties() []duty {
	var all []duty
	if w.o.Promote >= 0 {
		all = append(all, duty{"promote", w.o.Promote, "promoting jobs whose time has come", func(ctx context.Context) error {
			_, err := w.q.Promote(ctx)
			return err
		}})
	}
	if w.o.Rescue >= 0 {
		all = append(all, duty{"rescue", w.o.Rescue, "rescuing the jobs of those who are gone", func(ctx context.Context) error {
			_, _, err := w.q.rescue(ctx, w.o.Backoff)
			return errors.Join(err, w.forget(ctx))
		}})
	}
	if w.q.o.History > 0 {
		all = append(all, duty{"history", pruneEvery, "deleting old history", func(ctx context.Context) error {
			_, err := w.q.PruneHistory(ctx)
			return err
		}})
	}
	if f := w.q.o.Observer.Stats; f != nil {
		all = append(all, duty{"stats", w.o.Stats, "counting jobs", func(ctx context.Context) error {
			s, err := w.q.Stats(ctx)
			if err == nil {
				f(s)
			}
			return err
		}})
	}
	return all
}

// care looks after the queues until ctx ends, if this worker is elected for it.
func (w *worker) care(ctx context.Context) {
	var all sync.WaitGroup
	for _, d := range w.duties() {
		all.Go(func() { w.campaign(ctx, d) })
	}
	all.Wait()
}

// campaign has the duty done while this worker is elected. If there can be no election it is done
// all the same.
func (w *worker) campaign(ctx context.Context, d duty) {
	for ctx.Err() == nil {
		err := w.elected(ctx, d)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, dblock.ErrClosed) { // another duty has given up the election
			_ = pace.Sleep(ctx, pace.Jitter(time.Second))
			continue
		}
		until, cancel := context.WithCancel(ctx)
		if !errors.Is(err, dblock.ErrUnsupported) { // which stays so
			w.q.trouble("electing who looks after the queues", err)
			until, cancel = context.WithTimeout(ctx, electAgain)
		}
		w.attend(until, d, func() {}) // without elections there is no other process to do it
		cancel()
	}
}

func (w *worker) elected(ctx context.Context, d duty) error {
	locker, err := w.q.election.locker(ctx, w.q)
	if err != nil {
		return err
	}
	e, err := dblock.NewElector(locker, "dblock/queue/"+d.name, dblock.ElectorOptions{Failed: func(err error) {
		if ctx.Err() == nil {
			w.q.trouble("electing who looks after the queues", err)
		}
	}})
	if err != nil {
		return err
	}
	return e.Run(ctx, func(ctx context.Context, _ dblock.Fence) error {
		if f := w.q.o.Observer.Elected; f != nil {
			f(d.name, true)
			defer f(d.name, false)
		}
		w.attend(ctx, d, func() {
			_ = e.Resign(ctx)
			if w.q.engine.Exhausted() { // the lease can't be released
				w.q.election.giveUp(w.q)
			}
		})
		return nil
	})
}

// attend does the duty at once and then every d.every. It calls giveUp after mostFailures failures in a row, and after fewer if they have
// taken as long as it takes to replace a process that is gone: slow failures are no better.
func (w *worker) attend(ctx context.Context, d duty, giveUp func()) {
	var first time.Time // when the first failure in a row began
	for failures := 0; ; {
		began := time.Now()
		err := d.do(ctx)
		w.note(ctx, d.doing, err)
		switch {
		case err == nil:
			failures = 0
		case failures == 0:
			failures, first = 1, began
		default:
			failures++
		}
		if failures == mostFailures || failures > 0 && time.Since(first) >= 2*w.q.member.TTL()+w.q.o.Timeout {
			giveUp()
			failures = 0
		}
		if pace.Sleep(ctx, pace.Jitter(d.every)) != nil {
			return
		}
	}
}

// forget deletes, now and then, old requests to cancel jobs that have ended.
func (w *worker) forget(ctx context.Context) error {
	w.mu.Lock()
	due := time.Since(w.forgot) > pruneEvery
	if due {
		w.forgot = time.Now()
	}
	w.mu.Unlock()
	if !due {
		return nil
	}
	return w.q.within(ctx, w.q.engine.PruneCancels)
}

func (w *worker) note(ctx context.Context, doing string, err error) {
	if err != nil && ctx.Err() == nil {
		w.q.trouble(doing, err)
	}
}

// election is what all campaigns of a Queue share: the leases, which are made when they are first wanted.
type election struct {
	mu     sync.Mutex
	leases dblock.Locker
}

func (e *election) locker(ctx context.Context, q *Queue) (dblock.Locker, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.leases != nil {
		return e.leases, nil
	}
	ctx, cancel := context.WithTimeout(ctx, q.o.Timeout)
	defer cancel()
	l, err := q.engine.Leases(ctx, q.member.TTL(), q.o.Label)
	if err == nil {
		e.leases = l
	}
	return l, err
}

// giveUp has the member of the leases leave, which has a connection of its own: it frees the leases of all campaigns at once.
func (e *election) giveUp(q *Queue) {
	e.mu.Lock()
	leases := e.leases
	e.leases = nil
	e.mu.Unlock()
	if leases == nil {
		return
	}
	q.records.Go(func() {
		ctx, cancel := context.WithTimeout(q.recorded, time.Second)
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
	if err := q.enter(); err != nil {
		return 0, err
	}
	defer q.calls.Done()
	if q.o.History == 0 {
		return 0, nil
	}
	for range mostSteps {
		full := false
		err := q.inSteps(ctx, "deleting old history", pruneStep, func(ctx context.Context, most int) error {
			n, err := q.engine.PruneHistory(ctx, q.o.History, most)
			pruned, full = pruned+n, n == most
			return err
		})
		if err != nil || !full {
			return pruned, err
		}
	}
	return pruned, nil
}
