package pgqueue

import (
	"context"
	"testing"

	"github.com/dblock-go/dblock/internal/conformance/answers"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/queue"
	"github.com/dblock-go/dblock/queue/internal/driver"
	"github.com/dblock-go/dblock/queue/internal/link"
)

// failing is a driver whose insertions fail with err.
type failing struct {
	*database
	err error
}

func (f failing) Enqueue(context.Context, *driver.EnqueueRequest) ([]driver.Duplicate, error) {
	return nil, f.err
}

// TestPublicErrors: what a server reports has the same public error as in all other packages.
func TestPublicErrors(t *testing.T) {
	t.Parallel()
	answers.SameEverywhere(t, devdb.Postgres, func(err error) error {
		q, failed := link.NewQueue(queue.Options{}, func() (driver.Driver, error) { return failing{new(database), err}, nil })
		if failed != nil {
			t.Fatal(failed)
		}
		_, got := q.Enqueue(t.Context(), queue.Task{Queue: "queue", Kind: "kind", Args: 1})
		return got
	})
}
