package queue

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/queue"
)

// RunReadOnly enqueues and works while the server becomes read-only and back.
func (e Queue) RunReadOnly(t *testing.T) {
	s := suite.NewReadOnlyServer(t, e.Kind)
	if s == nil {
		return
	}
	q, done, err := e.Open(t.Context(), s.DSN, queue.Options{TTL: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	defer func() { require.NoError(t, q.Close(t.Context())) }()
	begun, proceed := make(chan int, 100), make(chan struct{})
	if err := queue.Handle(q, "k", func(_ context.Context, job queue.Job[int]) error {
		begun <- job.Args
		if job.Args == 1 {
			<-proceed
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	enqueue := func(n int) error {
		_, err := q.Enqueue(t.Context(), queue.Task{Kind: "k", Args: n})
		return err
	}
	require.NoError(t, enqueue(1))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- q.Work(ctx, queue.WorkerOptions{}) }()
	defer func() { stop(); require.NoError(t, <-ended) }()
	if n := <-begun; n != 1 {
		t.Fatalf("job %d began", n)
	}
	s.Become(t, true)
	suite.SaysReadOnly(t, "enqueuing", enqueue(2))
	close(proceed)
	s.Become(t, false)
	require.NoError(t, enqueue(3))
	for range 2 { // job 1 again if its end was not recorded in time
		if n := <-begun; n == 3 {
			break
		}
	}
	suite.Until(t, "all jobs are done", func() bool {
		var n int
		if err := s.DB.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM dblock_queue_job").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 0
	})
}
