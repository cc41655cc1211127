package pglock

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/postgres"
)

// channel carries notifications of keys that were released while another process waited.
const channel = "dblock_released"

// Wait notes for ttl that this process waits for keys; with ttl 0 it ends that.
func (d *leaseDriver) Wait(ctx context.Context, keys []string, m member.ID, ttl time.Duration) error {
	if ttl == 0 {
		return d.q.StopWaiting(ctx, d.db, postgres.UUID(m), keys)
	}
	return d.q.WaitForLeases(ctx, d.db, postgres.UUID(m), postgres.ToMicros(ttl), keys)
}

// OthersWait reports whether another member that is alive waits for a key.
func (d *leaseDriver) OthersWait(ctx context.Context, key string, m member.ID) (bool, error) {
	return d.q.OthersWait(ctx, d.db, key, postgres.UUID(m))
}

// Listen uses a connection of its own. Without notifications the poll has to suffice.
func (d *leaseDriver) Listen(ctx context.Context, ready func(), wake func(key string)) error {
	return postgres.Listen(ctx, d.pool.Pool, channel, ready, wake)
}

// quietFor is for how long statements send no notification after the server has refused one.
const quietFor = time.Minute

// quiet remembers that the server refuses notifications. Waiters poll, so a notification is never
// a reason to keep a lease. The zero value is ready for use.
type quiet struct {
	mu    sync.Mutex
	until time.Time
	warn  func(line string, args ...any) // nil: there is no Log
}

// report sets what writes to the Log.
func (s *quiet) report(warn func(line string, args ...any)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.warn = warn
}

func (s *quiet) is() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Before(s.until)
}

// begin starts to be quiet. It writes a line unless another call has done so.
func (s *quiet) begin(err error) {
	s.mu.Lock()
	now, warn := time.Now(), s.warn
	begun := now.Before(s.until)
	if !begun {
		s.until = now.Add(quietFor)
	}
	s.mu.Unlock()
	if !begun && warn != nil {
		warn("dblock: the server refuses notifications, so waiters learn of a release when they poll", "error", err)
	}
}

// notifying runs a statement that notifies. If the server refuses the notification, nothing was
// written, and the statement is sent again without it.
func notifying[R any](d *leaseDriver, run func(on pgdb.DBTX, notify bool) (R, error)) (R, error) {
	if !d.quiet.is() {
		got, err := run(d.db, true)
		if !postgres.RefusesNotify(err) {
			return got, err
		}
		d.quiet.begin(err)
	}
	return run(asText{d.db}, false)
}

// asText sends a statement as text that contains its arguments. The server then plans it without
// pg_notify. A plan that names a function fails if the session may not execute that function.
type asText struct{ pgdb.DBTX }

func (t asText) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return t.DBTX.Query(ctx, sql, append([]any{pgx.QueryExecModeSimpleProtocol}, args...)...)
}

func (t asText) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return t.DBTX.QueryRow(ctx, sql, append([]any{pgx.QueryExecModeSimpleProtocol}, args...)...)
}
