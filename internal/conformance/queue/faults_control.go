package queue

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/queue"
)

// aZombieIsRefused has two workers stand still while they have jobs, till others have begun these: what they end then is refused and counted.
func aZombieIsRefused(t *testing.T, d *env) {
	l := d.standStill(t, howZombie, func(l *workLog) bool { return len(l.zombies(l.byJob())) > 0 })
	for _, fault := range l.check() {
		t.Error(fault)
	}
	t.Log(l.tally())
}

// controlWithoutTheFence is the same where nobody asks whose the jobs are: the checker notices.
func controlWithoutTheFence(t *testing.T, d *env) {
	said := func(l *workLog) string { return strings.Join(l.check(), "; ") }
	l := d.standStill(t, howNoFence, func(l *workLog) bool { return strings.Contains(said(l), "that had begun once more") })
	t.Logf("%s: %s", said(l), l.tally())
}

// standStill has eight workers do plain jobs, freezes two of them, and that once more until it is enough.
func (d *env) standStill(t *testing.T, how string, enough func(*workLog) bool) (l *workLog) {
	t.Helper()
	q := d.open(t, queue.Options{})
	for range 10 {
		c := d.crew(t, how, workers)
		told := teller{jobs: make(map[string]*toldJob)}
		ctx, stop := context.WithCancel(t.Context())
		var thaws, work sync.WaitGroup
		work.Go(func() {
			for ctx.Err() == nil {
				time.Sleep(rand.N(20 * time.Millisecond))
				if d.wants(ctx) {
					told.enqueuePlain(t, q, 20)
				}
			}
		})
		d.busy(t)
		for range 2 {
			if h := c.freezeOne(); h != nil {
				thaws.Go(func() { c.thaw(h) })
			}
		}
		thaws.Wait()
		c.thawed()
		stop()
		work.Wait()
		d.drained(t)
		if l = newWorkLog(faultyTTL, told.jobs, c.stop(t), d.deadJobs(t)); enough(l) {
			return l
		}
	}
	t.Fatalf("it never came to be: %s", l.tally())
	return nil
}

// enqueuePlain enqueues jobs without keys.
func (p *teller) enqueuePlain(t *testing.T, q *queue.Queue, n int) {
	tasks, jobs := make([]queue.Task, n), make([]*toldJob, n)
	for i := range tasks {
		tasks[i], jobs[i] = queue.Task{Kind: "note", Args: i}, &toldJob{max: 25}
	}
	made, err := q.EnqueueMany(context.WithoutCancel(t.Context()), tasks)
	p.take(t, jobs, made, err)
}

// busy waits until all workers have jobs.
func (d *env) busy(t *testing.T) {
	t.Helper()
	ctx := suite.Soon(t)
	for n := 0; n < workers; {
		if err := d.db.QueryRowContext(ctx, "SELECT count(DISTINCT member_id) FROM dblock_queue_claim").Scan(&n); err != nil {
			t.Fatalf("%d workers have jobs: %v", n, err)
		}
	}
}
