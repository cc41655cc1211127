package queue

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/queue"
)

// claimsWaitForAGroup makes each claim wait, in its transaction, until a group exists.
func (d *env) claimsWaitForAGroup(t *testing.T) {
	t.Helper()
	d.exec(t, d.sql(`CREATE FUNCTION wait_for_group() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			FOR n IN 1..12000 LOOP
				EXIT WHEN EXISTS (SELECT 1 FROM dblock_queue_key);
				PERFORM pg_sleep(0.005);
			END LOOP;
			RETURN NEW;
		END $$;
		CREATE TRIGGER wait_for_group BEFORE INSERT ON dblock_queue_claim FOR EACH ROW EXECUTE FUNCTION wait_for_group()`,
		`CREATE TRIGGER wait_for_group BEFORE INSERT ON dblock_queue_claim FOR EACH ROW BEGIN
			DECLARE n, k INT DEFAULT 0;
			WHILE k = 0 AND n < 12000 DO
				SELECT COUNT(*) INTO k FROM dblock_queue_key LOCK IN SHARE MODE;
				IF k = 0 THEN SET n = n + SLEEP(0.005); END IF;
				SET n = n + 1;
			END WHILE;
		END`))
}

// A delayed job of a group that does not exist is cancelled or discarded. Before that transaction
// commits, another job of the group is enqueued. That one is still counted: the next one waits.
func endsOfDelayedJobsTakeNoPlaces(t *testing.T, d *env) {
	q := d.open(t, queue.Options{Timeout: time.Minute})
	d.claimsWaitForAGroup(t)
	asleep := d.sql("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'",
		"SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE() AND state = 'User sleep'")
	inGroup := queue.Task{Kind: "x", Group: "g"}
	places := func(want int64) {
		t.Helper()
		assert.Equal(t, want, d.count(t, `SELECT count(*) FROM dblock_queue_ready r
			JOIN dblock_queue_job j ON j.job_id = r.job_id WHERE j.group_key IS NOT NULL`), "ready jobs of the group")
		assert.Equal(t, want, d.count(t, "SELECT COALESCE(SUM(taken), 0) FROM dblock_queue_key"), "taken places")
	}
	for name, end := range map[string]func(queue.ID) error{
		"cancel":  func(id queue.ID) error { return suite.Second(q.Cancel(suite.Soon(t), id)) },
		"discard": func(id queue.ID) error { return q.Discard(suite.Soon(t), id, "no more") },
	} {
		delayed := enqueue(t, q, queue.Task{Kind: "x", Group: "g", Delay: time.Hour})[0]
		ended := make(chan error, 1)
		go func() { ended <- end(delayed) }()
		d.until(t, asleep, 1) // the job is claimed, and its transaction is open
		first := enqueue(t, q, inGroup)[0]
		require.NoError(t, wait(t, ended, name), name)
		next := enqueue(t, q, inGroup)[0]
		places(1)
		cancel(t, q, next, queue.Blocked)
		cancel(t, q, first, queue.Ready)
		places(0)
	}
	// The control: a group whose row is lost admits another job.
	enqueue(t, q, inGroup)
	d.exec(t, "DELETE FROM dblock_queue_key")
	enqueue(t, q, inGroup)
	d.rows(t, "ready", 2)
}

// Cancel of a job that has a place in its group admits the next one: of a ready job, and of one
// that is snoozed. Cancel of one without a place admits none.
func cancelledJobsLeaveTheirPlaces(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	handle(t, q, "snoozes", func(context.Context, queue.Job[int]) error { return queue.Snooze(time.Hour) })
	stop := work(t, q, queue.WorkerOptions{Promote: -1})
	snoozed := enqueue(t, q, queue.Task{Kind: "snoozes", Args: 1, Group: "g"})[0]
	d.until(t, "SELECT count(*) FROM dblock_queue_scheduled", 1)
	require.NoError(t, stop())
	tasks := repeat(4, queue.Task{Kind: "x", Group: "g"})
	tasks[3].Delay = time.Hour
	made := enqueue(t, q, tasks...)
	for _, step := range []struct {
		id      queue.ID
		was     queue.State
		blocked int
	}{{made[3], queue.Scheduled, 3}, {made[1], queue.Blocked, 2}, {snoozed, queue.Scheduled, 1}, {made[0], queue.Ready, 0}} {
		cancel(t, q, step.id, step.was)
		d.rows(t, "blocked", step.blocked)
		d.rows(t, "key WHERE taken = 1", 1)
	}
	cancel(t, q, made[2], queue.Ready)
	d.empty(t)
}

// commit is what a driver sends to commit, and no other statement has.
func (d *env) commit() string { return d.sql("Q\x00\x00\x00\x0bcommit\x00", "\x03COMMIT") }

// A job dies, and the answer to that is lost. Before its worker sends the end again, the job is
// retried and has its unique key and its place again. The end that is sent again takes neither
// away.
func aBurialSentTwiceFreesNoKeys(t *testing.T, d *env) {
	other := d.open(t, queue.Options{PollOnly: true})
	made := enqueueMany(t, other, []queue.Task{{Kind: "holds", Args: 1}, {Kind: "dies", Args: 2, Unique: "u", Group: "g"}})
	dialer := new(faultconn.Dialer)
	var lost atomic.Bool
	revived := make(chan error, 1)
	o := queue.Options{PollOnly: true}
	o.Observer.Trouble = func(doing string, err error) {
		t.Logf("%s: %v", doing, err)
		dead, _ := other.List(suite.Soon(t), queue.Filter{State: queue.Dead})
		if len(dead) == 0 || !lost.CompareAndSwap(false, true) {
			return
		}
		if err = other.Retry(suite.Soon(t), made[1]); err == nil {
			_, err = other.Promote(suite.Soon(t))
		}
		revived <- err
	}
	q := d.openOn(t, dialer, o)
	first, again := newHolder(), newHolder()
	handle(t, q, "holds", first.handle)
	handle(t, q, "dies", func(ctx context.Context, job queue.Job[int]) error {
		if lost.Load() {
			return again.handle(ctx, job)
		}
		<-first.began
		dialer.ArmAt(d.commit(), 2, faultconn.CutAfter)
		return queue.Discard(errBadDay)
	})
	work(t, q, queue.WorkerOptions{Exchanges: 1, Promote: -1, Rescue: -1, Poll: 10 * time.Millisecond})
	require.NoError(t, wait(t, revived, "an answer that is lost"))
	first.end <- nil
	again.has(t, 1)
	suite.Until(t, "what was sent again is recorded", func() bool { return d.standing(t, made[:1]) == 0 })
	d.rows(t, "unique", 1)
	d.rows(t, "key WHERE taken = 1", 1)
	assert.True(t, dialer.Disarm(), "no answer was lost: the test shows nothing")
	again.end <- nil
	d.empty(t)
}
