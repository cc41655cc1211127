package queue

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/queue"
)

// evictedWorker is a process that has a job, and that the others take for dead.
type evictedWorker struct {
	lost   chan int   // how many of its ends were refused
	causes chan error // why its handlers' contexts ended
	thaw   chan error // what its handler returns
	next   *holder    // the process that has the job now
}

// evicted has a worker begin the one job that there is. Then the worker is evicted, and
// another process begins the job. The two of around, if given, are called before and after that. In
// the end the zombie knows it.
func (d *env) evicted(t *testing.T, around ...func()) *evictedWorker {
	t.Helper()
	z := &evictedWorker{lost: make(chan int, 10), causes: make(chan error, 10), thaw: make(chan error), next: newHolder()}
	q := d.open(t, queue.Options{TTL: time.Second, Observer: queue.Observer{Lost: func(_ string, n int) { z.lost <- n }}})
	began := make(chan queue.ID, 1)
	handle(t, q, "note", func(ctx context.Context, job queue.Job[int]) error {
		began <- job.ID
		<-ctx.Done()
		z.causes <- context.Cause(ctx)
		return <-z.thaw
	})
	enqueue(t, q, queue.Task{Kind: "note", Args: 1})
	work(t, q, queue.WorkerOptions{Concurrency: 1, Ahead: -1, Rescue: -1})
	wait(t, began, "job")
	if len(around) > 0 {
		around[0]()
	}
	d.evict(t)
	other := d.open(t, queue.Options{})
	rescue(t, other, 1, 0)
	handle(t, other, "note", z.next.handle)
	work(t, other, queue.WorkerOptions{Rescue: -1}) // the control puts a claim back
	assert.Equal(t, 2, z.next.has(t, 1)[0].Attempt)
	if len(around) > 0 {
		around[1]()
	}
	assert.ErrorIs(t, wait(t, z.causes, "end of the zombie's context"), dblock.ErrLost)
	return z
}

func aZombieFinishesNothing(t *testing.T, d *env) {
	z := d.evicted(t)
	z.thaw <- nil
	assert.Equal(t, 1, wait(t, z.lost, "refusal"))
	d.rows(t, "job", 1)
	z.next.end <- nil
	d.empty(t)
}

// The claim is still there, as if it had never been taken away: the zombie ends another process's job.
func controlAZombieFinishes(t *testing.T, d *env) {
	z := d.evicted(t, func() { d.exec(t, "CREATE TABLE suite_claim AS SELECT * FROM dblock_queue_claim") },
		func() { d.exec(t, "INSERT INTO dblock_queue_claim SELECT * FROM suite_claim") })
	z.thaw <- nil
	d.until(t, "SELECT count(*) FROM dblock_queue_job", 0)
	z.next.end <- nil
}

// A zombie neither delays nor buries the job that failed in it.
func aZombieMovesNothing(t *testing.T, d *env) {
	for what, says := range map[string]error{
		"Snoozed": queue.Snooze(time.Hour), "Discarded": queue.Discard(errBadDay), "Failed": errBadDay,
	} {
		t.Run(what, func(t *testing.T) {
			d := d.e.env(t)
			z := d.evicted(t)
			z.thaw <- says
			assert.Equal(t, 1, wait(t, z.lost, "refusal"))
			for _, table := range []string{"scheduled", "dead", "ready"} {
				d.rows(t, table, 0)
			}
			z.next.end <- nil
			d.empty(t)
		})
	}
}

// A heartbeat keeps a job for longer than the TTL.
func theLivingKeepTheirJobs(t *testing.T, d *env) {
	q, other, held := d.open(t, queue.Options{TTL: time.Second}), d.open(t, queue.Options{}), newHolder()
	handle(t, q, "note", held.obey)
	work(t, q, queue.WorkerOptions{Rescue: -1})
	enqueue(t, q, queue.Task{Kind: "note", Args: 1})
	held.has(t, 1)
	first := d.count(t, "SELECT max(beat) FROM dblock_member")
	for d.count(t, "SELECT max(beat) FROM dblock_member") < first+5 { // nearly two TTLs
		rescue(t, other, 0, 0)
		time.Sleep(10 * time.Millisecond)
	}
	held.end <- nil
	d.empty(t)
}
