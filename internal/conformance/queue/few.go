package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/queue"
)

const fewConnections = 2

// fewWait asserts that few connections wait for locks, while other calls pass.
func (d *env) fewWait(t *testing.T, others func()) {
	t.Helper()
	waits := int64(0)
	for range 4 {
		time.Sleep(120 * time.Millisecond) // what is read more often than every 100 ms, InnoDB does not bring up to date
		waits = max(waits, d.count(t, suite.RowWaits(d.e.Kind)))
		others()
	}
	assert.LessOrEqual(t, waits, int64(fewConnections), "connections that wait for locks")
}

// An open transaction has a group and unique keys locked. Many callers cancel and discard jobs of
// the group, and retry dead jobs with these keys. They wait with two connections at most, and other
// tasks are enqueued and cancelled meanwhile.
func lockedKeysHoldFewConnections(t *testing.T, d *env) {
	const each = 30
	q := d.open(t, queue.Options{Timeout: time.Minute, PollOnly: true})
	made := enqueueMany(t, q, repeat(2*each+1, queue.Task{Kind: "x", Group: "g"}))
	inTx, dead := []queue.Task{{Kind: "x", Group: "g"}}, []queue.ID(nil)
	for n := range each {
		task := queue.Task{Kind: "x", Unique: fmt.Sprint(n)}
		id := enqueue(t, q, task)[0]
		require.NoError(t, q.Discard(suite.Soon(t), id, "no more"))
		dead, inTx = append(dead, id), append(inTx, task)
	}
	tx := d.openTx(t)
	suite.Must(d.e.EnqueueTx(t.Context(), q, tx, inTx...))(t)
	ended := make(chan error, 3*each)
	for n := range each {
		go func() { ended <- suite.Second(q.Cancel(suite.Soon(t), made[2*n+1])) }()
		go func() { ended <- q.Discard(suite.Soon(t), made[2*n+2], "no more") }()
		go func() {
			err := error(dblock.ErrBusy)
			for errors.Is(err, dblock.ErrBusy) && t.Context().Err() == nil {
				err = q.Retry(suite.Soon(t), dead[n])
			}
			ended <- err
		}()
	}
	sessions := int64(0)
	d.fewWait(t, func() {
		sessions = max(sessions, d.sessions(t))
		for _, id := range enqueue(t, q, queue.Task{Kind: "plain"}, queue.Task{Kind: "plain", Group: "other"}) {
			cancel(t, q, id, queue.Ready)
		}
	})
	assert.LessOrEqual(t, sessions, int64(fewConnections+4), "connections, with those of heartbeats and Enqueue, and idle ones")
	assert.Empty(t, ended, "calls did not wait for the transaction: the test shows nothing")
	require.NoError(t, tx.Rollback())
	for range 3 * each {
		assert.NoError(t, wait(t, ended, "call"))
	}
	assert.Zero(t, d.standing(t, made[1:]), "cancelled jobs that are there")
	assert.Equal(t, each, d.standing(t, dead), "dead jobs that were retried")
}

// The commits of several handlers' transactions get no answer, and the transactions stay open on
// the server. Their jobs are looked for with two connections at most, and other tasks are enqueued
// meanwhile.
func lostCommitsHoldFewConnections(t *testing.T, d *env) {
	const jobs = 4
	d.effects(t)
	dialer := new(faultconn.Dialer)
	lost, turn := make(chan struct{}, 100), make(chan struct{}, 1)
	o := queue.Options{Timeout: time.Minute, PollOnly: true}
	o.Observer.Trouble = func(doing string, _ error) {
		if strings.HasPrefix(doing, "committing") {
			lost <- struct{}{}
		}
	}
	q := d.openOn(t, dialer, o)
	var began sync.WaitGroup
	began.Add(jobs)
	handleTx(t, d, q, "effect", func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error {
		if err := tx.Do(ctx, effectOf(job.Info)); err != nil {
			return err
		}
		began.Done()
		began.Wait() // nothing else commits then
		<-turn
		dialer.ArmAt(d.commit(), 1, faultconn.Late)
		return nil
	})
	made := enqueue(t, q, repeat(jobs, queue.Task{Kind: "effect"})...)
	work(t, q, queue.WorkerOptions{Concurrency: jobs, Promote: -1, Rescue: -1})
	for range jobs {
		turn <- struct{}{}
		wait(t, lost, "commit that gets no answer")
	}
	d.fewWait(t, func() { enqueue(t, q, queue.Task{Kind: "plain", Queue: "other"}) })
	assert.Equal(t, jobs, d.standing(t, made), "jobs whose commits are under way")
	dialer.Release()
	suite.Until(t, "the jobs have ended", func() bool { return d.standing(t, made) == 0 })
	d.effective(t, made...)
}
