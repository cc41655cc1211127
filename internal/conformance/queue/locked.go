package queue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/queue"
)

// openTx is a transaction of a stranger's, which ends with the test at the latest.
func (d *env) openTx(t *testing.T) *sql.Tx {
	t.Helper()
	tx, err := d.db.BeginTx(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// One open transaction has enqueued to a group of which a job is to end, and has asked for a unique key whose job is to end. Jobs without
// keys, jobs of other groups and of other keys are enqueued, promoted and done meanwhile; the others when it has ended.
func anOpenTransactionStopsNobody(t *testing.T, d *env) {
	const others = 200
	q := d.open(t, queue.Options{Timeout: 30 * time.Second})
	hold, held := make(chan struct{}), make(chan string, 2)
	var did once
	handle(t, q, "held", func(_ context.Context, job queue.Job[string]) error {
		held <- job.Args
		<-hold
		did.did(job.ID)
		return nil
	})
	handle(t, q, "note", func(_ context.Context, job queue.Job[int]) error {
		did.did(job.ID)
		return nil
	})
	work(t, q, queue.WorkerOptions{Promote: 20 * time.Millisecond, Backoff: fast})
	waits := enqueue(t, q, queue.Task{Kind: "held", Args: "group", Group: "locked"}, queue.Task{Kind: "held", Args: "key", Unique: "locked"})
	wait(t, held, "a job")
	wait(t, held, "another job")

	tx := d.openTx(t)
	if _, err := d.e.EnqueueTx(t.Context(), q, tx, queue.Task{Kind: "note", Args: 0, Group: "locked"},
		queue.Task{Kind: "note", Args: 0, Unique: "taken"}); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), "SELECT job_id FROM dblock_queue_unique WHERE queue = 'default' AND unique_key = 'locked' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	for n := range 3 { // they are due before all others, and can't come to their group
		enqueue(t, q, queue.Task{Kind: "note", Args: n, Group: "locked", Delay: time.Microsecond})
	}
	close(hold) // both jobs end, and their rows are locked

	var late sync.WaitGroup // wait for the transaction
	for _, task := range []queue.Task{{Kind: "note", Args: 1, Group: "locked"}, {Kind: "note", Args: 1, Unique: "taken"}} {
		for range 20 {
			late.Go(func() {
				if _, err := q.Enqueue(suite.Soon(t), task); err != nil && !errors.Is(err, queue.ErrDuplicate) {
					t.Errorf("a task with a locked key: %v", err)
				}
			})
		}
	}
	var mu sync.Mutex
	var made []queue.ID
	var producing sync.WaitGroup
	for p := range 4 {
		producing.Go(func() {
			for n := range others / 4 {
				task := queue.Task{Kind: "note", Args: n}
				switch p {
				case 1:
					task.Group = fmt.Sprint(n % 7)
				case 2:
					task.Unique = fmt.Sprint(n)
				case 3:
					task.Delay = time.Millisecond
					if n%2 == 0 {
						task.Group = fmt.Sprint("late", n%5)
					}
				}
				id, err := q.Enqueue(suite.Soon(t), task)
				if err != nil {
					t.Errorf("a task beside the transaction: %v", err)
					return
				}
				mu.Lock()
				made = append(made, id)
				mu.Unlock()
			}
		})
	}
	producing.Wait()
	suite.Until(t, "jobs beside the transaction are done", func() bool { return did.all(made) })
	suite.Until(t, "and that is recorded", func() bool { return d.standing(t, made) == 0 })
	if n := d.standing(t, waits); n != 2 {
		t.Errorf("%d jobs have ended whose keys are locked: the test shows nothing", 2-n)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	late.Wait()
	d.empty(t)
}

// all tells that each of some jobs was done.
func (o *once) all(jobs []queue.ID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, id := range jobs {
		if o.times[id] == 0 {
			return false
		}
	}
	return true
}

// standing counts those of some jobs that have not ended.
func (d *env) standing(t *testing.T, jobs []queue.ID) (n int) {
	t.Helper()
	rows, err := d.db.QueryContext(t.Context(), "SELECT job_id FROM dblock_queue_job")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	stand := make(map[string]bool)
	for rows.Next() {
		var id []byte
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		stand[string(id)] = true
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	for _, id := range jobs {
		if stand[string(id[:])] || stand[id.String()] {
			n++
		}
	}
	return n
}

// A task whose unique key an open transaction has taken waits alone: with a pool of callers that want that key, and more transactions than
// statements may wait, tasks with other keys and without keys are enqueued.
func waitsForAUniqueKeyAlone(t *testing.T, d *env) {
	const keys = 6
	q := d.open(t, queue.Options{Timeout: 30 * time.Second})
	var txs []*sql.Tx
	var first []queue.ID
	for n := range keys {
		tx := d.openTx(t)
		made, err := d.e.EnqueueTx(t.Context(), q, tx, queue.Task{Kind: "note", Args: n, Unique: fmt.Sprint(n)})
		if err != nil {
			t.Fatal(err)
		}
		txs, first = append(txs, tx), append(first, made...)
	}
	type outcome struct {
		n   int
		id  queue.ID
		err error
	}
	answers := make(chan outcome, 10*keys)
	for n := range 10 * keys {
		go func() {
			id, err := q.Enqueue(suite.Soon(t), queue.Task{Kind: "note", Args: n, Unique: fmt.Sprint(n % keys)})
			answers <- outcome{n % keys, id, err}
		}()
	}
	for n := range 50 {
		enqueue(t, q, queue.Task{Kind: "note", Args: n}, queue.Task{Kind: "note", Args: n, Unique: fmt.Sprint("other", n)},
			queue.Task{Kind: "note", Args: n, Group: "other"})
	}
	if len(answers) > 0 {
		t.Errorf("%d callers did not wait for the transactions", len(answers))
	}
	for n, tx := range txs {
		end := tx.Commit
		if n%2 == 1 {
			end = tx.Rollback
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
	}
	won := make(map[int]int)
	for range 10 * keys {
		got := wait(t, answers, "a caller")
		var dup *queue.DuplicateError
		switch {
		case got.err == nil:
			won[got.n]++
		case !errors.As(got.err, &dup):
			t.Error(got.err)
		case got.n%2 == 0 && got.id != first[got.n]:
			t.Errorf("key %d is said to be of %v, and is of %v", got.n, got.id, first[got.n])
		}
	}
	for n := range keys {
		if won[n] != n%2 {
			t.Errorf("key %d was taken %d times, want %d", n, won[n], n%2)
		}
	}
	if n := d.count(t, twoAlive); n != 0 {
		t.Errorf("%d keys have two jobs", n)
	}
}

// The count of one group is wrong, so that the server refuses the end of its job. All others go on; and so does it, once it is right.
func aWrongCountStopsNoOthers(t *testing.T, d *env) {
	var told once
	o := queue.Options{Timeout: 30 * time.Second}
	trouble := make(chan struct{}, 1)
	o.Observer.Trouble = func(doing string, _ error) {
		if doing == "recording the end of a job" {
			select {
			case trouble <- struct{}{}:
			default:
			}
		}
	}
	q := d.open(t, o)
	hold, held := make(chan struct{}), make(chan struct{}, 1)
	handle(t, q, "held", func(context.Context, queue.Job[int]) error {
		held <- struct{}{}
		<-hold
		return nil
	})
	handle(t, q, "note", func(_ context.Context, job queue.Job[int]) error {
		told.did(job.ID)
		return nil
	})
	work(t, q, queue.WorkerOptions{Backoff: fast})
	wrong := enqueue(t, q, queue.Task{Kind: "held", Args: 0, Group: "wrong"}, queue.Task{Kind: "note", Args: 0, Group: "wrong"})
	wait(t, held, "the job of the group")
	d.exec(t, "UPDATE dblock_queue_key SET taken = 0 WHERE group_key = 'wrong'")
	close(hold)
	var made []queue.ID
	for n := range 100 {
		made = append(made, enqueue(t, q, queue.Task{Kind: "note", Args: n}, queue.Task{Kind: "note", Args: n, Group: fmt.Sprint(n % 5)},
			queue.Task{Kind: "note", Args: n, Unique: fmt.Sprint(n)})...)
	}
	suite.Until(t, "the other jobs are recorded", func() bool { return d.standing(t, made) == 0 })
	if err := told.check(made, true); err != nil {
		t.Error(err)
	}
	if n := d.standing(t, wrong); n != 2 {
		t.Errorf("%d jobs of the group stand, want both: the test shows nothing", n)
	}
	wait(t, trouble, "the trouble that is told")
	d.exec(t, "UPDATE dblock_queue_key SET taken = 1 WHERE group_key = 'wrong'")
	d.empty(t)
}

// Another transaction has locked the rows of three jobs that end: one is done, one dies, one is retried. Other jobs begin, end and fail
// meanwhile. These three end once the lock is released.
func aLockedJobStopsNoEnds(t *testing.T, d *env) {
	const others = 100
	q := d.open(t, queue.Options{Timeout: 30 * time.Second})
	hold, held := make(chan struct{}), make(chan queue.ID, 4)
	handle(t, q, "held", func(_ context.Context, job queue.Job[bool]) error {
		held <- job.ID
		<-hold
		if job.Args && job.Attempt == 1 {
			return errors.New("it fails")
		}
		return nil
	})
	handle(t, q, "note", func(_ context.Context, job queue.Job[int]) error {
		if job.Args%2 == 0 && job.Attempt == 1 {
			return errors.New("it fails")
		}
		return nil
	})
	work(t, q, queue.WorkerOptions{Promote: 20 * time.Millisecond, Backoff: fast})
	locked := enqueue(t, q, queue.Task{Kind: "held", Args: false}, queue.Task{Kind: "held", Args: true, MaxAttempts: 1},
		queue.Task{Kind: "held", Args: true})
	for range locked {
		wait(t, held, "a job whose row is to be locked")
	}
	tx, err := d.db.BeginTx(context.Background(), &sql.TxOptions{Isolation: sql.LevelReadCommitted}) // it locks no gaps
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	if _, err := tx.ExecContext(t.Context(), "SELECT job_id FROM dblock_queue_job FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	close(hold)
	var made []queue.ID
	for n := range others {
		made = append(made, enqueue(t, q, queue.Task{Kind: "note", Args: n})...)
	}
	suite.Until(t, "the other jobs are done", func() bool { return d.standing(t, made) == 0 })
	if n := d.standing(t, locked); n != 3 {
		t.Errorf("%d of the locked jobs are there, want 3", n)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	suite.Until(t, "the locked jobs have ended", func() bool { return d.standing(t, locked) == 0 })
}

// One message carries the ends of a job whose row another transaction has locked, and of 50 others. The others are recorded while that
// transaction is open, jobs that come later are done, and the server keeps no session for a statement whose caller has left.
func aLockedJobStopsNoEndsOfItsMessage(t *testing.T, d *env) {
	const others = 50
	q := d.open(t, queue.Options{Timeout: 3 * time.Second})
	hold, held := make(chan struct{}), make(chan struct{}, others+1)
	handle(t, q, "held", func(context.Context, queue.Job[int]) error {
		held <- struct{}{}
		<-hold
		return nil
	})
	handle(t, q, "note", func(context.Context, queue.Job[int]) error { return nil })
	work(t, q, queue.WorkerOptions{Exchanges: 1})
	tasks := make([]queue.Task, others+1)
	for i := range tasks {
		tasks[i] = queue.Task{Kind: "held", Args: i}
	}
	made, err := q.EnqueueMany(suite.Soon(t), tasks)
	if err != nil {
		t.Fatal(err)
	}
	for range tasks {
		wait(t, held, "a job")
	}
	tx, err := d.db.BeginTx(context.Background(), &sql.TxOptions{Isolation: sql.LevelReadCommitted}) // it locks no gaps
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	if _, err := tx.ExecContext(t.Context(), "SELECT job_id FROM dblock_queue_job ORDER BY job_id LIMIT 1 FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	close(hold)
	began, most := time.Now(), int64(0)
	suite.Until(t, "the other ends of the message are recorded", func() bool {
		most = max(most, d.sessions(t))
		return d.standing(t, made) == 1
	})
	if took := time.Since(began); took > 40*time.Second { // less than the 50 s after which the server gives up
		t.Errorf("the other ends of the message were recorded after %v", took)
	}
	var later []queue.ID
	for n := range others {
		later = append(later, enqueue(t, q, queue.Task{Kind: "note", Args: n})...)
	}
	suite.Until(t, "later jobs are done", func() bool {
		most = max(most, d.sessions(t))
		return d.standing(t, later) == 0
	})
	if n := d.standing(t, made); n != 1 {
		t.Errorf("%d of the first jobs are there, want the locked one", n)
	}
	if d.e.Kind != devdb.Postgres && most > queuePool {
		t.Errorf("the server had %d sessions, the pool is of %d", most, queuePool)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	d.empty(t)
}

// queuePool is the size of a Queue's pool in these tests, on MySQL and MariaDB.
const queuePool = 16

// sessions counts those of the database, but for the test's own.
func (d *env) sessions(t *testing.T) int64 {
	t.Helper()
	query := "SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE()"
	if d.e.Kind == devdb.Postgres {
		query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'"
	}
	return d.count(t, query) - int64(d.db.Stats().OpenConnections)
}
