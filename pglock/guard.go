package pglock

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/db/pgdb"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/root"
)

// Guards check fences inside transactions. The zero value is good for use. A transaction whose
// client_encoding is not UTF8, or whose search_path names pg_catalog after another schema, is
// refused with dblock.ErrUnsupported.
type Guards struct {
	// Schema is where dblock's tables are. Default: the first schema on the transaction's
	// search_path that has them. To look for it takes one more round trip.
	Schema string

	// IdleTimeout is after how long the server ends a guarded transaction that is idle, if your
	// session has no idle_in_transaction_session_timeout: until then a client that hangs keeps
	// others from acquiring the lease. Default 10 s; 1 ms to 24 days.
	IdleTimeout time.Duration

	home *postgres.Schema // nil: that of the name Schema
}

// Guard checks, in the database of the leases, that the lock of f is still held, and keeps it so
// until tx ends: no other process can acquire it before. It comes first in the transaction that
// writes what the lease protects. Shared leases and permits are checked in the same way: a shared
// lease has no exclusive holder then.
//
// Errors: dblock.ErrFenced if the lock is no longer held: roll back. dblock.ErrConflict if tx
// is REPEATABLE READ or SERIALIZABLE and began before the lease was granted, or last changed: roll
// back and begin again. A shared lease that tx does not see is always ErrConflict there. Others are
// pgx's.
func (g Guards) Guard(ctx context.Context, tx Tx, f dblock.Fence) error {
	if guards[f.Mode] == "" {
		return fmt.Errorf("%w: lease %q: there is no mode %d", dblock.ErrFenced, f.Key, f.Mode)
	}
	idle := g.IdleTimeout
	if idle <= 0 {
		idle = 10 * time.Second
	}
	tag, err := g.exec(ctx, tx, guards[f.Mode], strconv.FormatInt(max(1, min(idle, maxWait).Milliseconds()), 10), f.Key, f.Token, postgres.UUID(f.Handle))
	what := fmt.Sprintf("lease %q with token %d", f.Key, f.Token)
	if err == nil && tag.RowsAffected() == 0 {
		switch before, err := beganBefore(ctx, tx, f); {
		case err != nil:
			return err
		case before:
			return fmt.Errorf("%w: the transaction began before %s was granted and does not see it: roll back and begin again",
				dblock.ErrConflict, what)
		}
	}
	return fenced(tag, err, what)
}

// beganBefore reports that a transaction sees the database as it was before a lock was granted. A
// shared lock may have the token of a lock before it.
func beganBefore(ctx context.Context, tx Tx, f dblock.Fence) (before bool, err error) {
	token := f.Token
	if f.Mode == dblock.ModeShared {
		token = math.MaxInt64
	}
	rows, err := tx.Query(ctx, pgdb.BeganBefore, token)
	if err != nil {
		return false, err
	}
	return pgx.CollectOneRow(rows, pgx.RowTo[bool])
}

// guards are the statements by mode; their arguments are the same.
var guards = map[dblock.Mode]string{dblock.ModeExclusive: pgdb.Guard, dblock.ModeShared: pgdb.GuardShared, dblock.ModePermit: pgdb.GuardPermits}

// AdvanceFence records in the database of the data that the holder of f begins to read resource.
// From then on CheckFence fails for each holder with a smaller token; shared holders have one
// token and all pass. It protects data in another database than the lease, and is the first step of
// the critical section. That database needs dblock's tables, too.
//
// Errors: dblock.ErrFenced if a holder with a larger token came first; dblock.ErrConflict if the
// fence changed after a REPEATABLE READ or SERIALIZABLE tx began; dblock.ErrUnsupported for
// permits. Others are pgx's.
func (g Guards) AdvanceFence(ctx context.Context, tx Tx, f dblock.Fence, resource string) error {
	if err := root.CheckText("resource", resource, 1, dblock.MaxLockKeyBytes); err != nil {
		return err
	}
	handle, err := lease.FenceHandle(f)
	if err != nil {
		return err
	}
	tag, err := g.exec(ctx, tx, pgdb.AdvanceFence, resource, f.Token, postgres.UUID(handle))
	return fenced(tag, err, fmt.Sprintf("resource %q with token %d", resource, f.Token))
}

// CheckFence checks that the fence of resource has not advanced since AdvanceFence, and keeps it so
// until tx ends. Call it in each transaction that writes the resource.
//
// Errors: dblock.ErrFenced if the fence has advanced: roll back. dblock.ErrConflict as for
// AdvanceFence. Others are pgx's.
func (g Guards) CheckFence(ctx context.Context, tx Tx, f dblock.Fence, resource string) error {
	handle, err := lease.FenceHandle(f)
	if err != nil {
		return err
	}
	tag, err := g.exec(ctx, tx, pgdb.CheckFence, resource, f.Token, postgres.UUID(handle))
	return fenced(tag, err, fmt.Sprintf("resource %q with token %d", resource, f.Token))
}

// exec runs a statement on dblock's tables, which it names with their schema: tx may have temporary
// tables of the same names.
func (g Guards) exec(ctx context.Context, tx Tx, query string, args ...any) (pgconn.CommandTag, error) {
	home := g.home
	if home == nil {
		name, err := postgres.FindSchema(ctx, tx, g.Schema)
		if err != nil {
			return pgconn.CommandTag{}, err
		}
		home = postgres.NewSchema(name)
	}
	return home.OnHost(tx).Exec(ctx, query, args...)
}

// fenced reads the answer of a guard. In REPEATABLE READ and above the row may have changed after
// the snapshot: the holder has moved its end, or another holder has come. Only a new snapshot can
// show which.
func fenced(tag pgconn.CommandTag, err error, what string) error {
	if postgres.IsUnserializable(err) {
		return fmt.Errorf("%w: %s changed after the transaction began: roll back and begin again: %w", dblock.ErrConflict, what, err)
	}
	if err == nil && tag.RowsAffected() != 1 {
		return fmt.Errorf("%w: %s is no longer held: roll back", dblock.ErrFenced, what)
	}
	return err
}
