package queue

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/queue"
)

// claimsWaitForAGroup has each claim wait, in its transaction, until a group exists.
func (d *env) claimsWaitForAGroup(t *testing.T) {
	t.Helper()
	if d.e.Kind == devdb.Postgres {
		d.exec(t, `CREATE FUNCTION wait_for_group() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			FOR n IN 1..12000 LOOP
				EXIT WHEN EXISTS (SELECT 1 FROM dblock_queue_key);
				PERFORM pg_sleep(0.005);
			END LOOP;
			RETURN NEW;
		END $$`)
		d.exec(t, "CREATE TRIGGER wait_for_group BEFORE INSERT ON dblock_queue_claim FOR EACH ROW EXECUTE FUNCTION wait_for_group()")
		return
	}
	d.exec(t, `CREATE TRIGGER wait_for_group BEFORE INSERT ON dblock_queue_claim FOR EACH ROW BEGIN
			DECLARE n, k INT DEFAULT 0;
			WHILE k = 0 AND n < 12000 DO
				SELECT COUNT(*) INTO k FROM dblock_queue_key LOCK IN SHARE MODE;
				IF k = 0 THEN SET n = n + SLEEP(0.005); END IF;
				SET n = n + 1;
			END WHILE;
		END`)
}

// asleep counts the sessions that sleep in a trigger.
func (d *env) asleep(t *testing.T) int64 {
	t.Helper()
	if d.e.Kind == devdb.Postgres {
		return d.count(t, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'")
	}
	return d.count(t, "SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE() AND state = 'User sleep'")
}

// places fails unless so many jobs of all groups are ready, and as many places are taken.
func (d *env) places(t *testing.T, when string, want int64) {
	t.Helper()
	ready := d.count(t, "SELECT count(*) FROM dblock_queue_ready r JOIN dblock_queue_job j ON j.job_id = r.job_id WHERE j.group_key IS NOT NULL")
	taken := d.count(t, "SELECT COALESCE(SUM(taken), 0) FROM dblock_queue_key")
	if ready != want || taken != want {
		t.Errorf("%s: %d jobs of the group are ready and %d places are taken, want %d", when, ready, taken, want)
	}
}

// A delayed job of a group that does not exist is cancelled or discarded. Before that transaction
// commits, another job of the group is enqueued. That one is still counted: the next one waits.
func endsOfDelayedJobsTakeNoPlaces(t *testing.T, d *env) {
	q := d.open(t, queue.Options{Timeout: time.Minute})
	d.claimsWaitForAGroup(t)
	for name, end := range map[string]func(queue.ID) error{
		"cancel":  func(id queue.ID) error { return suite.Second(q.Cancel(suite.Soon(t), id)) },
		"discard": func(id queue.ID) error { return q.Discard(suite.Soon(t), id, "no more") },
	} {
		delayed := enqueue(t, q, queue.Task{Kind: "x", Group: "g", Delay: time.Hour})[0]
		ended := make(chan error, 1)
		go func() { ended <- end(delayed) }()
		suite.Until(t, "the job is claimed, and its transaction is open", func() bool { return d.asleep(t) == 1 })
		first := enqueue(t, q, queue.Task{Kind: "x", Group: "g"})[0]
		if err := wait(t, ended, name); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		next := enqueue(t, q, queue.Task{Kind: "x", Group: "g"})[0]
		d.places(t, "after the "+name, 1)
		for _, id := range []queue.ID{next, first} {
			if _, err := q.Cancel(suite.Soon(t), id); err != nil {
				t.Error(err)
			}
		}
		d.places(t, "at the end", 0)
	}
	// The control: a group whose row is lost admits another job.
	enqueue(t, q, queue.Task{Kind: "x", Group: "g"})
	d.exec(t, "DELETE FROM dblock_queue_key")
	enqueue(t, q, queue.Task{Kind: "x", Group: "g"})
	if n := d.count(t, "SELECT count(*) FROM dblock_queue_ready"); n != 2 {
		t.Errorf("%d jobs are ready: the test shows nothing", n)
	}
}

// Cancel of a job that has a place in its group admits the next one: of a ready job, and of one
// that is snoozed. Cancel of one without a place admits none.
func cancelledJobsLeaveTheirPlaces(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	handle(t, q, "snoozes", func(context.Context, queue.Job[int]) error { return queue.Snooze(time.Hour) })
	stop := work(t, q, queue.WorkerOptions{Promote: -1})
	snoozed := enqueue(t, q, queue.Task{Kind: "snoozes", Args: 1, Group: "g"})[0]
	d.until(t, "SELECT count(*) FROM dblock_queue_scheduled", 1)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	made := enqueue(t, q, queue.Task{Kind: "x", Group: "g"}, queue.Task{Kind: "x", Group: "g"}, queue.Task{Kind: "x", Group: "g"},
		queue.Task{Kind: "x", Group: "g", Delay: time.Hour})
	for _, step := range []struct {
		what    string
		id      queue.ID
		was     queue.State
		blocked int64
	}{
		{"a delayed job", made[3], queue.Scheduled, 3},
		{"a blocked job", made[1], queue.Blocked, 2},
		{"a snoozed job", snoozed, queue.Scheduled, 1},
		{"a ready job", made[0], queue.Ready, 0},
	} {
		if was, err := q.Cancel(suite.Soon(t), step.id); err != nil || was != step.was {
			t.Errorf("%s was %v, %v", step.what, was, err)
		}
		if n := d.count(t, "SELECT count(*) FROM dblock_queue_blocked"); n != step.blocked {
			t.Errorf("%s was cancelled: %d are blocked, want %d", step.what, n, step.blocked)
		}
		if n := d.count(t, "SELECT taken FROM dblock_queue_key"); n != 1 {
			t.Errorf("%s was cancelled: %d places are taken", step.what, n)
		}
	}
	if _, err := q.Cancel(suite.Soon(t), made[2]); err != nil {
		t.Error(err)
	}
	d.empty(t)
}

// commit is what a driver sends to commit, and no other statement has.
func (d *env) commit() string {
	if d.e.Kind == devdb.Postgres {
		return "Q\x00\x00\x00\x0bcommit\x00"
	}
	return "\x03COMMIT"
}

// A job dies, and the answer to that is lost. Before its worker sends the end again, the job is
// retried and has its unique key and its place again. The end that is sent again takes neither
// away.
func aBurialSentTwiceFreesNoKeys(t *testing.T, d *env) {
	other := d.open(t, queue.Options{PollOnly: true})
	made, err := other.EnqueueMany(t.Context(), []queue.Task{{Kind: "holds", Args: 1}, {Kind: "dies", Args: 2, Unique: "u", Group: "g"}})
	if err != nil {
		t.Fatal(err)
	}
	dialer := new(faultconn.Dialer)
	var lost atomic.Bool
	revived := make(chan error, 1)
	o := queue.Options{PollOnly: true}
	o.Observer.Trouble = func(doing string, err error) {
		t.Logf("%s: %v", doing, err)
		if d.count(t, "SELECT count(*) FROM dblock_queue_dead") == 0 || !lost.CompareAndSwap(false, true) {
			return
		}
		if err = other.Retry(suite.Soon(t), made[1]); err == nil {
			_, err = other.Promote(suite.Soon(t))
		}
		revived <- err
	}
	q, closePool, err := d.e.OpenOn(t.Context(), d.dsn, dialer, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = q.Close(ctx)
		closePool()
	})
	held, release := make(chan struct{}), make(chan struct{})
	again, end := make(chan struct{}), make(chan struct{})
	handle(t, q, "holds", func(context.Context, queue.Job[int]) error {
		close(held)
		<-release
		return nil
	})
	runs := 0
	handle(t, q, "dies", func(context.Context, queue.Job[int]) error {
		if runs++; runs == 1 {
			<-held
			dialer.ArmAt(d.commit(), 2, faultconn.CutAfter)
			return queue.Discard(errBadDay)
		}
		close(again)
		<-end
		return nil
	})
	work(t, q, queue.WorkerOptions{Exchanges: 1, Promote: -1, Rescue: -1, Poll: 10 * time.Millisecond})
	if err := wait(t, revived, "an answer that is lost"); err != nil {
		t.Fatal(err)
	}
	close(release)
	wait(t, again, "the job that was retried")
	suite.Until(t, "what was sent again is recorded", func() bool { return d.standing(t, made[:1]) == 0 })
	if n := d.count(t, "SELECT count(*) FROM dblock_queue_unique"); n != 1 {
		t.Errorf("%d unique keys are taken, want that of the job", n)
	}
	if n := d.count(t, "SELECT COALESCE(SUM(taken), 0) FROM dblock_queue_key"); n != 1 {
		t.Errorf("%d places are taken, want that of the job", n)
	}
	if !dialer.Disarm() {
		t.Error("no answer was lost: the test shows nothing")
	}
	close(end)
	d.empty(t)
}
