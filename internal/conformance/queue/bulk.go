package queue

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/queue"
)

// Many jobs at once take several messages. Wherever the connection is cut, all of them are enqueued, or none, and the caller is told which.
func bulksSurviveLostReplies(t *testing.T, d *env) {
	const each = 1200
	dialer := new(faultconn.Dialer)
	q, closePool, err := d.e.OpenOn(t.Context(), d.dsn, dialer, queue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer closePool()
	defer func() { _ = q.Close(suite.Soon(t)) }()
	whole, none := 0, 0
	for n := 0; n < 48 || n < 480 && (whole == 0 || none == 0); n++ { // a busy machine takes more calls for the same
		name := fmt.Sprintf("bulk%d", n)
		tasks := make([]queue.Task, each)
		for i := range tasks {
			tasks[i] = queue.Task{Kind: "note", Queue: name, Args: i}
			if i%3 == 0 {
				tasks[i].Delay = time.Hour
			}
		}
		dialer.Arm(n/2+1, []faultconn.Mode{faultconn.CutBefore, faultconn.CutAfter}[n%2], nil)
		made, err := q.EnqueueMany(suite.Soon(t), tasks)
		dialer.Disarm()
		in := fmt.Sprintf(" WHERE queue = '%s'", name)
		jobs := d.count(t, "SELECT count(*) FROM dblock_queue_job"+in)
		places := d.count(t, "SELECT count(*) FROM dblock_queue_ready"+in) + d.count(t, "SELECT count(*) FROM dblock_queue_scheduled"+in)
		switch {
		case jobs != places || jobs != 0 && jobs != each:
			t.Errorf("%d: %d jobs, in %d places", n, jobs, places)
		case err == nil && (jobs != each || len(made) != each):
			t.Errorf("%d: %d of %d jobs, and no error", n, jobs, len(made))
		case err != nil && !errors.Is(err, dblock.ErrOutcomeUnknown) && jobs != 0:
			t.Errorf("%d: %d jobs, and %v", n, jobs, err)
		}
		if jobs == 0 {
			none++
		} else {
			whole++
		}
	}
	if whole == 0 || none == 0 {
		t.Errorf("%d bulks are enqueued, and %d are not: both should happen", whole, none)
	}
}
