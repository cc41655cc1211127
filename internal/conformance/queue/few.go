package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/queue"
)

// An open transaction has a group and unique keys locked. Many callers cancel and discard jobs of
// the group, and retry dead jobs with these keys. They wait with two connections at most, and other
// tasks are enqueued and cancelled meanwhile.
func lockedKeysHoldFewConnections(t *testing.T, d *env) {
	const each, most = 30, 2
	q := d.open(t, queue.Options{Timeout: time.Minute, PollOnly: true})
	tasks := make([]queue.Task, 2*each+1)
	for i := range tasks {
		tasks[i] = queue.Task{Kind: "x", Group: "g"}
	}
	made, err := q.EnqueueMany(suite.Soon(t), tasks)
	if err != nil {
		t.Fatal(err)
	}
	inTx := []queue.Task{{Kind: "x", Group: "g"}}
	var dead []queue.ID
	for n := range each {
		task := queue.Task{Kind: "x", Unique: fmt.Sprint(n)}
		id := enqueue(t, q, task)[0]
		if err := q.Discard(suite.Soon(t), id, "no more"); err != nil {
			t.Fatal(err)
		}
		dead, inTx = append(dead, id), append(inTx, task)
	}
	tx := d.openTx(t)
	if _, err := d.e.EnqueueTx(t.Context(), q, tx, inTx...); err != nil {
		t.Fatal(err)
	}
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
	waits, sessions := int64(0), int64(0)
	for range 8 {
		time.Sleep(120 * time.Millisecond) // what is read more often than every 100 ms, InnoDB does not bring up to date
		waits, sessions = max(waits, d.count(t, suite.RowWaits(d.e.Kind))), max(sessions, d.sessions(t))
		plain := enqueue(t, q, queue.Task{Kind: "plain"}, queue.Task{Kind: "plain", Group: "other"})
		for _, id := range plain {
			if _, err := q.Cancel(suite.Soon(t), id); err != nil {
				t.Errorf("a job without the key: %v", err)
			}
		}
	}
	if waits > most {
		t.Errorf("%d connections wait for the locked keys, want at most %d", waits, most)
	}
	if limit := int64(most + 4); sessions > limit { // of heartbeats, of Enqueue, and idle ones
		t.Errorf("the process has %d connections, want at most %d", sessions, limit)
	}
	if len(ended) > 0 {
		t.Errorf("%d calls did not wait for the transaction: the test shows nothing: %v", len(ended), <-ended)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	for range 3 * each {
		if err := wait(t, ended, "a call"); err != nil {
			t.Error(err)
		}
	}
	if n := d.standing(t, made[1:]); n != 0 {
		t.Errorf("%d cancelled jobs are there", n)
	}
	if n := d.standing(t, dead); n != each {
		t.Errorf("%d dead jobs were retried, want %d", n, each)
	}
}

// The commits of several handlers' transactions get no answer, and the transactions stay open on
// the server. Their jobs are looked for with two connections at most, and other tasks are enqueued
// meanwhile.
func lostCommitsHoldFewConnections(t *testing.T, d *env) {
	const jobs, most = 4, 2
	d.effects(t)
	dialer := new(faultconn.Dialer)
	lost, turn := make(chan struct{}, 100), make(chan struct{}, 1)
	o := queue.Options{Timeout: time.Minute, PollOnly: true}
	o.Observer.Trouble = func(doing string, _ error) {
		if strings.HasPrefix(doing, "committing") {
			lost <- struct{}{}
		}
	}
	q, closePool, err := d.e.OpenOn(t.Context(), d.dsn, dialer, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		dialer.Release()
		_ = q.Close(ctx)
		closePool()
	})
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
	tasks := make([]queue.Task, jobs)
	for i := range tasks {
		tasks[i] = queue.Task{Kind: "effect", Args: i}
	}
	made := enqueue(t, q, tasks...)
	work(t, q, queue.WorkerOptions{Concurrency: jobs, Promote: -1, Rescue: -1})
	for range jobs {
		turn <- struct{}{}
		wait(t, lost, "a commit that gets no answer")
	}
	waits := int64(0)
	for range 8 {
		time.Sleep(120 * time.Millisecond) // what is read more often than every 100 ms, InnoDB does not bring up to date
		waits = max(waits, d.count(t, suite.RowWaits(d.e.Kind)))
		enqueue(t, q, queue.Task{Kind: "plain", Queue: "other"})
	}
	if waits > most {
		t.Errorf("%d connections wait for the transactions, want at most %d", waits, most)
	}
	if n := d.standing(t, made); n != jobs {
		t.Errorf("%d jobs have ended whose commits are under way: the test shows nothing", jobs-n)
	}
	dialer.Release()
	suite.Until(t, "the jobs have ended", func() bool { return d.standing(t, made) == 0 })
	d.effective(t, made...)
}
