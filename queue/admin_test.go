package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
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

// queueLocked is a driver on whose server the rows of queues are locked until unlock is closed, but
// for that of the queue "free".
type queueLocked struct {
	driver.Driver
	row *pausedRow
}

type pausedRow struct {
	driver.Admin
	waits, most atomic.Int64
	unlock      chan struct{}
}

func (d queueLocked) Admin() driver.Admin         { return d.row }
func (d queueLocked) Classify(error) sqlerr.Class { return sqlerr.Busy }

func (d *pausedRow) SetPaused(_ context.Context, queue string, _ bool) error {
	if queue != "free" {
		d.most.Store(max(d.most.Load(), d.waits.Add(1)))
		<-d.unlock
		d.waits.Add(-1)
	}
	return nil
}

// TestPausesOfALockedQueueLeaveRoom: many callers pause a queue whose row is locked. One of them
// waits at the server, and other queues are paused meanwhile. Of many such queues a few wait.
func TestPausesOfALockedQueueLeaveRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := queueLocked{row: &pausedRow{unlock: make(chan struct{})}}
		q := &Queue{driver: d, o: Options{Timeout: time.Minute}, pauses: make(semaphore, 2*atOnce)}
		q.db = newStatements(d, q.o.Timeout)
		q.notices = &notices{q: q, workers: make(map[*worker]struct{})}
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if err := q.Pause(t.Context(), "locked"); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if err := q.Pause(t.Context(), "free"); err != nil {
			t.Error(err)
		}
		if most := d.row.most.Load(); most != 1 {
			t.Errorf("%d calls waited for the row at once, want 1", most)
		}
		for i := range 20 {
			all.Go(func() { _ = q.Pause(t.Context(), fmt.Sprint("locked ", i)) })
		}
		synctest.Wait()
		close(d.row.unlock)
		all.Wait()
		if most := d.row.most.Load(); most != 2*atOnce {
			t.Errorf("%d calls waited for rows at once, want %d", most, 2*atOnce)
		}
	})
}

// dying is a driver whose job is found dead, and cannot be retried at first.
type dying struct {
	driver.Driver
	job *dyingJob
}

type dyingJob struct {
	driver.Admin
	tries int
	times []time.Time // of its death, by try; the last one stays
}

func (d *dying) Admin() driver.Admin         { return d.job }
func (d *dying) Classify(error) sqlerr.Class { return sqlerr.Unclassified }
func (d *dying) IsLocked(error) bool         { return false }

func (d *dyingJob) RetryJob(context.Context, []driver.ID) (revived, locked int, err error) {
	d.tries++
	if d.tries > len(d.times) {
		return 1, 0, nil
	}
	return 0, 0, nil
}

func (d *dyingJob) Find(_ context.Context, id driver.ID) (driver.Record, bool, error) {
	return driver.Record{ID: id, State: driver.Dead, At: d.times[min(d.tries, len(d.times))-1]}, true, nil
}

// TestRetryOfAJobThatDiesMeanwhile: a job that dies between the try and the look has no other job's
// unique key. One that was dead all the time has.
func TestRetryOfAJobThatDiesMeanwhile(t *testing.T) {
	t.Parallel()
	at := time.Unix(1, 0)
	for what, c := range map[string]struct {
		died []time.Time
		want error
	}{
		"once":      {[]time.Time{at}, nil},
		"twice":     {[]time.Time{at, at.Add(time.Second)}, nil},
		"not since": {[]time.Time{at, at}, ErrDuplicate},
	} {
		d := &dying{job: &dyingJob{times: c.died}}
		q := &Queue{driver: d, o: Options{Timeout: time.Minute}, managing: newSemaphore()}
		q.db = newStatements(d, q.o.Timeout)
		q.notices = &notices{q: q, workers: make(map[*worker]struct{})}
		q.notices.sender = newSender(func(context.Context, []driver.Notification) error { return nil }, func(string, error) {})
		if err := q.Retry(t.Context(), ID{}); !errors.Is(err, c.want) {
			t.Errorf("it died %s: %v", what, err)
		}
	}
}

// old is a driver whose server has rows of old history.
type old struct {
	driver.Driver
	rows *oldRows
}

type oldRows struct {
	driver.Maintenance
	left int
}

func (d old) Maintenance() driver.Maintenance { return d.rows }
func (d old) Classify(error) sqlerr.Class     { return sqlerr.Unclassified }
func (d old) Exhausted() bool                 { return false }

func (r *oldRows) Prune(_ context.Context, p *driver.PruneRequest) (int, error) {
	n := min(r.left, p.Max)
	r.left -= n
	return n, nil
}

// TestPruneHistoryDeletesAll: also if that takes more than a hundred statements.
func TestPruneHistoryDeletesAll(t *testing.T) {
	t.Parallel()
	const rows = 250_000
	d := old{rows: &oldRows{left: rows}}
	q := &Queue{driver: d, o: Options{Timeout: time.Minute, History: 1}}
	q.db = newStatements(d, q.o.Timeout)
	if n, err := q.PruneHistory(t.Context()); n != rows || err != nil || d.rows.left != 0 {
		t.Errorf("deleted %d, with %v; %d are left", n, err, d.rows.left)
	}
}

// deadLocked is a driver of dead jobs, some of which are locked.
type deadLocked struct {
	lockedGroup
	dead   int
	locked map[driver.ID]bool
}

func (d *deadLocked) Admin() driver.Admin { return deadAdmin{d: d} }

type deadAdmin struct {
	driver.Admin
	d *deadLocked
}

func (a deadAdmin) List(_ context.Context, r *driver.ListRequest) (dead []driver.Record, err error) {
	for n := range a.d.dead {
		if r.Before.IsZero() {
			dead = append(dead, driver.Record{ID: driver.ID{byte(n)}, At: time.Unix(1, 0)})
		}
	}
	return dead, nil
}

func (a deadAdmin) RetryJob(_ context.Context, ids []driver.ID) (revived, locked int, err error) {
	for _, id := range ids {
		if a.d.locked[id] {
			return 0, 0, errLocked
		}
	}
	return len(ids), 0, nil
}

// TestRetryAllSaysWhatIsLocked: it passes over a job that is locked, and has an error if it retried
// none.
func TestRetryAllSaysWhatIsLocked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ dead, locked, retried int }{{20, 0, 20}, {20, 1, 19}, {3, 3, 0}, {200, 200, 0}} {
		d := &deadLocked{dead: c.dead, locked: make(map[driver.ID]bool)}
		for n := range c.locked {
			d.locked[driver.ID{byte(n)}] = true
		}
		q := &Queue{driver: d, managing: newSemaphore(), db: newStatements(d, time.Minute)}
		q.notices = &notices{q: q, workers: make(map[*worker]struct{})}
		q.notices.sender = newSender(func(context.Context, []driver.Notification) error { return nil }, func(string, error) {})
		n, err := q.RetryAll(t.Context(), "")
		if n != c.retried || errors.Is(err, errLocked) != (c.retried == 0) || err != nil && c.retried > 0 {
			t.Errorf("%+v: %d are retried, %v", c, n, err)
		}
	}
}

// purgeLocked is a driver of dead jobs that are free, and others that are locked.
type purgeLocked struct {
	lockedGroup
	free, locked int
	until        int // after this many looks the locked jobs are free
}

func (d *purgeLocked) Admin() driver.Admin             { return purgeAdmin{d: d} }
func (d *purgeLocked) Maintenance() driver.Maintenance { return purgeRows{d: d} }

type purgeAdmin struct {
	driver.Admin
	d *purgeLocked
}

func (a purgeAdmin) AnyDead(context.Context, string, time.Duration) (bool, error) {
	if a.d.until--; a.d.until == 0 {
		a.d.free, a.d.locked = a.d.locked, 0
	}
	return a.d.free+a.d.locked > 0, nil
}

type purgeRows struct {
	driver.Maintenance
	d *purgeLocked
}

func (r purgeRows) Prune(_ context.Context, p *driver.PruneRequest) (int, error) {
	n := min(r.d.free, p.Max)
	r.d.free -= n
	return n, nil
}

// TestPurgeSaysWhatIsLocked: it passes over jobs that are locked, and has an error if it dropped
// none. It looks again for those that are locked for a moment.
func TestPurgeSaysWhatIsLocked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ free, locked, until, purged int }{{20, 0, 0, 20}, {20, 1, 0, 20}, {0, 3, 0, 0}, {0, 0, 0, 0}, {0, 3, 2, 3}} {
		synctest.Test(t, func(t *testing.T) {
			d := &purgeLocked{free: c.free, locked: c.locked, until: c.until}
			q := &Queue{driver: d, db: newStatements(d, time.Minute)}
			n, err := q.Purge(t.Context(), "", 0)
			isBusy := c.purged == 0 && c.locked > 0
			if n != c.purged || errors.Is(err, dblock.ErrBusy) != isBusy || err != nil && !isBusy {
				t.Errorf("%+v: %d are dropped, %v", c, n, err)
			}
		})
	}
}
