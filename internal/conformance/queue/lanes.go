package queue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/queue"
)

// An open transaction has locked a group and has taken a unique key. Calls of several keys that need one of the two wait for it. Other calls
// with the keys that sort before it pass meanwhile.
func aCallOfSeveralKeysStopsNobody(t *testing.T, d *env) {
	const strangers = 20
	q := d.open(t, queue.Options{Timeout: 20 * time.Second})
	tx := d.openTx(t)
	if _, err := d.e.EnqueueTx(t.Context(), q, tx, queue.Task{Kind: "note", Args: 0, Group: "m-locked"},
		queue.Task{Kind: "note", Args: 0, Unique: "m-locked"}); err != nil {
		t.Fatal(err)
	}
	calls := [][]queue.Task{
		{{Kind: "note", Args: 1, Group: "a-first"}, {Kind: "note", Args: 1, Group: "m-locked"}},
		{{Kind: "note", Args: 1, Group: "m-locked"}, {Kind: "note", Args: 1, Group: "z-last"}},
		{{Kind: "note", Args: 1, Unique: "a-first"}, {Kind: "note", Args: 1, Unique: "m-locked"}},
		{{Kind: "note", Args: 1, Unique: "b-first", Group: "m-locked"}},
	}
	answers := make(chan error, 3*len(calls))
	for range 3 {
		for _, tasks := range calls {
			go func() {
				_, err := q.EnqueueMany(suite.Soon(t), tasks)
				answers <- err
			}()
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second) // less than the calls wait
	defer cancel()
	for n := range strangers {
		for _, task := range []queue.Task{
			{Group: "a-first"}, {Unique: fmt.Sprint("a-first", n)}, {Unique: "a-first"}, {Group: "z-last"}, {Group: "m-locked", Delay: time.Hour}, {},
		} {
			task.Kind, task.Args = "note", 2
			if _, err := q.Enqueue(ctx, task); err != nil && !errors.Is(err, queue.ErrDuplicate) {
				t.Fatalf("a call beside those that wait: %+v: %v", task, err)
			}
		}
	}
	if len(answers) > 0 {
		t.Errorf("a call did not wait: %v", <-answers)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	for range 3 * len(calls) {
		if err := wait(t, answers, "a call"); err != nil && !errors.Is(err, queue.ErrDuplicate) {
			t.Error(err)
		}
	}
	for group, want := range map[string]int64{"a-first": strangers + 3, "m-locked": 1 + strangers + 7, "z-last": strangers + 3} {
		if n := d.count(t, "SELECT count(*) FROM dblock_queue_job WHERE group_key = '"+group+"'"); n != want {
			t.Errorf("group %s has %d jobs, want %d", group, n, want)
		}
	}
}

// One transaction has locked a hundred groups that have due jobs. A worker promotes jobs without a group, and of other groups, meanwhile.
func lockedGroupsDelayNoOthers(t *testing.T, d *env) {
	const locked = 100
	q := d.open(t, queue.Options{})
	var tasks, late []queue.Task
	for n := range locked {
		task := queue.Task{Kind: "note", Args: n, Group: fmt.Sprint("locked ", n)}
		tasks = append(tasks, task)
		task.Delay = time.Microsecond
		late = append(late, task)
	}
	first, err := q.EnqueueMany(suite.Soon(t), tasks) // so that the groups have rows
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.EnqueueMany(suite.Soon(t), late); err != nil {
		t.Fatal(err)
	}
	tx, err := d.db.BeginTx(context.Background(), &sql.TxOptions{Isolation: sql.LevelReadCommitted}) // it locks no gaps
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	if _, err := tx.ExecContext(t.Context(), "SELECT queue FROM dblock_queue_key FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		enqueue(t, q, queue.Task{Kind: "note", Args: n, Delay: time.Microsecond}, queue.Task{Kind: "note", Args: n, Group: fmt.Sprint(n), Delay: time.Microsecond})
		if n, err := q.Promote(suite.Soon(t)); err != nil || n != 2 {
			t.Errorf("%d jobs are promoted, %v; want that of another group and that of none", n, err)
		}
	}
	if n := d.count(t, "SELECT count(*) FROM dblock_queue_scheduled"); n != locked {
		t.Errorf("%d jobs of locked groups wait, want %d", n, locked)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	promoted := 0
	suite.Until(t, "the jobs of the groups are promoted", func() bool {
		n, err := q.Promote(suite.Soon(t))
		if err != nil {
			t.Fatal(err)
		}
		promoted += n
		return promoted >= locked
	})
	if n := d.count(t, "SELECT count(*) FROM dblock_queue_blocked"); n != int64(len(first)) {
		t.Errorf("%d jobs wait in their groups, want %d", n, len(first))
	}
}
