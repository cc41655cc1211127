package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// worker is one call of Work: it has handlers, and the parts that feed them. See the diagrams in
// doc.go.
type worker struct {
	q     *Queue
	o     WorkerOptions
	topic string // of its queue
	state atomicState

	base  context.Context // of all handlers
	abort context.CancelCauseFunc

	buffer   *buffer        // claimed, and not begun
	sync     *syncer        // writes how jobs ended, and claims more
	reader   *payloadReader // reads large payloads
	cancels  *canceller     // learns of jobs that are to be cancelled
	upkeep   *maintainer    // does what one process does for all
	handlers sync.WaitGroup

	postponedAt atomic.Int64 // when a job was left to other processes, in nanoseconds; 0: never
}

// workerState is what a worker does.
type workerState int32

const (
	working  workerState = iota // it claims and begins jobs
	resting                     // its queue is paused, as far as it knows: no job begins
	stopping                    // for good: no job is claimed, or begins
)

// atomicState changes with the mutex of the syncer held.
type atomicState struct{ state atomic.Int32 }

func (s *atomicState) is(state workerState) bool { return workerState(s.state.Load()) == state }

func (s *atomicState) set(state workerState) { s.state.Store(int32(state)) }

func (s *atomicState) change(from, to workerState) { s.state.CompareAndSwap(int32(from), int32(to)) }

// Work runs jobs until ctx ends, or the Queue is closed. Then nothing is claimed any more, jobs
// that were not begun are handed back, and handlers may go on for Grace; after that their contexts
// end. It returns when they have returned and what became of their jobs is recorded. If nothing of
// that was recorded for Options.Timeout it returns, too, and the Queue goes on to record it.
//
// It may be called several times, for other queues or for the same one. The values of ctx are those
// of the handlers' contexts.
//
// Errors: dblock.ErrInvalid and dblock.ErrClosed at once; otherwise nil when all has ended well,
// ErrStillRunning if handlers ignore that their contexts have ended, for 5 s, and ErrNotRecorded if
// the ends of jobs are not recorded yet.
func (q *Queue) Work(ctx context.Context, o WorkerOptions) error {
	o, err := o.withDefaults(q.member.TTL())
	if err != nil {
		return err
	}
	w := &worker{q: q, o: o, topic: driver.Topic(o.Queue), buffer: newBuffer()}
	w.sync = newSyncer(w)
	w.reader = &payloadReader{w: w, piece: firstPiece}
	w.cancels = &canceller{w: w, word: make(chan struct{}, 1)}
	w.upkeep = &maintainer{w: w, q: q}
	w.base, w.abort = context.WithCancelCause(context.WithoutCancel(ctx))
	defer w.abort(ErrStopped)
	q.mu.Lock()
	if q.closed != nil {
		q.mu.Unlock()
		return fmt.Errorf("%w: no job was claimed", dblock.ErrClosed)
	}
	q.notices.join(w)
	q.work.Add(1)
	q.records.Add(1)
	q.workers[w] = struct{}{}
	q.mu.Unlock()
	defer q.work.Done()
	defer q.forget(w)
	defer q.notices.listens()()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(q.ending, cancel)()
	return w.run(ctx)
}

func (q *Queue) forget(w *worker) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.workers, w)
}

// run begins all goroutines, and ends them.
func (w *worker) run(ctx context.Context) error {
	for range w.o.Concurrency {
		w.handlers.Add(1)
		go w.handle()
	}
	var behind, syncs sync.WaitGroup
	for range w.o.Syncs {
		syncs.Go(func() { w.sync.run(w.q.recorded) })
	}
	syncs.Go(func() { w.sync.runApart(w.q.recorded) })
	for range w.q.driver.RowWaits() {
		syncs.Go(func() { w.sync.runWaiting(w.q.recorded) })
	}
	recorded := make(chan struct{})
	go func() {
		defer w.q.records.Done()
		defer close(recorded)
		syncs.Wait()
		w.sync.endIncarnation()
	}()
	go func() {
		<-recorded
		w.handlers.Wait() // some may ignore their contexts
		w.sync.reportDropped()
	}()
	behind.Go(func() { w.upkeep.run(ctx) })
	behind.Go(func() { w.cancels.run(ctx) })
	behind.Go(func() { w.reader.run(ctx) })

	<-ctx.Done()
	w.sync.stop() // before Pause no longer finds it
	w.q.notices.quit(w)
	behind.Wait()
	w.sync.releaseUnbegun(w.buffer.drain()...)
	err := w.await()
	settle := w.q.o.Timeout
	if err != nil { // some never will
		settle = time.Second
	}
	unrecorded := func() int { _, n := w.sync.jobs(); return n }
	why := "as the context of Close has ended"
	if !clock.Progress(recorded, settle, unrecorded) {
		why = fmt.Sprintf("which the database has not taken for %v", settle)
	}
	if n := unrecorded(); n > 0 {
		err = errors.Join(err, fmt.Errorf("%w: those of %d jobs of queue %q, %s", ErrNotRecorded, n, w.o.Queue, why))
	}
	return err
}

// lastGrace is for how long Work waits for handlers that ignore their contexts.
const lastGrace = 5 * time.Second

// await waits for the handlers: for Grace, and, when their contexts have ended, a while longer.
func (w *worker) await() error {
	done := clock.After(w.handlers.Wait)
	for _, grace := range []time.Duration{w.o.Grace, lastGrace} {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-done:
			return nil
		case <-timer.C:
			w.abort(ErrStopped)
		}
	}
	running, _ := w.sync.jobs()
	if running == 0 { // the last one returns just now
		return nil
	}
	return fmt.Errorf("%w: %d of them, of queue %q, ignore that their contexts have ended", ErrStillRunning, running, w.o.Queue)
}

// isFor reports whether a worker is to look if there are jobs of a queue, which is named or given
// by its topic.
func (w *worker) isFor(queue string) bool {
	return queue == w.o.Queue || queue == w.topic || queue == driver.AnyQueue && !w.leavesJobs()
}

// handle runs jobs, one after the other, until there are no more.
func (w *worker) handle() {
	returned := false
	defer func() {
		if !returned { // a handler has ended this goroutine: another one takes its place
			go w.handle()
			return
		}
		w.handlers.Done()
	}()
	for j := w.buffer.next(); j != nil; j = w.buffer.next() {
		if !w.state.is(working) || j.claim.owner.ctx.Err() != nil {
			w.sync.releaseUnbegun(j)
			continue
		}
		h := w.q.handlers.of(j.Kind)
		switch {
		case h == nil:
			w.postpone(j)
		case h.begin != nil, w.begin(j): // a handler with a transaction begins when it has that
			w.do(j, h)
		}
	}
	returned = true
}

// info is what handlers and observers learn of a job.
func (w *worker) info(j *claimedJob) Info {
	return Info{
		ID: ID(j.ID), Queue: w.o.Queue, Kind: j.Kind, Priority: j.Priority, Attempt: int(j.Attempt) + 1, MaxAttempts: int(j.MaxAttempts),
		EnqueuedAt: j.EnqueuedAt, ReadyAt: j.ReadyAt,
	}
}
