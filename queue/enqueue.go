package queue

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/batch"
	"github.com/dblock-go/dblock/internal/pace"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

const (
	// MaxTasks is how many tasks EnqueueMany and EnqueueTx take at once.
	MaxTasks = 10_000

	// MaxTasksBytes is how many bytes their encoded payloads have together. A statement of Postgres
	// takes 1 GiB at most.
	MaxTasksBytes = 256 << 20

	// What is merged must fit into one statement, whatever others bring.
	maxMerged      = 1024     // calls
	maxMergedBytes = 16 << 10 // of payload in one of them

	insertTries = 10 // after conflicts
	batchTries  = 3  // of a statement that may be divided then
)

// Enqueue enqueues a task. Calls that come while another one is under way share a statement. If
// ctx ends while a statement is under way, the call lasts about a second longer at most.
//
// Errors: dblock.ErrInvalid, ErrOverloaded, ErrBusy, ErrConflict, ErrUnavailable, ErrSchema and
// ErrClosed, after which nothing is enqueued. The server's error if a trigger or a constraint of
// yours refuses the task. ErrOutcomeUnknown if no reply came and the job was not found either: it
// is enqueued, or was and is done, or is not. A *DuplicateError if another job has Task.Unique: the
// ID is that one's then.
func (q *Queue) Enqueue(ctx context.Context, t Task) (ID, error) {
	made, err := q.EnqueueMany(ctx, []Task{t})
	if len(made) == 0 {
		return ID{}, err
	}
	return made[0], err
}

// EnqueueMany is Enqueue for up to MaxTasks tasks of MaxTasksBytes: all or none, but for
// duplicates. The IDs are in the order of the tasks; with ErrOutcomeUnknown, too, and with a
// *DuplicateError, which says that all others are enqueued.
func (q *Queue) EnqueueMany(ctx context.Context, tasks []Task) ([]ID, error) {
	if err := q.begin(); err != nil {
		return nil, err
	}
	defer q.calls.Done()
	return q.enqueuer.enqueue(ctx, tasks)
}

// enqueuer enqueues tasks: those of many calls in one statement.
type enqueuer struct {
	db      *statements
	o       *Options
	ids     *ids
	notices *notices
	plain   *batch.Queue[keyedCall, []driver.Duplicate] // calls without keys
	keyed   *batch.Queue[keyedCall, []driver.Duplicate]
	large   *batch.Queue[keyedCall, []driver.Duplicate] // calls without keys that share no statement
	apart   *batch.Queue[keyedCall, []driver.Duplicate] // calls without keys of a queue that is stuck
	stuck   stuckQueues
}

func newEnqueuer(q *Queue) *enqueuer {
	e := &enqueuer{db: q.db, o: &q.o, ids: &q.ids, notices: q.notices}
	e.makeQueues()
	return e
}

func (e *enqueuer) enqueue(ctx context.Context, tasks []Task) ([]ID, error) {
	jobs, made, err := e.prepare(tasks)
	if err != nil || len(jobs) == 0 {
		return nil, err
	}
	c, lanes := newKeyedCall(jobs)
	var dups []driver.Duplicate
	switch {
	case driver.HasKeys(jobs):
		c.locked = c.several && e.keyed.IsBlocked(c.lane) || slices.ContainsFunc(lanes, e.keyed.IsBlocked)
		dups, err = e.keyed.Do(ctx, c)
	default:
		dups, err = e.sendPlain(ctx, c)
	}
	switch {
	case errors.Is(err, dblock.ErrOutcomeUnknown):
		return made, err
	case err != nil:
		return nil, err
	}
	e.notices.announceAll(jobs, dups)
	return made, duplicates(jobs, made, dups)
}

// sendPlain enqueues tasks without keys: apart, if they are for a queue that is stuck.
func (e *enqueuer) sendPlain(ctx context.Context, c keyedCall) (dups []driver.Duplicate, err error) {
	of := e.plain
	if weight(c.jobs) > maxMergedBytes {
		of = e.large
	}
	err = errStuck
	if !e.stuck.has(c) {
		dups, err = of.Do(ctx, c)
	}
	if errors.Is(err, errStuck) {
		return e.apart.Do(ctx, c)
	}
	return dups, err
}

// enqueueIn enqueues in a transaction of the caller's.
func (e *enqueuer) enqueueIn(ctx context.Context, tx *driver.CallerTx, tasks []Task) ([]ID, error) {
	jobs, made, err := e.prepare(tasks)
	if err != nil || len(jobs) == 0 {
		return nil, err
	}
	dups, err := oneOfEach(jobs, func(jobs []driver.Insert) ([]driver.Duplicate, error) {
		return e.db.driver.Enqueue(ctx, &driver.EnqueueRequest{Jobs: jobs, Tx: tx, Notify: !e.o.QuietTx && !e.o.PollOnly})
	})
	if errors.Is(err, driver.ErrForeignTx) {
		return nil, err
	}
	if err != nil {
		return nil, e.db.explain(sqlerr.Unwritten(err), "enqueuing in your transaction, which is to be rolled back")
	}
	return made, duplicates(jobs, made, dups)
}

// close refuses further calls, and waits for those that are under way.
func (e *enqueuer) close(ctx context.Context) error {
	return errors.Join(e.plain.Close(ctx), e.keyed.Close(ctx), e.large.Close(ctx), e.apart.Close(ctx))
}

// prepare checks and encodes all tasks before anything is sent.
func (e *enqueuer) prepare(tasks []Task) ([]driver.Insert, []ID, error) {
	if len(tasks) > MaxTasks {
		return nil, nil, &dblock.InvalidError{Field: "tasks", Reason: fmt.Sprintf("there are %d, more than %d", len(tasks), MaxTasks)}
	}
	jobs, made, bytes := make([]driver.Insert, len(tasks)), make([]ID, len(tasks)), 0
	for i, id := range e.ids.next(len(tasks)) {
		var err error
		if jobs[i], err = tasks[i].insert(id, e.o.Codec); err != nil {
			return nil, nil, err
		}
		if bytes += len(jobs[i].Payload); bytes > MaxTasksBytes {
			return nil, nil, &dblock.InvalidError{Field: "tasks", Reason: fmt.Sprintf("the first %d of %d have %d bytes encoded, more than %d: "+
				"enqueue them in several calls", i+1, len(tasks), bytes, MaxTasksBytes)}
		}
		made[i] = ID(id)
	}
	return jobs, made, nil
}

func weight(jobs []driver.Insert) (n int) {
	for _, j := range jobs {
		n += len(j.Payload) + 200 // and what is beside it
	}
	return n
}

// insert enqueues jobs, within Options.Timeout. wait is how long it waits for the row of a key that
// another transaction has locked; 0: as long as that. Unless wait is 0, jobs count as locked, too,
// after tries that all met conflicts.
func (e *enqueuer) insert(ctx context.Context, jobs []driver.Insert, wait time.Duration, tries int) ([]driver.Duplicate, error) {
	return oneOfEach(jobs, func(jobs []driver.Insert) ([]driver.Duplicate, error) {
		return e.insertDistinct(ctx, jobs, wait, tries)
	})
}

// insertDistinct is insert for jobs of which no two have the same unique key.
func (e *enqueuer) insertDistinct(
	ctx context.Context, jobs []driver.Insert, wait time.Duration, tries int,
) ([]driver.Duplicate, error) {
	ctx, cancel := context.WithTimeout(ctx, e.o.Timeout)
	defer cancel()
	for n := 1; ; n++ {
		dups, err := e.db.driver.Enqueue(ctx, &driver.EnqueueRequest{Jobs: jobs, Wait: wait})
		if err == nil {
			return dups, nil
		}
		is := e.db.classify(err)
		if wait > 0 && (e.db.driver.IsLocked(err) || is == sqlerr.Retryable && n >= tries) {
			return nil, &keyLockedError{err, is == sqlerr.Retryable}
		}
		if is == sqlerr.Retryable && n < insertTries && pace.Sleep(ctx, rand.N(time.Duration(n)*10*time.Millisecond)) == nil {
			continue
		}
		if is == sqlerr.Unresolved {
			if dups, stand := e.checkDuplicates(ctx, jobs); stand {
				return dups, nil
			}
		}
		if is == sqlerr.BadInput {
			return nil, err // the batcher looks for whose it is
		}
		return nil, e.db.explain(err, "enqueuing")
	}
}

// checkDuplicates reports that all jobs of a statement without an answer are there, or another one
// with the same unique key. None may be, though they were: they are done.
func (e *enqueuer) checkDuplicates(ctx context.Context, jobs []driver.Insert) (dups []driver.Duplicate, stand bool) {
	bound := e.o.Timeout / 2
	if ctx.Err() != nil { // the caller waits no more
		bound = min(bound, time.Second)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bound)
	defer cancel()
	var names []driver.ID
	var unique []driver.Insert
	for _, j := range jobs {
		if j.Unique == "" {
			names = append(names, j.ID)
		} else {
			unique = append(unique, j)
		}
	}
	if len(names) > 0 {
		if n, err := e.db.driver.CountJobs(ctx, names, false); err != nil || n != len(names) {
			return nil, false
		}
	}
	if len(unique) == 0 {
		return nil, true
	}
	holders, err := e.db.driver.Holders(ctx, unique)
	if err != nil {
		return nil, false
	}
	for i, h := range holders {
		switch h {
		case driver.ID{}:
			return nil, false
		case unique[i].ID:
		default:
			dups = append(dups, driver.Duplicate{Job: unique[i].ID, Holder: h})
		}
	}
	return dups, true
}

// uniqueKey is one of a queue.
type uniqueKey struct{ queue, key string }

// oneOfEach inserts the first job of each unique key, and says of the others that the first one has
// it, or of the job that had it before.
func oneOfEach(jobs []driver.Insert, insert func([]driver.Insert) ([]driver.Duplicate, error)) ([]driver.Duplicate, error) {
	first := make(map[uniqueKey]driver.ID)
	var again []driver.Duplicate
	distinct := jobs
	for i, j := range jobs {
		if j.Unique != "" {
			key := uniqueKey{j.Queue, j.Unique}
			if holder, has := first[key]; has {
				if again == nil {
					distinct = append([]driver.Insert(nil), jobs[:i]...)
				}
				again = append(again, driver.Duplicate{Job: j.ID, Holder: holder})
				continue
			}
			first[key] = j.ID
		}
		if again != nil {
			distinct = append(distinct, j)
		}
	}
	dups, err := insert(distinct)
	if err != nil || len(again) == 0 {
		return dups, err
	}
	before := make(map[driver.ID]driver.ID)
	for _, d := range dups {
		before[d.Job] = d.Holder
	}
	for _, d := range again {
		if holder, has := before[d.Holder]; has {
			d.Holder = holder
		}
		dups = append(dups, d)
	}
	return dups, nil
}

// duplicates puts the jobs that have the keys into made, in the place of jobs that were not
// enqueued, and returns their errors. Some may be of other calls.
func duplicates(jobs []driver.Insert, made []ID, dups []driver.Duplicate) error {
	if len(dups) == 0 {
		return nil
	}
	holders := make(map[driver.ID]driver.ID, len(dups))
	for _, d := range dups {
		holders[d.Job] = d.Holder
	}
	var found []Duplicate
	for i := range jobs {
		if holder, is := holders[jobs[i].ID]; is {
			made[i] = ID(holder)
			found = append(found, Duplicate{Task: i, Key: jobs[i].Unique, Job: made[i]})
		}
	}
	if found == nil {
		return nil
	}
	return &DuplicateError{Duplicates: found}
}

// ids makes IDs: the time in milliseconds, 12 bits of what is left of it, and a number that counts
// on from a random one.
type ids struct {
	mu    sync.Mutex
	last  uint64 // milliseconds and their 4,096ths
	count uint64
	began bool
}

// next makes n of them, in order.
func (g *ids) next(n int) []driver.ID {
	made := make([]driver.ID, n)
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.began {
		g.count, g.began = rand.Uint64()&(1<<61-1), true
	}
	now := time.Now()
	g.last = max(g.last, uint64(now.UnixMilli())<<12|uint64(now.Nanosecond()%int(time.Millisecond))<<12/uint64(time.Millisecond))
	for i := range made {
		g.count++
		binary.BigEndian.PutUint64(made[i][:8], g.last>>12<<16|7<<12|g.last&0xfff)
		binary.BigEndian.PutUint64(made[i][8:], 2<<62|g.count&(1<<62-1))
	}
	return made
}
