package faultmatrix

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/queue"
)

const (
	callLimit  = 500 * time.Millisecond // what a patient caller allows
	closeLimit = 5 * time.Second
)

// worker is one process of the workload.
type worker struct {
	n   int
	c   *client
	log *opLog

	ops   context.Context // locks, orders and new jobs go on until it ends
	stop  context.CancelFunc
	loops sync.WaitGroup

	endJobs context.CancelFunc
	jobs    chan error // what Work returned

	ids       atomic.Int64
	paused    atomic.Int64 // for how long the process stood still
	hangSince atomic.Int64 // when, by active, the call of hangControl began

	calls   sync.Map // *op: under way
	endBeat context.CancelFunc
	beats   sync.WaitGroup
}

// startWorker opens dblock, however long the database is away, and begins.
func startWorker(ctx context.Context, cfg config) (*worker, error) {
	log, err := openLog(cfg.Log, cfg.N)
	if err != nil {
		return nil, err
	}
	w := &worker{n: cfg.N, log: log, jobs: make(chan error, 1)}
	for {
		try, cancel := context.WithTimeout(ctx, 20*time.Second) // a busy machine opens connections slowly
		w.c, err = openClient(try, cfg)
		cancel()
		if err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("worker %d can't begin: %w", cfg.N, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
	w.ops, w.stop = context.WithCancel(context.Background())
	beat, endBeat := context.WithCancel(context.Background())
	w.endBeat = endBeat
	w.beats.Go(func() { w.notePauses(beat) })
	return w, w.begin()
}

func (w *worker) begin() error {
	if err := w.handle(); err != nil {
		return err
	}
	jobs, endJobs := context.WithCancel(context.Background())
	w.endJobs = endJobs
	go func() {
		w.jobs <- w.c.queue.Work(jobs, queue.WorkerOptions{
			Concurrency: 4, Poll: 50 * time.Millisecond, Promote: 50 * time.Millisecond, Rescue: 200 * time.Millisecond,
			Timeout: time.Second, Grace: time.Second, Backoff: func(int, error) time.Duration { return rand.N(50 * time.Millisecond) },
		})
	}()
	for range 4 {
		w.loop(w.useLease)
	}
	w.loop(w.sweep)
	w.loop(w.enterUnasked)
	if w.c.sessions != nil {
		w.loop(w.useSession)
	}
	w.loop(w.order)
	w.loop(w.orderControl)
	w.loop(w.enqueue)
	return nil
}

// loop does something again and again until ops end.
func (w *worker) loop(do func()) {
	w.loops.Go(func() {
		for w.rest(10*time.Millisecond, 70*time.Millisecond) {
			do()
		}
	})
}

// rest waits for a random time; false: ops have ended.
func (w *worker) rest(least, most time.Duration) bool {
	select {
	case <-w.ops.Done():
		return false
	case <-time.After(least + rand.N(most-least)):
		return true
	}
}

func (w *worker) newID() string { return fmt.Sprintf("%d-%d", w.n, w.ids.Add(1)) }

// call makes a call under a deadline and logs what became of it.
func (w *worker) call(o *op, limit time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	o.Limit, o.Begin = limit, uptime()
	w.calls.Store(o, o.Begin)
	err := f(ctx)
	o.End = uptime()
	w.calls.Delete(o)
	if o.Outcome = outcomeOf(err); err != nil {
		o.Err = err.Error()
	}
	w.log.note(*o)
	return err
}

// notePauses logs when the process stood still: it was stopped, or the machine was busy.
func (w *worker) notePauses(ctx context.Context) {
	const tick, late = 20 * time.Millisecond, 100 * time.Millisecond
	for last := uptime(); ctx.Err() == nil; {
		time.Sleep(tick)
		now := uptime()
		if now-last > tick+late {
			w.paused.Add(int64(now - last))
			w.log.note(op{Kind: opPause, Begin: last, End: now})
		}
		last = now
	}
}

// active is the time without that in which the process stood still.
func (w *worker) active() time.Duration { return uptime() - time.Duration(w.paused.Load()) }

// stopOps ends all but the work on jobs. A call that does not return is logged as stuck.
func (w *worker) stopOps() {
	w.stop()
	ended := make(chan struct{})
	go func() { w.loops.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		w.calls.Range(func(key, began any) bool {
			o := key.(*op)
			w.log.note(op{
				Kind: opCall, Control: o.Control, ID: o.ID, Key: o.Key, Limit: o.Limit, Begin: began.(time.Duration),
				End: uptime(), Outcome: stuck,
			})
			return true
		})
	}
}

// end closes everything.
func (w *worker) end() error {
	w.endJobs()
	err := <-w.jobs
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	if left := w.c.close(ctx); outcomeOf(left) == unnamed {
		err = errors.Join(err, left)
	}
	w.endBeat()
	w.beats.Wait()
	return errors.Join(err, w.log.file.Close())
}

// hog takes all connections of the host's pool for a while.
func (w *worker) hog(d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	var all sync.WaitGroup
	for range 3 * poolConns {
		all.Go(func() {
			conn, err := w.c.pool.Conn(ctx)
			if err != nil {
				return
			}
			<-ctx.Done()
			_ = conn.Close()
		})
	}
	all.Wait()
}
