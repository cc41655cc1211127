package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dblock-go/dblock/queue"
)

// historyKeepsReasons has jobs end in each way. History says why a job was cancelled or given up, and nothing of one that is done.
func historyKeepsReasons(t *testing.T, d *env) {
	q := d.open(t, queue.Options{History: 1})
	odd := errors.New("it's \\ 100 % \"gone\" – " + strings.Repeat("é", 600))
	for kind, err := range map[string]error{
		"does": nil, "drops": queue.Cancel(odd), "discards": fmt.Errorf("order 7: %w", queue.Discard(odd)), "fails": odd,
	} {
		handle(t, q, kind, func(context.Context, queue.Job[int]) error { return err })
	}
	type end struct {
		state  queue.State
		reason string
	}
	want := map[queue.ID]end{}
	waiting := enqueue(t, q, queue.Task{Kind: "drops", Queue: "waits"}, queue.Task{Kind: "drops", Queue: "waits"})
	if _, err := q.Cancel(t.Context(), waiting[0]); err != nil {
		t.Fatal(err)
	}
	want[waiting[0]] = end{queue.Cancelled, queue.ErrCancelled.Error()}
	for _, step := range []func() error{ // it is kept as it ended last
		func() error { return q.Discard(t.Context(), waiting[1], "no more") },
		func() error { return q.Retry(t.Context(), waiting[1]) },
		func() error { _, err := q.Cancel(t.Context(), waiting[1]); return err },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	want[waiting[1]] = want[waiting[0]]
	made := enqueue(t, q, queue.Task{Kind: "does"}, queue.Task{Kind: "drops"}, queue.Task{Kind: "discards"}, queue.Task{Kind: "fails", MaxAttempts: 1})
	want[made[0]], want[made[1]] = end{queue.Finished, ""}, end{queue.Cancelled, odd.Error()}
	want[made[2]], want[made[3]] = end{queue.GivenUp, "order 7: " + odd.Error()}, end{queue.GivenUp, odd.Error()}
	work(t, q, queue.WorkerOptions{})
	d.empty(t)
	for _, id := range made[2:] {
		if _, err := q.Cancel(t.Context(), id); err != nil { // it is among the dead until then
			t.Error(err)
		}
	}
	listed := map[queue.ID]end{}
	for _, name := range []string{"default", "waits"} {
		for _, state := range []queue.State{queue.Finished, queue.Cancelled, queue.GivenUp} {
			list, err := q.List(t.Context(), queue.Filter{Queue: name, State: state})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range list {
				listed[r.ID] = end{r.State, r.LastError}
			}
		}
	}
	for id, want := range want {
		if listed[id] != want {
			t.Errorf("job %v is listed as %+v, want %+v", id, listed[id], want)
		}
		if r, err := q.Show(t.Context(), id); err != nil || (end{r.State, r.LastError}) != want {
			t.Errorf("job %v is shown as %v with %q, want %+v: %v", id, r.State, r.LastError, want, err)
		}
	}
}
