package queue

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/queue"
)

// endings is a worker whose jobs end in their transactions, each with its last attempt.
type endings struct {
	q    *queue.Queue
	puts chan string // what trouble it told of, and of what jobs died
	made []queue.ID
}

// endings has the handlers of some jobs wait until lock has returned.
func (d *env) endings(t *testing.T, tasks []queue.Task, lock func()) *endings {
	t.Helper()
	d.effects(t)
	e := &endings{puts: make(chan string, 1000)}
	o := queue.Options{Timeout: time.Second} // no end waits for so long
	o.Observer.Trouble = func(doing string, _ error) { e.puts <- doing }
	o.Observer.Dead = func(_ queue.Info, err error) { e.puts <- "died: " + err.Error() }
	e.q = d.open(t, o)
	began, end := make(chan int, 1000), make(chan struct{})
	handleTx(t, d, e.q, "effect", func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error {
		if job.Attempt != 1 {
			t.Errorf("attempt %d of job %d", job.Attempt, job.Args)
		}
		if err := tx.Do(ctx, effectOf(job.Info)); err != nil {
			return err
		}
		began <- job.Args
		<-end
		return nil
	}, queue.Backoff(func(int, error) time.Duration { return 0 }))
	work(t, e.q, queue.WorkerOptions{Promote: 20 * time.Millisecond, Concurrency: 10})
	var release sync.Once
	t.Cleanup(func() { release.Do(func() { close(end) }) })
	for i := range tasks {
		tasks[i].Kind, tasks[i].Args, tasks[i].MaxAttempts = "effect", i, 1
	}
	e.made = enqueue(t, e.q, tasks...)
	for range tasks {
		wait(t, began, "a job")
	}
	lock()
	release.Do(func() { close(end) })
	return e
}

// putOff waits until ends were put off so often.
func (e *endings) putOff(t *testing.T, times int) {
	t.Helper()
	for range times {
		for what := ""; !strings.HasPrefix(what, "ending a job"); {
			if what = wait(t, e.puts, "an end that is put off"); strings.HasPrefix(what, "died") {
				t.Fatal(what)
			}
		}
	}
}

// check has each job have had its effect once, with the first attempt.
func (e *endings) check(t *testing.T, d *env) {
	t.Helper()
	d.empty(t)
	d.effective(t, e.made...)
	if n := d.count(t, "SELECT count(*) FROM dblock_queue_dead"); n != 0 {
		t.Errorf("%d are dead", n)
	}
}

// The row of a group is locked, and that of a unique key, when their jobs end with their transactions. Both are put off, at no cost of an
// attempt, and have their effects when the rows are free; other jobs end meanwhile.
func effectsOfLockedKeys(t *testing.T, d *env) {
	tx := d.openTx(t)
	e := d.endings(t, []queue.Task{{Group: "locked"}, {Unique: "locked"}}, func() {
		for _, row := range []string{"dblock_queue_key WHERE queue = 'default' AND group_key = 'locked'", "dblock_queue_unique WHERE queue = 'default' AND unique_key = 'locked'"} {
			if _, err := tx.ExecContext(t.Context(), "SELECT queue FROM "+row+" FOR UPDATE"); err != nil {
				t.Fatal(err)
			}
		}
	})
	e.putOff(t, 4) // each is run again
	others := enqueue(t, e.q, queue.Task{Kind: "effect", Args: 2}, queue.Task{Kind: "effect", Args: 3, Group: "other"}, queue.Task{Kind: "effect", Args: 4, Unique: "other"})
	suite.Until(t, "other jobs end", func() bool { return d.standing(t, others) == 0 })
	if n := d.standing(t, e.made); n != 2 {
		t.Errorf("%d jobs have ended whose keys are locked: the test shows nothing", 2-n)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	e.made = append(e.made, others...)
	e.check(t, d)
}

// A server that ends each end of a job for others' sake: the handler is run again at once, and the job is put off in the end.
func effectsOfEndsThatGiveWay(t *testing.T, d *env) {
	refuse := []string{
		"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '40P01'; END $$",
		"CREATE TRIGGER refuse AFTER DELETE ON dblock_queue_job FOR EACH ROW EXECUTE FUNCTION refuse()",
	}
	drop := "DROP TRIGGER refuse ON dblock_queue_job"
	if d.e.Kind != devdb.Postgres {
		refuse = []string{fmt.Sprintf("CREATE TRIGGER refuse BEFORE DELETE ON dblock_queue_job FOR EACH ROW %s", d.conflict())}
		drop = "DROP TRIGGER refuse"
	}
	for _, statement := range refuse {
		d.exec(t, statement)
	}
	e := d.endings(t, []queue.Task{{}}, func() {})
	e.putOff(t, 2)
	d.exec(t, drop)
	e.check(t, d)
}
