package queue

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/queue"
)

// schedule writes only the rows of scheduled jobs, in n queues whose names begin with a prefix.
func (d *env) schedule(t *testing.T, prefix string, n, jobs int) {
	t.Helper()
	d.exec(t, fmt.Sprintf("INSERT INTO dblock_queue_scheduled (run_at, job_id, queue, priority) "+
		d.sql("SELECT now() + interval '1 hour', gen_random_uuid(), '%[1]s' || n %% %[2]d, 0 FROM generate_series(1, %[3]d) n",
			"SELECT TIMESTAMPADD(HOUR, 1, UTC_TIMESTAMP(6)), UNHEX(SUBSTRING(SHA2(CONCAT('%[1]s', n), 256), 1, 32)), "+
				"CONCAT('%[1]s', n %% %[2]d), 0 FROM "+numbers+" i WHERE n < %[3]d"), prefix, n, jobs))
}

// There are 25 queues with 3,000 scheduled jobs each, and one with so many that counting stops. None is
// counted less for the others, and none is left out.
func countsEachQueueApart(t *testing.T, d *env) {
	const queues, each = 25, 3000
	d.schedule(t, "q", queues, queues*each)
	d.schedule(t, "z", 1, 10_500)
	stats := suite.Must(d.open(t, queue.Options{}).Stats(t.Context()))(t)
	assert.Len(t, stats.Queues, queues+1)
	for _, q := range stats.Queues {
		want := each
		if q.Queue == "z0" {
			want = queue.MaxCounted
		}
		assert.Equal(t, want, q.Scheduled, "scheduled jobs of queue %s", q.Queue)
	}
}

// The scheduled jobs of a queue are behind more than 10,000 of another one. They are listed in the order of their times.
func listsBehindOtherQueues(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	d.schedule(t, "z", 1, 10_500)
	var want []queue.ID
	made := make(map[int]queue.ID)
	for _, hours := range []int{5, 2, 3, 4, 6} {
		made[hours] = enqueue(t, q, queue.Task{Kind: "x", Delay: time.Duration(hours) * time.Hour})[0]
	}
	for hours := 2; hours <= 6; hours++ {
		want = append(want, made[hours])
	}
	assert.Equal(t, want, idsOf(suite.Must(q.List(t.Context(), queue.Filter{State: queue.Scheduled}))(t)))
}

func idsOf(list []queue.Record) (ids []queue.ID) {
	for _, r := range list {
		ids = append(ids, r.ID)
	}
	return ids
}

// Of four jobs one failed, the process of one was killed, one was snoozed, and one is delayed. The first two are retrying.
func tellsRetriesApart(t *testing.T, d *env) {
	q := d.open(t, queue.Options{})
	handle(t, q, "note", func(context.Context, queue.Job[int]) error { return errors.New("not now") },
		queue.Backoff(func(int, error) time.Duration { return time.Hour }))
	handle(t, q, "snooze", func(context.Context, queue.Job[int]) error { return queue.Snooze(time.Hour) })
	gone := d.killed(t, q, queue.Task{Kind: "note"})
	rescue(t, q, 1, 0)
	made := enqueue(t, q, queue.Task{Kind: "note"}, queue.Task{Kind: "snooze"}, queue.Task{Kind: "note", Delay: time.Hour})
	work(t, q, queue.WorkerOptions{})
	d.until(t, "SELECT count(*) FROM dblock_queue_scheduled", 4)
	for state, want := range map[queue.State][]queue.ID{
		queue.Retrying: {gone[0], made[0]}, queue.Scheduled: {made[1], made[2]},
	} {
		list := suite.Must(q.List(t.Context(), queue.Filter{State: state}))(t)
		assert.ElementsMatch(t, want, idsOf(list), "listed as %v", state)
		for _, id := range want {
			list = append(list, suite.Must(q.Show(t.Context(), id))(t))
		}
		for _, r := range list {
			assert.Equal(t, state, r.State, "job %v", r.ID)
			assert.Equal(t, state == queue.Retrying, r.LastError != "", "job %v has an error", r.ID)
		}
	}
	stats := suite.Must(q.Stats(t.Context()))(t)
	require.Len(t, stats.Queues, 1)
	assert.Equal(t, []int{2, 2}, []int{stats.Queues[0].Retrying, stats.Queues[0].Scheduled})
	cancel(t, q, made[0], queue.Retrying)
	assert.NoError(t, q.Discard(t.Context(), gone[0], "no more"))
}
