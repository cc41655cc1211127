package queue

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/migrations"
	"github.com/dblock-go/dblock/queue"
)

func enqueuesInATransaction(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	done := make(chan int, 10)
	handle(t, q, "note", func(_ context.Context, job queue.Job[int]) error {
		done <- job.Args
		return nil
	})
	work(t, q, queue.WorkerOptions{Poll: 10 * time.Millisecond, Promote: 10 * time.Millisecond})
	for n, commit := range []bool{false, true} {
		tx, err := d.db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		made, err := d.e.EnqueueTx(t.Context(), q, tx, queue.Task{Kind: "note", Args: n},
			queue.Task{Kind: "note", Args: n, Delay: time.Millisecond}, queue.Task{Kind: "note", Args: n})
		if err != nil || len(made) != 3 {
			t.Fatal(made, err)
		}
		if _, err := d.e.EnqueueTx(t.Context(), q, tx, queue.Task{Kind: "note", Args: n}, queue.Task{}); !errors.Is(err, dblock.ErrInvalid) {
			t.Errorf("a bad task: %v", err)
		}
		if none, err := d.e.EnqueueTx(t.Context(), q, tx); err != nil || len(none) != 0 {
			t.Error(none, err)
		}
		if commit {
			err = tx.Commit()
		} else {
			err = tx.Rollback()
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.e.EnqueueTx(t.Context(), q, tx, queue.Task{Kind: "note", Args: n}); err == nil {
			t.Error("a transaction that has ended took a job")
		}
	}
	for range 3 {
		if got := wait(t, done, "a job"); got != 1 {
			t.Error("a job of a transaction that was rolled back was done")
		}
	}
	d.empty(t)
}

func enqueuesAllOrNone(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	tasks := []queue.Task{{Kind: "note", Args: 1}, {Kind: "note", Args: make(chan int)}, {Kind: "note", Args: 3}}
	if made, err := q.EnqueueMany(t.Context(), tasks); !errors.Is(err, dblock.ErrInvalid) || made != nil || !strings.Contains(err.Error(), "note") {
		t.Errorf("%v, %v", made, err)
	}
	if n := d.count(t, "SELECT count(*) FROM dblock_queue_job"); n != 0 {
		t.Errorf("%d jobs", n)
	}
	if made, err := q.EnqueueMany(t.Context(), nil); made != nil || err != nil {
		t.Errorf("%v, %v", made, err)
	}
	large := strings.Repeat("x", queue.MaxPayloadBytes-2)
	tasks = nil
	for range 9 {
		tasks = append(tasks, queue.Task{Kind: "note", Args: large})
	}
	if made, err := q.EnqueueMany(suite.Soon(t), tasks); err != nil || len(made) != 9 {
		t.Errorf("9 MiB: %d, %v", len(made), err)
	}
	if n := d.count(t, "SELECT count(*) FROM dblock_queue_ready"); n != 9 {
		t.Errorf("%d ready", n)
	}
}

func refusesBadTasks(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	long := strings.Repeat("x", queue.MaxNameBytes+1)
	for what, task := range map[string]queue.Task{
		"no kind":               {},
		"a long kind":           {Kind: long},
		"a kind with NUL":       {Kind: "a\x00b"},
		"a kind of other bytes": {Kind: "a\xff"},
		"a long queue":          {Kind: "k", Queue: long},
		"a negative delay":      {Kind: "k", Delay: -1},
		"a delay for ever":      {Kind: "k", Delay: math.MaxInt64},
		"no attempts":           {Kind: "k", MaxAttempts: -1},
		"too many attempts":     {Kind: "k", MaxAttempts: math.MaxInt16 + 2},
		"a long unique key":     {Kind: "k", Unique: long + long},
		"a group with NUL":      {Kind: "k", Group: "a\x00b"},
		"less than none":        {Kind: "k", Group: "a", AtMost: -1},
		"a limit of nothing":    {Kind: "k", AtMost: 2},
		"too high a limit":      {Kind: "k", Group: "a", AtMost: queue.MaxAtMost + 1},
		"10 MB":                 {Kind: "k", Args: strings.Repeat("x", 10_000_000)},
		"what JSON has not":     {Kind: "k", Args: math.Inf(1)},
	} {
		var invalid *dblock.InvalidError
		if id, err := q.Enqueue(t.Context(), task); !errors.As(err, &invalid) || id != (queue.ID{}) || invalid.Field == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := q.EnqueueMany(t.Context(), make([]queue.Task, queue.MaxTasks+1)); !errors.Is(err, dblock.ErrInvalid) {
		t.Error(err)
	}
	nothing := func(context.Context, queue.Job[int]) error { return nil }
	handle(t, q, "k", nothing)
	for what, err := range map[string]error{
		"two handlers": queue.Handle(q, "k", nothing),
		"no kind":      queue.Handle(q, "", nothing),
		"no handler":   queue.Handle[int](q, "other", nil),
		"a nil option": queue.Handle(q, "other", nothing, nil),
	} {
		if !errors.Is(err, dblock.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := queue.ParseID("4711"); !errors.Is(err, dblock.ErrInvalid) {
		t.Error(err)
	}
	if n := d.count(t, "SELECT count(*) FROM dblock_queue_job"); n != 0 {
		t.Errorf("%d jobs", n)
	}
}

func refusesBadWorkers(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	for what, o := range map[string]queue.WorkerOptions{
		"a long queue":         {Queue: strings.Repeat("x", queue.MaxNameBytes+1)},
		"no handlers":          {Concurrency: -1},
		"too many handlers":    {Concurrency: 1 << 20},
		"a negative batch":     {Batch: -1},
		"a large batch":        {Batch: 5001},
		"a negative look":      {Poll: -1},
		"too seldom a look":    {Poll: time.Hour},
		"too many exchanges":   {Exchanges: 17},
		"promotions too often": {Promote: time.Hour},
	} {
		if err := q.Work(t.Context(), o); !errors.Is(err, dblock.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, o := range map[string]queue.Options{
		"a short TTL":     {TTL: time.Millisecond},
		"a short timeout": {Timeout: time.Millisecond},
		"a schema":        {Schema: "a\x00"},
		"a label":         {Label: strings.Repeat("x", 256)},
		"a queue":         {MaxQueue: -1},
	} {
		if _, _, err := d.e.Open(t.Context(), d.dsn, o); !errors.Is(err, dblock.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func queueRefusesOnceClosed(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	handle(t, q, "note", func(context.Context, queue.Job[int]) error { return nil })
	stop := work(t, q, queue.WorkerOptions{})
	enqueue(t, q, queue.Task{Kind: "note", Args: 1})
	d.empty(t)
	if err := q.Close(suite.Soon(t)); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Errorf("work: %v", err)
	}
	if n := d.count(t, "SELECT count(*) FROM dblock_member"); n != 0 {
		t.Errorf("%d members", n)
	}
	if _, err := q.Enqueue(t.Context(), queue.Task{Kind: "note", Args: 1}); !errors.Is(err, dblock.ErrClosed) {
		t.Errorf("enqueue: %v", err)
	}
	if err := q.Work(t.Context(), queue.WorkerOptions{}); !errors.Is(err, dblock.ErrClosed) {
		t.Errorf("work: %v", err)
	}
	if err := q.Close(t.Context()); err != nil {
		t.Errorf("a second close: %v", err)
	}
}

func queueChecksTheTables(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	d.exec(t, "INSERT INTO dblock_schema_version (version_id, is_applied) VALUES (999, true)")
	var wrong *dblock.SchemaError
	if _, _, err := d.e.Open(t.Context(), d.dsn, queue.Options{}); !errors.As(err, &wrong) || wrong.Have != 999 {
		t.Errorf("a newer schema: %v", err)
	}
	d.exec(t, "DELETE FROM dblock_schema_version WHERE version_id = 999")
	suite.RefusesUnsafeTables(t, d.e.Kind, "dblock_queue_job", func(statement string) { t.Helper(); d.exec(t, statement) }, func() error {
		opened, closePool, err := d.e.Open(t.Context(), d.dsn, queue.Options{})
		if err == nil {
			err = opened.Close(t.Context())
			closePool()
		}
		return err
	})
	d.exec(t, "ALTER TABLE dblock_queue_job DROP COLUMN group_most")
	if _, _, err := d.e.Open(t.Context(), d.dsn, queue.Options{}); !suite.IsDifferent(err, "dblock_queue_job.group_most") {
		t.Errorf("a column is missing: %v", err)
	}
	if err := suite.RefusesBadSessions(t, d.e.Kind, d.dsn, func(dsn string) error { _, _, err := d.e.Open(t.Context(), dsn, queue.Options{}); return err }); err != nil {
		t.Error(err)
	}
	d.exec(t, "DROP TABLE dblock_queue_ready")
	if _, err := q.Enqueue(t.Context(), queue.Task{Kind: "k", Args: 1}); !errors.Is(err, dblock.ErrSchema) {
		t.Errorf("tables that went away: %v", err)
	}
}

// queuesInASchema has the tables where the connection does not look by itself.
func queuesInASchema(t *testing.T, d *env) {
	name := "elsewhere"
	if d.e.Kind != devdb.Postgres { // databases are the server's
		name = d.text(t, "SELECT DATABASE()") + "_e"
		d.exec(t, "CREATE DATABASE "+name)
		t.Cleanup(func() { _, _ = d.db.ExecContext(context.WithoutCancel(t.Context()), "DROP DATABASE "+name) })
	}
	if _, err := migrations.Up(t.Context(), d.db, migrations.Options{Schema: name}); err != nil {
		t.Fatal(err)
	}
	d.everything(t, d, queue.Options{Schema: name})
	for _, table := range []string{"job", "dead"} {
		if n := d.count(t, "SELECT count(*) FROM dblock_queue_"+table); n != 0 {
			t.Errorf("%d in the schema where it should not look", n)
		}
	}
	if n := d.count(t, "SELECT count(*) FROM "+name+".dblock_queue_dead"); n != 1 {
		t.Errorf("%d dead", n)
	}
}

func queuesWithTheDocumentedGrants(t *testing.T, d *env) {
	d.everything(t, &env{d.e, suite.ServiceUser(t, d.e.Kind, d.dsn, d.db), d.db}, queue.Options{})
}

// everything runs every statement once.
func (d *env) everything(t *testing.T, as *env, o queue.Options) {
	t.Helper()
	dead := make(chan error, 1)
	o.Observer.Dead = func(_ queue.Info, err error) { dead <- err }
	o.Observer.Trouble = func(doing string, err error) { t.Errorf("%s: %v", doing, err) }
	elected := make(chan string, 20)
	o.Observer.Elected = func(duty string, is bool) {
		if is {
			elected <- duty
		}
	}
	q := as.open(t, o)
	handle(t, q, "note", func(_ context.Context, job queue.Job[int]) error {
		switch {
		case job.Attempt == 1:
			return fmt.Errorf("attempt %d", job.Attempt)
		case job.Args == 0:
			return queue.Discard(errBadDay)
		}
		return nil
	})
	handleTx(t, as, q, "follow", func(ctx context.Context, tx HandlerTx, job queue.Job[int]) error {
		_, err := tx.Enqueue(ctx, queue.Task{Kind: "note", Args: job.Args, Group: "g"})
		return err
	})
	enqueue(t, q, queue.Task{Kind: "follow", Args: 1}, queue.Task{Kind: "follow", Args: 1, Group: "h", Unique: "follow"})
	for n := range 3 {
		enqueue(t, q, queue.Task{Kind: "note", Args: n, Delay: time.Duration(n) * time.Millisecond})
		enqueue(t, q, queue.Task{Kind: "note", Args: n + 1, Delay: time.Duration(n) * time.Millisecond, Group: "g", Unique: fmt.Sprint(n)})
	}
	if _, err := q.Enqueue(t.Context(), queue.Task{Kind: "note", Args: 1, Unique: "2"}); err != nil && !errors.Is(err, queue.ErrDuplicate) {
		t.Error(err)
	}
	tx, err := d.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.e.EnqueueTx(t.Context(), q, tx, queue.Task{Kind: "note", Args: 1}, queue.Task{Kind: "note", Args: 1, Group: "g", AtMost: 2, Unique: "tx"}); err != nil {
		t.Error(err)
	}
	if err := tx.Commit(); err != nil {
		t.Error(err)
	}
	work(t, q, queue.WorkerOptions{Backoff: fast, Promote: 10 * time.Millisecond, Rescue: 10 * time.Millisecond})
	for duties := map[string]bool{}; !duties["promote"] || !duties["rescue"]; {
		duties[wait(t, elected, "the election of who looks after the queue")] = true
	}
	if err := wait(t, dead, "the one that is discarded"); !errors.Is(err, errBadDay) {
		t.Error(err)
	}
	in := ""
	if o.Schema != "" {
		in = o.Schema + "."
	}
	d.until(t, "SELECT count(*) FROM "+in+"dblock_queue_job", 0)
	if _, _, err := q.Rescue(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := q.Promote(t.Context()); err != nil {
		t.Error(err)
	}
}
