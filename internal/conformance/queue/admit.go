package queue

import (
	"context"
	"errors"
	"fmt"
	"github.com/dblock-go/dblock/internal/devdb"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock"
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
func (mainTests) EndsOfDelayedJobsTakeNoPlaces(t *testing.T, d *env) {
	q := d.open(t, queue.Options{Timeout: time.Minute})
	d.claimsWaitForAGroup(t)
	asleep := d.sql("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'",
		"SELECT count(*) FROM "+devdb.Processlist+" WHERE db = DATABASE() AND state = 'User sleep'")
	inGroup := queue.Task{Kind: "x", Group: "g"}
	places := func(want int64) {
		t.Helper()
		assert.Equal(t, want, d.Count(t, `SELECT count(*) FROM dblock_queue_ready r
			JOIN dblock_queue_job j ON j.job_id = r.job_id WHERE j.group_key IS NOT NULL`), "ready jobs of the group")
		assert.Equal(t, want, d.Count(t, "SELECT COALESCE(SUM(taken), 0) FROM dblock_queue_key"), "taken places")
	}
	for name, end := range map[string]func(queue.ID) error{
		"cancel":  func(id queue.ID) error { return suite.Second(q.Cancel(suite.Soon(t), id)) },
		"discard": func(id queue.ID) error { return q.Discard(suite.Soon(t), id, "no more") },
	} {
		delayed := enqueue(t, q, queue.Task{Kind: "x", Group: "g", Delay: time.Hour})[0]
		ended := make(chan error, 1)
		go func() { ended <- end(delayed) }()
		d.Until(t, asleep, 1) // the job is claimed, and its transaction is open
		first := enqueue(t, q, inGroup)[0]
		require.NoError(t, suite.Wait(t, ended, name), name)
		next := enqueue(t, q, inGroup)[0]
		places(1)
		cancel(t, q, next, queue.JobBlocked)
		cancel(t, q, first, queue.JobReady)
		places(0)
	}
	// The control: a group whose row is lost admits another job.
	enqueue(t, q, inGroup)
	d.exec(t, "DELETE FROM dblock_queue_key")
	enqueue(t, q, inGroup)
	d.rows(t, "ready", 2)
}

// commit is what a driver sends to commit, and no other statement has.
func (d *env) commit() string { return d.sql("Q\x00\x00\x00\x0bcommit\x00", "\x03COMMIT") }

// A job dies, and the answer to that is lost. Before its worker sends the end again, the job is
// retried and has its unique key and its place again. The end that is sent again takes neither
// away.
func (mainTests) ABurialSentTwiceFreesNoKeys(t *testing.T, d *env) {
	other := d.open(t, queue.Options{PollOnly: true})
	made := enqueueMany(t, other, []queue.Task{{Kind: "holds", Args: 1}, {Kind: "dies", Args: 2, Unique: "u", Group: "g"}})
	dialer := new(faultconn.Dialer)
	var lost atomic.Bool
	revived := make(chan error, 1)
	o := queue.Options{PollOnly: true}
	o.Observer.Trouble = func(doing string, err error) {
		t.Logf("%s: %v", doing, err)
		dead, _ := other.List(suite.Soon(t), queue.Filter{State: queue.JobDead})
		if len(dead) == 0 || !lost.CompareAndSwap(false, true) {
			return
		}
		if err = other.Retry(suite.Soon(t), made[1]); err == nil {
			_, err = other.Promote(suite.Soon(t))
		}
		revived <- err
	}
	q := d.openOn(t, dialer, o)
	first, again := newHolder(t), newHolder(t)
	handle(t, q, "holds", first.handle)
	handle(t, q, "dies", func(ctx context.Context, job queue.Job[int]) error {
		if lost.Load() {
			return again.handle(ctx, job)
		}
		<-first.began
		dialer.ArmAt(d.commit(), 2, faultconn.CutAfter)
		return queue.Discard(errBadDay)
	})
	work(t, q, queue.WorkerOptions{Syncs: 1, Promote: -1, Rescue: -1, Poll: 10 * time.Millisecond})
	require.NoError(t, suite.Wait(t, revived, "an answer that is lost"))
	first.end <- nil
	again.has(t, 1)
	suite.Until(t, "what was sent again is recorded", func() bool { return d.standing(t, made[:1]) == 0 })
	d.rows(t, "unique", 1)
	d.rows(t, "key WHERE taken = 1", 1)
	assert.True(t, dialer.Disarm(), "no answer was lost: the test shows nothing")
	again.end <- nil
	d.empty(t)
}

const fewConnections = 2

// fewWait asserts that few connections wait for locks, while other calls pass. It returns how many
// sessions there were.
func (d *env) fewWait(t *testing.T, q *queue.Queue) (sessions int64) {
	t.Helper()
	waits := int64(0)
	for range 4 {
		time.Sleep(120 * time.Millisecond) // what is read more often than every 100 ms, InnoDB does not bring up to date
		waits = max(waits, d.Count(t, suite.RowWaits(d.Kind)))
		sessions = max(sessions, d.sessions(t))
		for _, group := range []string{"", "other"} {
			id := enqueue(t, q, queue.Task{Kind: "plain", Queue: "other", Group: group})[0]
			cancel(t, q, id, queue.JobReady)
		}
	}
	assert.LessOrEqual(t, waits, int64(fewConnections), "connections that wait for locks")
	return sessions
}

// An open transaction has a group and unique keys locked. Many callers cancel and discard jobs of
// the group, and retry dead jobs with these keys. They wait with two connections at most, and other
// tasks are enqueued and cancelled meanwhile.
func (mainTests) LockedKeysHoldFewConnections(t *testing.T, d *env) {
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
	// The others are of heartbeats and Enqueue, and idle.
	assert.LessOrEqual(t, d.fewWait(t, q), int64(fewConnections+4), "connections")
	assert.Empty(t, ended, "calls did not wait for the transaction: the test shows nothing")
	require.NoError(t, tx.Rollback())
	for range 3 * each {
		assert.NoError(t, suite.Wait(t, ended, "call"))
	}
	assert.Zero(t, d.standing(t, made[1:]), "cancelled jobs that are there")
	assert.Equal(t, each, d.standing(t, dead), "dead jobs that were retried")
}

// The commits of several handlers' transactions get no answer, and the transactions stay open on
// the server. Their jobs are looked for with two connections at most, and other tasks are enqueued
// meanwhile.
func (faultTests) LostCommitsHoldFewConnections(t *testing.T, d *env) {
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
		suite.Wait(t, lost, "commit that gets no answer")
	}
	d.fewWait(t, q)
	assert.Equal(t, jobs, d.standing(t, made), "jobs whose commits are under way")
	dialer.Release()
	d.effective(t, made...)
}
