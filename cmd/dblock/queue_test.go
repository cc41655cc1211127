package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/queue"
)

// enqueueOne enqueues a job as a service would.
func enqueueOne(t *testing.T, database string, task queue.Task) (id string) {
	t.Helper()
	err := databaseFlags{Database: strings.TrimPrefix(database, "--database=")}.withQueue(t.Context(), func(q *queue.Queue) error {
		made, err := q.Enqueue(t.Context(), task)
		id = made.String()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestQueue(t *testing.T) {
	each(t, func(t *testing.T, _ devdb.Kind, database string) {
		q := func(args ...string) result {
			return invoke(t, "", append([]string{"queue", args[0], database}, args[1:]...)...)
		}
		q("stats").wantFailure(t, 1, "migrate up")
		invoke(t, "", "migrate", "up", database).want(t, 0, "")
		q("stats").want(t, 0, "QUEUE")
		id := enqueueOne(t, database, queue.Task{Kind: "by \x1b[31mhand", Args: "ann"})
		later := enqueueOne(t, database, queue.Task{Kind: "later", Queue: "other", Delay: time.Hour})
		q("pause", "other").want(t, 0, "other is paused\n")
		q("pause", "othre").want(t, 0, "othre is paused; note: it has no jobs")
		q("resume", "othre", "--json").want(t, 0, `"empty":true`)
		var stats shownStats
		if err := json.Unmarshal([]byte(q("stats", "--json").out), &stats); err != nil || len(stats.Queues) != 2 || stats.Queues[0].Ready != 1 ||
			stats.Queues[1].Scheduled != 1 || !stats.Queues[1].Paused || stats.Queues[0].Paused {
			t.Errorf("%+v, %v", stats, err)
		}
		q("stats").want(t, 0, "for ")
		q("resume", "other", "--json").want(t, 0, `"paused":false`)
		shown := q("list")
		shown.want(t, 0, id)
		if strings.Contains(shown.out, "\x1b") {
			t.Errorf("shown as %q", shown.out)
		}
		var list []shownJob
		if err := json.Unmarshal([]byte(q("list", "--json", "--queue=other", "--state=scheduled").out), &list); err != nil || len(list) != 1 ||
			list[0].ID != later || list[0].State != "scheduled" || list[0].At.IsZero() {
			t.Errorf("%+v, %v", list, err)
		}
		q("show", id).want(t, 0, `"\"ann\""`)
		var job shownJob
		if err := json.Unmarshal([]byte(q("show", id, "--json").out), &job); err != nil || string(job.Payload) != `"ann"` {
			t.Errorf("%+v, %v", job, err)
		}
		q("retry", id).wantFailure(t, 1, "not dead")
		q("discard", id, "--reason=not wanted", "--history").want(t, 0, "discarded: "+id)
		q("list", "--state=dead").want(t, 0, "not wanted")
		q("retry", id).want(t, 0, "will run again: "+id)
		q("discard", id, "--history").want(t, 0, id)
		q("retry", "--all").want(t, 0, "1 jobs")
		q("discard", id, "--history").want(t, 0, id)
		q("purge", "--older=1h", "--json").want(t, 0, `{"purged":0}`)
		q("purge", "--older=0s").want(t, 0, "1 dead jobs")
		q("cancel", later, "--history").want(t, 0, "dropped "+later)
		q("cancel", later).wantFailure(t, 1, "was cancelled")
		q("show", later).want(t, 0, "cancelled")
		q("show", later, "--json").want(t, 0, `"last_error":"queue: the job was cancelled"`)
		q("list", "--state=discarded").want(t, 0, id)
		q("list", "--state=discarded", "--json").want(t, 0, `"last_error":"discarded by hand"`)
		q("list", "--state=cancelled", "--queue=other").want(t, 0, "the job was cancelled")
		q("list", "--state=retrying", "--json").want(t, 0, "[]")
		q("stats").want(t, 0, "RETRYING")
		for _, args := range [][]string{
			{"pause", ""}, {"resume", ""}, {"list", "--queue="}, {"retry", "--all", "--queue="}, {"purge", "--older=0s", "--queue="},
		} {
			q(args...).wantFailure(t, 2, "name the queue")
		}
		r := q("cancel", "00000000-0000-0000-0000-000000000001", "--json")
		if r.code != exitFailed || strings.Contains(r.out, `"was"`) || !strings.Contains(r.out, "no such job") {
			t.Errorf("of a job that never was: %+v", r)
		}
		q("show", "nonsense").wantFailure(t, 2, "not a UUID")
		q("list", "--limit=1001").wantFailure(t, 2, "1001")
		q("purge", "--older=-1h").wantFailure(t, 2, "age")
		q("list", "--state=nonsense").wantFailure(t, 2, "there is no")
		q("retry").wantFailure(t, 2, "--all")
		q("purge").wantFailure(t, 2, "--older")
	})
}
