package queue

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/queue"
)

// frozen is a worker that has a job, and whose member the others have declared dead.
type frozen struct {
	lost   chan int   // how many of its ends were refused
	causes chan error // why its handlers' contexts ended
	thaw   chan error // what its handler is to return
}

// freeze has a worker take the one job that there is, and then evicts it.
func (d *env) freeze(t *testing.T) *frozen {
	t.Helper()
	f := &frozen{lost: make(chan int, 10), causes: make(chan error, 10), thaw: make(chan error)}
	q := d.open(t, queue.Options{TTL: time.Second, Observer: queue.Observer{Lost: func(_ string, n int) { f.lost <- n }}})
	began := make(chan queue.ID, 1)
	handle(t, q, "note", func(ctx context.Context, job queue.Job[int]) error {
		began <- job.ID
		<-ctx.Done()
		f.causes <- context.Cause(ctx)
		return <-f.thaw
	})
	enqueue(t, q, queue.Task{Kind: "note", Args: 1})
	work(t, q, queue.WorkerOptions{Concurrency: 1, Ahead: -1, Rescue: -1})
	wait(t, began, "the job")
	return f
}

// rescued takes the job away from whoever has it, and has another process begin it, which ends it when it is told to.
func (d *env) rescued(t *testing.T) (end chan error) {
	t.Helper()
	d.exec(t, "DELETE FROM dblock_member")
	q := d.open(t, queue.Options{})
	if ready, dead, err := q.Rescue(t.Context()); err != nil || ready != 1 || dead != 0 {
		t.Fatalf("rescued %d and %d, %v", ready, dead, err)
	}
	began := make(chan int, 1)
	end = make(chan error)
	handle(t, q, "note", func(_ context.Context, job queue.Job[int]) error {
		began <- job.Attempt
		return <-end
	})
	work(t, q, queue.WorkerOptions{Rescue: -1}) // the control puts a claim back
	if n := wait(t, began, "the job, once more"); n != 2 {
		t.Errorf("attempt %d", n)
	}
	return end
}

// Whoever was taken for dead finishes nothing, and is told.
func aZombieFinishesNothing(t *testing.T, d *env) {
	f := d.freeze(t)
	end := d.rescued(t)
	if cause := wait(t, f.causes, "the zombie to be told"); !errors.Is(cause, dblock.ErrLost) {
		t.Errorf("its context ended with %v", cause)
	}
	f.thaw <- nil
	if n := wait(t, f.lost, "the refusal"); n != 1 {
		t.Errorf("%d were refused", n)
	}
	if n := d.count(t, "SELECT count(*) FROM dblock_queue_job"); n != 1 {
		t.Error("a zombie has finished the job that somebody else has")
	}
	end <- nil
	d.empty(t)
}

// The control of the above: with the claim still there, as if nobody had taken it away, the zombie finishes what another one has.
func controlAZombieFinishes(t *testing.T, d *env) {
	f := d.freeze(t)
	d.exec(t, "CREATE TABLE suite_claim AS SELECT * FROM dblock_queue_claim")
	end := d.rescued(t)
	d.exec(t, "INSERT INTO dblock_queue_claim SELECT * FROM suite_claim")
	wait(t, f.causes, "the zombie to be told")
	f.thaw <- nil
	d.until(t, "SELECT count(*) FROM dblock_queue_job", 0)
	end <- nil
}

// What failed under a zombie is neither put off nor buried by it.
func aZombieMovesNothing(t *testing.T, d *env) {
	for what, says := range map[string]error{"Snoozed": queue.Snooze(time.Hour), "Discarded": queue.Discard(errBadDay), "Failed": errBadDay} {
		t.Run(what, func(t *testing.T) {
			d := d.e.env(t)
			f := d.freeze(t)
			end := d.rescued(t)
			wait(t, f.causes, "the zombie to be told")
			f.thaw <- says
			if n := wait(t, f.lost, "the refusal"); n != 1 {
				t.Errorf("%d were refused", n)
			}
			for _, table := range []string{"scheduled", "dead", "ready"} {
				if n := d.count(t, "SELECT count(*) FROM dblock_queue_"+table); n != 0 {
					t.Errorf("%d are %s", n, table)
				}
			}
			end <- nil
			d.empty(t)
		})
	}
}

// A heartbeat keeps a job for longer than the TTL.
func theLivingKeepTheirJobs(t *testing.T, d *env) {
	q, other := d.open(t, queue.Options{TTL: time.Second}), d.open(t, queue.Options{})
	began, end := make(chan int, 10), make(chan error)
	handle(t, q, "note", func(ctx context.Context, job queue.Job[int]) error {
		began <- job.Attempt
		select {
		case err := <-end:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	work(t, q, queue.WorkerOptions{Rescue: -1}) // the control puts a claim back
	enqueue(t, q, queue.Task{Kind: "note", Args: 1})
	wait(t, began, "the job")
	first := d.count(t, "SELECT max(beat) FROM dblock_member")
	for d.count(t, "SELECT max(beat) FROM dblock_member") < first+5 { // nearly two TTLs
		if ready, dead, err := other.Rescue(t.Context()); err != nil || ready+dead > 0 {
			t.Fatalf("rescued %d and %d from the living, %v", ready, dead, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	end <- nil
	d.empty(t)
}
