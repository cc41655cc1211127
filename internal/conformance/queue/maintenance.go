package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/queue"
)

// elections notes which processes are elected to promote jobs.
type elections struct {
	mu      sync.Mutex
	now     map[int]bool
	most    atomic.Int64
	elected chan int
}

func newElections() *elections {
	return &elections{now: make(map[int]bool), elected: make(chan int, 100)}
}

// of is the observer of one process.
func (s *elections) of(process int) queue.Observer {
	return queue.Observer{Elected: func(task string, is bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case task != "promote":
		case is:
			s.now[process] = true
			s.most.Store(max(s.most.Load(), int64(len(s.now))))
			s.elected <- process
		default:
			delete(s.now, process)
		}
	}}
}

var promotesOften = queue.WorkerOptions{Promote: 10 * time.Millisecond}

// soonDue is a job that has to be promoted.
var soonDue = queue.Task{Kind: "note", Args: 1, Delay: time.Millisecond}

// One process at a time is elected. When its worker ends another one is, at once.
func (mainTests) OneAtATimeLooksAfterQueues(t *testing.T, d *env) {
	s := newElections()
	stops := make([]func() error, 3)
	for i := range stops {
		q := d.open(t, queue.Options{Observer: s.of(i)})
		handle(t, q, "note", nop)
		stops[i] = work(t, q, promotesOften)
	}
	for range stops {
		first := suite.Wait(t, s.elected, "election")
		enqueue(t, d.open(t, queue.Options{}), soonDue)
		d.empty(t)
		assert.NoError(t, stops[first]())
	}
	assert.EqualValues(t, 1, s.most.Load(), "elected at once")
}

// The server refuses what one process promotes. Another process is elected, and the scheduled jobs
// run.
func (mainTests) AProcessThatFailsIsReplaced(t *testing.T, d *env) {
	byService := d.sql("session_user LIKE 'service%'", "USER() LIKE 'svc%'")
	d.Trigger(t, "AFTER DELETE", "dblock_queue_scheduled", byService, suite.Raise(d.Kind, "45000", "not by you"))
	s := newElections()
	for i, of := range []*env{d.as(d.ServiceUser(t)), d} {
		q := of.open(t, queue.Options{Observer: s.of(i)})
		handle(t, q, "note", nop)
		work(t, q, promotesOften)
		if i == 0 {
			suite.Wait(t, s.elected, "election of the process that fails")
		}
	}
	enqueue(t, d.open(t, queue.Options{}), soonDue)
	for suite.Wait(t, s.elected, "election of another process") != 1 {
	}
	d.empty(t)
}

// Each statement of the elected process fails, but only after Options.Timeout: on Postgres a
// trigger sleeps, elsewhere handlers have all connections of the pool. Another process is elected,
// and the scheduled jobs run.
func (mainTests) AProcessThatFailsSlowlyGoes(t *testing.T, d *env) {
	s, slow := newElections(), d
	observer := s.of(0)
	observer.Trouble = func(doing string, err error) { t.Logf("%s: %v", doing, err) }
	if d.Postgres() {
		d.Trigger(t, "AFTER DELETE", "dblock_queue_scheduled", "session_user LIKE 'service%'", "PERFORM pg_sleep(60)")
		slow = d.as(d.ServiceUser(t))
	}
	q := slow.open(t, queue.Options{TTL: time.Second, Timeout: 2 * time.Second, Observer: observer})
	held := newHolder(t)
	handleTx(t, d, q, "hold", func(ctx context.Context, _ HandlerTx, job queue.Job[int]) error {
		return held.handle(ctx, job)
	}, queue.Timeout(-1))
	often := promotesOften
	often.Concurrency = 100
	stop := work(t, q, often)
	suite.Wait(t, s.elected, "election of the process that fails")
	other := d.open(t, queue.Options{TTL: time.Second, Observer: s.of(1)})
	if !d.Postgres() { // more than the pool has connections
		enqueueMany(t, other, slices.Repeat([]queue.Task{{Kind: "hold", Args: 1}}, 40))
	}
	handle(t, other, "note", nop)
	often.Queue = "other"
	work(t, other, often)
	enqueue(t, other, queue.Task{Kind: "note", Queue: "other", Args: 1, Delay: time.Millisecond})
	for suite.Wait(t, s.elected, "election of another process") != 1 {
	}
	d.Until(t, "SELECT count(*) FROM dblock_queue_job WHERE kind = 'note'", 0)
	close(held.end)
	assert.NoError(t, stop())
}

// The lease of the elected process is deleted: two are elected, and that is noticed.
func (mainTests) ControlTwoLookAfterQueues(t *testing.T, d *env) {
	s := newElections()
	work(t, d.open(t, queue.Options{Observer: s.of(0)}), promotesOften)
	work(t, d.open(t, queue.Options{Observer: s.of(1)}), promotesOften)
	suite.Until(t, "two are elected at once", func() bool {
		d.exec(t, "DELETE FROM dblock_lease") // the first one may notice before the other is elected
		return s.most.Load() == 2
	})
}

// What has ended is kept for as long as configured, with the reason why a job was cancelled or
// discarded. A job has its last end. By default none is kept.
func (mainTests) HistoryIsKept(t *testing.T, d *env) {
	q := d.open(t, queue.Options{History: 2})
	odd := errors.New("it's \\ 100 % \"gone\" – " + strings.Repeat("é", 600))
	for kind, err := range map[string]error{
		"does": nil, "drops": queue.Cancel(odd), "fails": odd,
		"discards": fmt.Errorf("order 7: %w", queue.Discard(odd)),
	} {
		handle(t, q, kind, func(context.Context, queue.Job[int]) error { return err }, retriesAtOnce)
	}
	d.handleEffect(t, q, noMore)
	waiting := enqueue(t, q, repeat(2, queue.Task{Kind: "drops", Queue: "waits"})...)
	cancel(t, q, waiting[0], queue.JobReady)
	require.NoError(t, q.Discard(t.Context(), waiting[1], "no more"))
	require.NoError(t, q.Retry(t.Context(), waiting[1]))
	cancel(t, q, waiting[1], queue.JobReady)
	made := enqueue(t, q, queue.Task{Kind: "does", Args: 7}, queue.Task{Kind: "drops"}, queue.Task{Kind: "discards"},
		queue.Task{Kind: "fails", MaxAttempts: 2}, queue.Task{Kind: "effect"})
	assert.ErrorIs(t, suite.Second(q.Cancel(t.Context(), waiting[1])), queue.ErrNoJob)
	stop := work(t, q, queue.WorkerOptions{})
	d.empty(t)
	assert.NoError(t, stop())
	for _, id := range made[2:4] {
		assert.Equal(t, queue.JobDead, suite.Must(q.Show(t.Context(), id))(t).State)
		cancel(t, q, id, queue.JobDead)
	}
	type end struct {
		state    queue.JobState
		attempts int
		reason   string
	}
	want := map[queue.ID]end{
		waiting[0]: {queue.JobCancelled, 0, queue.ErrCancelled.Error()},
		waiting[1]: {queue.JobCancelled, 0, queue.ErrCancelled.Error()},
		made[0]:    {queue.JobCompleted, 1, ""},
		made[1]:    {queue.JobCancelled, 1, odd.Error()},
		made[2]:    {queue.JobDiscarded, 1, "order 7: " + odd.Error()},
		made[3]:    {queue.JobDiscarded, 2, odd.Error()},
		made[4]:    {queue.JobCompleted, 1, ""},
	}
	endOf := func(r queue.Record) end {
		if slices.Contains(waiting, r.ID) {
			r.Attempts = 0 // history has one attempt of a job that is cancelled while it waits
		}
		return end{r.State, r.Attempts, r.LastError}
	}
	listed, shown := map[queue.ID]end{}, map[queue.ID]end{}
	for _, name := range []string{"default", "waits"} {
		for _, state := range []queue.JobState{queue.JobCompleted, queue.JobCancelled, queue.JobDiscarded} {
			for _, r := range suite.Must(q.List(t.Context(), queue.Filter{Queue: name, State: state}))(t) {
				listed[r.ID] = endOf(r)
			}
		}
	}
	for id := range want {
		r := suite.Must(q.Show(t.Context(), id))(t)
		shown[id] = endOf(r)
		assert.NotZero(t, r.EnqueuedAt)
		assert.False(t, r.At.Before(r.EnqueuedAt), "%+v", r)
		assert.Equal(t, id == made[0], string(r.Payload) == "7", "payload")
	}
	assert.Equal(t, want, listed)
	assert.Equal(t, want, shown)
	d.exec(t, "UPDATE dblock_queue_history SET day = day - INTERVAL '3' DAY WHERE outcome = 1")
	assert.EqualValues(t, 2, suite.Must(q.PruneHistory(t.Context()))(t), "pruned")
	d.Until(t, "SELECT count(*) FROM dblock_queue_history", int64(len(want)-2))
	d.exec(t, "UPDATE dblock_queue_history SET day = day - INTERVAL '3' DAY")
	none := d.process(t, queue.Options{}, queue.WorkerOptions{}, nop)
	assert.Zero(t, suite.Must(none.PruneHistory(t.Context()))(t), "pruned")
	id := enqueue(t, none, queue.Task{Kind: "note"})[0]
	d.empty(t)
	assert.ErrorIs(t, suite.Second(none.Show(t.Context(), id)), queue.ErrNoJob)
}
