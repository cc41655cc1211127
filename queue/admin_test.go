package queue

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// groupLocked is a driver on whose server the group of all jobs but one is locked.
type groupLocked struct {
	driver.Driver
	free   driver.ID
	tries  atomic.Int64
	waits  chan struct{} // gets one when a call waits for the row
	unlock chan struct{}
}

func (d *groupLocked) Admin() driver.Admin         { return lockedAdmin{} }
func (d *groupLocked) RowWaits() int               { return 8 }
func (d *groupLocked) Classify(error) sqlerr.Class { return sqlerr.Busy }

type lockedAdmin struct{ driver.Admin }

func (lockedAdmin) Find(_ context.Context, id driver.ID) (driver.Record, bool, error) {
	return driver.Record{ID: id, State: driver.Ready, GroupKey: "group"}, true, nil
}

func (d *groupLocked) Sync(ctx context.Context, x *driver.SyncBatch) (driver.SyncResult, error) {
	if x.Take.Job.ID == d.free {
		return driver.SyncResult{Completed: 1}, nil
	}
	d.tries.Add(1)
	if x.WaitsForRows {
		d.waits <- struct{}{}
		select {
		case <-d.unlock:
		case <-ctx.Done():
		}
	}
	return driver.SyncResult{}, errLocked
}

// TestCancelsOfALockedGroupLeaveRoom: many callers cancel jobs of a group that is locked for long,
// on a server that counts waits in seconds. One waits, all others try again and again, and jobs of
// other groups are cancelled meanwhile.
func TestCancelsOfALockedGroupLeaveRoom(t *testing.T) {
	t.Parallel()
	d := &groupLocked{free: driver.ID{255}, waits: make(chan struct{}, 100), unlock: make(chan struct{})}
	q := &Queue{driver: d, o: Options{Timeout: 20 * time.Second}, managing: newSemaphore(), rowWait: make(semaphore, 1)}
	q.db = newStatements(d, q.o.Timeout)
	q.notices = &notices{q: q, workers: make(map[*worker]struct{})}
	q.notices.sender = newSender(func(context.Context, []driver.Notification) error { return nil }, func(string, error) {})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 20)
	for i := range cap(ended) {
		go func() {
			_, err := q.Cancel(ctx, ID{byte(i)})
			ended <- err
		}()
	}
	<-d.waits
	for d.tries.Load() < 100 {
		if _, err := q.Cancel(t.Context(), ID(d.free)); err != nil {
			t.Fatal(err)
		}
	}
	if len(d.waits) > 0 || len(ended) > 0 {
		t.Errorf("%d more wait, and %d have ended, while one waits", len(d.waits), len(ended))
	}
	cancel()
	for range cap(ended) {
		if err := <-ended; err == nil {
			t.Error("a job of a locked group was cancelled")
		}
	}
}
