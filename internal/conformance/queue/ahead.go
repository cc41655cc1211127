package queue

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/queue"
)

// stranded is a worker that has claimed ahead, and whose handlers block.
type stranded struct {
	q    *queue.Queue
	rest []queue.ID   // jobs behind those that block
	ran  atomic.Int32 // of them
	end  chan struct{}
}

// strand has a worker do many quick jobs, so that it claims ahead, and then block. Behind these jobs are others.
func (d *env) strand(t *testing.T) *stranded {
	t.Helper()
	const quick, handlers, rest = 600, 4, 40
	s := &stranded{q: d.open(t, queue.Options{}), end: make(chan struct{})}
	blocks := make(chan struct{}, handlers)
	handle(t, s.q, "quick", nop)
	handle(t, s.q, "block", func(context.Context, queue.Job[int]) error {
		blocks <- struct{}{}
		<-s.end
		return nil
	})
	handle(t, s.q, "rest", func(context.Context, queue.Job[int]) error {
		s.ran.Add(1)
		return nil
	})
	var tasks []queue.Task
	for kind, n := range map[string]int{"quick": quick, "block": handlers, "rest": rest} {
		for i := range n {
			tasks = append(tasks, queue.Task{Kind: kind, Args: i, Priority: int16(slices.Index([]string{"quick", "block", "rest"}, kind))})
		}
	}
	made, err := s.q.EnqueueMany(t.Context(), tasks)
	if err != nil {
		t.Fatal(err)
	}
	for i, task := range tasks {
		if task.Kind == "rest" {
			s.rest = append(s.rest, made[i])
		}
	}
	work(t, s.q, queue.WorkerOptions{Concurrency: handlers, Exchanges: 1}) // two overtake each other
	for range handlers {
		wait(t, blocks, "a job that blocks")
	}
	return s
}

// ready fails unless all jobs behind those that block are ready, in their order, and have had no attempt.
func (s *stranded) ready(t *testing.T) {
	t.Helper()
	suite.Until(t, "the jobs are ready in their order", func() bool {
		found, err := s.q.List(suite.Soon(t), queue.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		var order []queue.ID
		for _, r := range found {
			if order = append(order, r.ID); r.Attempts != 0 {
				t.Errorf("job %v has had %d attempts", r.ID, r.Attempts)
			}
		}
		return slices.Equal(order, s.rest)
	})
	if n := s.ran.Load(); n != 0 {
		t.Errorf("%d of them began", n)
	}
}

// Jobs that wait for handlers which block are handed back, and another process does them meanwhile.
func handsBackWhatIsStranded(t *testing.T, d *env) {
	s := d.strand(t)
	s.ready(t)
	other := d.open(t, queue.Options{})
	done := make(chan queue.ID, 1000)
	handle(t, other, "rest", func(_ context.Context, job queue.Job[int]) error {
		if job.Attempt != 1 {
			t.Errorf("attempt %d", job.Attempt)
		}
		done <- job.ID
		return nil
	})
	work(t, other, queue.WorkerOptions{})
	for range s.rest {
		wait(t, done, "a job of a worker that blocks")
	}
	close(s.end)
	d.empty(t)
	if n := s.ran.Load() + int32(len(done)); n != 0 {
		t.Errorf("%d jobs were done twice", n)
	}
}

// Of a queue that is paused, jobs which have not begun are handed back: at once in the process that pauses it.
func handsBackWhatIsPaused(t *testing.T, d *env) {
	s := d.strand(t)
	if err := s.q.Pause(suite.Soon(t), ""); err != nil {
		t.Fatal(err)
	}
	close(s.end)
	s.ready(t)
	d.until(t, "SELECT count(*) FROM dblock_queue_claim", 0)
	if err := s.q.Resume(suite.Soon(t), ""); err != nil {
		t.Fatal(err)
	}
	d.empty(t)
	if n := int(s.ran.Load()); n != len(s.rest) {
		t.Errorf("%d of %d jobs were done", n, len(s.rest))
	}
}

// Another process pauses the queue. A worker hands back the jobs that it has claimed and not begun, and begins none until another process
// resumes the queue.
func aPauseReachesOtherProcesses(t *testing.T, d *env) {
	s := d.strand(t)
	other := d.open(t, queue.Options{})
	if err := other.Pause(suite.Soon(t), ""); err != nil {
		t.Fatal(err)
	}
	s.ready(t)
	close(s.end)
	d.until(t, "SELECT count(*) FROM dblock_queue_claim", 0)
	s.rest = append(s.rest, enqueue(t, other, queue.Task{Kind: "rest", Args: -1, Priority: 2})...)
	s.ready(t)
	if err := other.Resume(suite.Soon(t), ""); err != nil {
		t.Fatal(err)
	}
	d.empty(t)
	if n := int(s.ran.Load()); n != len(s.rest) {
		t.Errorf("%d of %d jobs were done", n, len(s.rest))
	}
}
