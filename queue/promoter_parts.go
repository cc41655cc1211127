package queue

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/ctxerr"
	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// A job that another transaction keeps from being ready is locked. The server does not say which of
// several jobs is, and MySQL waits for a second each time. So the jobs of each queue are promoted
// in a statement of their own then, a few statements at once. A queue that has a locked job is
// stuck: the jobs of others are promoted without its jobs. A goroutine promotes the jobs of stuck
// queues, until none of them is locked any more.

// promoteInParts promotes jobs without a group, of queues that are not stuck. asOne: in one
// statement first.
func (p *promoter) promoteInParts(
	ctx context.Context, due *driver.DueRequest, asOne bool, r *refusal,
) (promoted int, more bool, err error) {
	jobs, err := p.dueJobs(ctx, due)
	if err != nil {
		return 0, false, err
	}
	more = len(jobs) == due.Max
	if asOne {
		promoted, err = p.sendFound(ctx, jobs)
		if !p.db.mayBeOfOne(err) {
			return promoted, more, err
		}
		err = nil
	}
	var mu sync.Mutex
	var failed, isLocked error
	ofEachQueue(jobs, func(j driver.DueJob) string { return j.Queue }, rowWaitTime, func(queue string, jobs []driver.DueJob) {
		var refused refusal
		n, locked, err := p.promoteFound(ctx, jobs, &refused)
		mu.Lock()
		defer mu.Unlock()
		promoted += n
		r.err, failed = cmp.Or(r.err, refused.err), cmp.Or(failed, err)
		if locked != nil {
			isLocked = locked
			p.addStuck(queue)
		}
	})
	if promoted == 0 {
		r.locked = cmp.Or(r.locked, isLocked)
	}
	return promoted, more, failed
}

// dueJobs looks for jobs. It locks none.
func (p *promoter) dueJobs(ctx context.Context, due *driver.DueRequest) (jobs []driver.DueJob, err error) {
	const doing = "looking for due jobs"
	err = p.db.patiently(ctx, doing, func(ctx context.Context) (err error) {
		jobs, err = p.db.driver.Maintenance().DueJobs(ctx, due)
		return err
	})
	if err != nil {
		return nil, p.db.explain(sqlerr.Unwritten(err), doing)
	}
	return jobs, nil
}

// sendFound promotes jobs in one statement. It does not repeat that after a conflict: the queue is
// stuck then, and its jobs are tried again.
func (p *promoter) sendFound(ctx context.Context, jobs []driver.DueJob) (promoted int, err error) {
	if len(jobs) == 0 {
		return 0, nil
	}
	r := driver.PromoteRequest{Max: len(jobs)}
	for _, j := range jobs {
		r.Jobs = append(r.Jobs, j.DueCursor)
	}
	err = p.db.within(ctx, func(ctx context.Context) (err error) {
		promoted, err = p.send(ctx, &r)
		return err
	})
	if err != nil {
		return 0, p.db.explain(err, "promoting")
	}
	return promoted, nil
}

// promoteFound promotes jobs of one queue, in parts if the server refuses some. One that it refuses
// alone is put off, so that it stops no others. A part that has a locked job ends it: locked is the
// error then.
func (p *promoter) promoteFound(ctx context.Context, jobs []driver.DueJob, r *refusal) (promoted int, locked, err error) {
	err = inParts(p.db, jobs, func(jobs []driver.DueJob) error {
		if locked != nil {
			return nil
		}
		n, err := p.sendFound(ctx, jobs)
		promoted += n
		if p.db.mayBeOfOne(err) && (p.db.driver.IsLocked(err) || p.db.classify(err) == sqlerr.Retryable) {
			locked, err = err, nil
		}
		return err
	}, func(j driver.DueJob, why error) error {
		r.add(j.Job, why)
		err := p.db.again(ctx, "putting off a job that the server refuses", func(ctx context.Context) error {
			return p.db.driver.Maintenance().Postpone(ctx, j.DueCursor, pace.Jitter(refusedFor))
		})
		if p.db.mayBeOfOne(err) { // the server refuses that, too
			return nil
		}
		return err
	})
	return promoted, locked, err
}

// stuckJobs are jobs of a stuck queue. Only the goroutine that promotes them uses it.
type stuckJobs struct {
	suspects map[driver.ID]bool // jobs of statements that found one of theirs locked
	most     int                // of them in the next statement
}

func (p *promoter) addStuck(queue string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stuck[queue] == nil {
		p.stuck[queue] = &stuckJobs{suspects: make(map[driver.ID]bool), most: promoteStep}
	}
}

// tryStuck returns the queues that are stuck, and promotes their jobs beside what the caller does.
// r gets what was refused of the last ones.
func (p *promoter) tryStuck(ctx context.Context, r *refusal) (stuck []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r.err = cmp.Or(r.err, p.tried.err)
	if p.tried.promoted == 0 {
		r.locked = cmp.Or(r.locked, p.tried.locked)
	}
	p.tried.err, p.tried.locked = nil, nil
	if p.stuck == nil {
		p.stuck = make(map[string]*stuckJobs)
	}
	stuck = slices.Collect(maps.Keys(p.stuck))
	if len(stuck) == 0 || p.trying != nil {
		return stuck
	}
	p.trying = make(chan struct{})
	p.calls.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*rowWaitTime)
		defer cancel()
		defer context.AfterFunc(p.ending, cancel)()
		tried := p.tryEach(ctx)
		p.mu.Lock()
		defer p.mu.Unlock()
		close(p.trying)
		tried.promoted += p.tried.promoted
		p.trying, p.tried = nil, tried
	})
	return stuck
}

// tryNow has jobs of stuck queues tried, and waits for the end of that, while ctx lives. If tries
// have ended since the last takeTried, it returns what became of them.
func (p *promoter) tryNow(ctx context.Context) (tried stuckTry, err error) {
	if tried := p.takeTried(); !tried.isEmpty() {
		return tried, nil
	}
	p.tryStuck(ctx, new(refusal))
	p.mu.Lock()
	trying := p.trying
	p.mu.Unlock()
	if trying == nil {
		return p.takeTried(), nil
	}
	select {
	case <-trying:
		return p.takeTried(), nil
	case <-ctx.Done():
		return stuckTry{}, ctxerr.Of(ctx)
	}
}

func (p *promoter) hasStuck() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.stuck) > 0
}

func (p *promoter) takeTried() (tried stuckTry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	tried, p.tried = p.tried, stuckTry{}
	return tried
}

// stuckTry is what became of jobs of stuck queues. promoted counts those of several tries. locked
// is the error of a job that stayed locked. err is that of the first job that was refused.
type stuckTry struct {
	promoted    int
	locked, err error
}

func (t stuckTry) isEmpty() bool { return t.promoted == 0 && t.locked == nil && t.err == nil }

// roundPause is how long tryEach rests if it promoted no job of any stuck queue: a statement that
// finds a job locked may fail at once.
const roundPause = 500 * time.Millisecond

// tryEach promotes jobs of stuck queues for a while: of each one until it finds a job locked.
func (p *promoter) tryEach(ctx context.Context) (tried stuckTry) {
	var refused refusal
	var found error
	locks := make(map[string]error) // by queue
	began := time.Now()
	inTime := func() bool { return found == nil && time.Since(began) < rowWaitTime }
	for inTime() {
		p.mu.Lock()
		queues := slices.Collect(maps.Keys(p.stuck))
		p.mu.Unlock()
		if len(queues) == 0 {
			break
		}
		rand.Shuffle(len(queues), func(i, j int) { queues[i], queues[j] = queues[j], queues[i] })
		before := tried.promoted
		for _, queue := range queues {
			for more := true; more && inTime(); {
				p.mu.Lock()
				jobs := p.stuck[queue]
				p.mu.Unlock()
				n, free, locked, err := p.tryQueue(ctx, queue, jobs, &refused)
				tried.promoted += n
				if found = err; locked != nil {
					locks[queue] = locked
				}
				if free {
					delete(locks, queue)
					p.mu.Lock()
					delete(p.stuck, queue)
					p.mu.Unlock()
				}
				if n > 0 {
					p.announce()
				}
				more = n > 0 && !free
			}
		}
		if tried.promoted == before && pace.Sleep(ctx, pace.Jitter(roundPause)) != nil {
			break
		}
	}
	tried.err = cmp.Or(refused.err, found)
	for _, locked := range locks {
		tried.locked = locked
	}
	return tried
}

// tryQueue promotes some jobs of a stuck queue. free reports that none is locked any more.
func (p *promoter) tryQueue(
	ctx context.Context, queue string, s *stuckJobs, r *refusal,
) (promoted int, free bool, locked, err error) {
	jobs, err := p.dueJobs(ctx, &driver.DueRequest{Since: everDue, Queues: []string{queue}, OfThese: true, Max: promoteStep})
	if err != nil {
		return 0, false, nil, err
	}
	part, known := s.next(jobs)
	promoted, locked, err = p.promoteFound(ctx, part, r)
	switch {
	case known && locked != nil: // one of these is, and the others may be free
		clear(s.suspects)
		s.most = (len(part) + 1) / 2
	case known:
		s.most = min(2*s.most, promoteStep)
	}
	if locked != nil {
		s.add(part)
	}
	return promoted, locked == nil && err == nil && len(part) == len(jobs) && len(jobs) < promoteStep, locked, err
}

// next returns the jobs that are no suspects. If all are, it returns some of them: known is true.
func (s *stuckJobs) next(jobs []driver.DueJob) (part []driver.DueJob, known bool) {
	var others, suspects []driver.DueJob
	for _, j := range jobs {
		if s.suspects[j.Job] {
			suspects = append(suspects, j)
		} else {
			others = append(others, j)
		}
	}
	if len(others) > 0 {
		return others, false
	}
	clear(s.suspects)
	s.add(suspects)
	rand.Shuffle(len(suspects), func(i, j int) { suspects[i], suspects[j] = suspects[j], suspects[i] })
	return suspects[:min(s.most, (len(suspects)+1)/2)], true
}

func (s *stuckJobs) add(jobs []driver.DueJob) {
	for _, j := range jobs {
		s.suspects[j.Job] = true
	}
}
