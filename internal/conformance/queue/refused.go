package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/queue"
)

// mixed are tasks of which some are of the kind "banned": some with groups, with unique keys, for
// later, and with one attempt.
func mixed(n int, name string) []queue.Task {
	tasks := repeat(n, queue.Task{Kind: "note"})
	for i := range tasks {
		switch i % 4 {
		case 1:
			tasks[i].Group = fmt.Sprint(i % 3)
		case 2:
			tasks[i].Unique = fmt.Sprint(name, i)
		case 3:
			tasks[i].MaxAttempts = 1
		}
		if i/4 == 3 {
			tasks[i].Kind, tasks[i].Group = "banned", ""
		}
	}
	return tasks
}

// A trigger refuses to insert jobs of one kind, with each kind of error that a trigger has. Jobs of
// other kinds that share a statement with these are enqueued.
func (mainTests) ARefusedTaskFailsAlone(t *testing.T, d *env) {
	refusals, waits := d.Refusals(t)
	if !d.Postgres() {
		delete(waits, "a lock timeout") // after which a statement waits again
	}
	q := d.open(t, queue.Options{})
	for name, statement := range suite.Both(refusals, waits) {
		drop := d.Trigger(t, "AFTER INSERT", "dblock_queue_job", "NEW.kind = 'banned'", statement)
		tasks := mixed(48, name)
		suite.Crowd(len(tasks), func(i int) {
			if _, err := q.Enqueue(suite.Soon(t), tasks[i]); tasks[i].Kind == "banned" {
				assert.Error(t, err, name)
			} else {
				assert.NoError(t, err, name)
			}
		})
		drop()
	}
	d.rows(t, "job WHERE kind = 'banned'", 0)
}

// A trigger refuses the ends, and the beginnings, of jobs of one kind. Jobs of other kinds that are
// claimed with these end. Those that were refused end when the trigger is gone.
func (mainTests) ARefusedEndFailsAlone(t *testing.T, d *env) {
	refusals, waits := d.Refusals(t)
	q := d.open(t, queue.Options{})
	handle(t, q, "note", nop)
	handle(t, q, "banned", nop)
	work(t, q, queue.WorkerOptions{Poll: 10 * time.Millisecond, Backoff: fast})
	for _, event := range []string{"DELETE", "UPDATE"} {
		for name, statement := range suite.Both(refusals, waits) {
			drop := d.Trigger(t, "AFTER "+event, "dblock_queue_job", "OLD.kind = 'banned'", statement)
			made := enqueueMany(t, q, mixed(48, event+name))
			d.ended(t, append(made[:12:12], made[16:]...))
			if event == "DELETE" {
				assert.Equal(t, 4, d.standing(t, made), name)
			}
			drop()
		}
	}
	d.empty(t)
	d.rows(t, "dead", 0)
}

// A trigger refuses the claims of the first job. Those behind it are claimed and end, and that job
// is claimed when the trigger is gone.
func (mainTests) ARefusedClaimStopsNoOthers(t *testing.T, d *env) {
	refusals, waits := d.Refusals(t)
	for _, statement := range []string{refusals["a unique index"], waits[suite.Conflict]} {
		q := d.open(t, queue.Options{})
		handle(t, q, "note", nop)
		drop := d.Trigger(t, "AFTER DELETE", "dblock_queue_ready", "OLD.priority = -5", statement)
		first := enqueue(t, q, queue.Task{Kind: "note", Priority: -5})
		made := enqueueMany(t, q, mixed(48, "")[:12])
		stop := work(t, q, queue.WorkerOptions{Poll: 10 * time.Millisecond})
		d.ended(t, made)
		assert.Equal(t, 1, d.standing(t, first))
		drop()
		d.empty(t)
		assert.NoError(t, stop())
	}
}
