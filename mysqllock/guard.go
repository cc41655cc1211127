package mysqllock

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/root"
)

// Guards check fences inside transactions. The zero value is good for use. They bound no idle
// transaction: until the server's wait_timeout (8 hours by default) a client that hangs inside one
// keeps others from acquiring the lease. LeaseLocker.GuardedTx bounds it by the TTL. A guard that
// is refused may lock the place of the missing row, and with it those of neighbouring keys, above
// READ COMMITTED: roll back. LeaseLocker.Guard looks first.
type Guards struct {
	// Schema is the database that holds dblock's tables. Default: the one that tx is connected to.
	Schema string
}

// Guard checks, in the database of the leases, that the lock of f is still held, and keeps it so
// until tx ends: no other process can acquire it before. It comes first in the transaction that
// writes what the lease protects. It sees the row as it is, whatever tx has read before. Shared
// leases and permits are checked in the same way: a shared lease has no exclusive holder then.
//
// Errors: dblock.ErrFenced if the lock is no longer held: roll back. Others are the driver's.
func (g Guards) Guard(ctx context.Context, tx *sql.Tx, f dblock.Fence) error {
	var q mysqldb.Queries
	var ours []int32
	var err error
	on := mysql.OnCaller(tx, g.Schema)
	switch f.Mode {
	case dblock.ModePermit:
		ours, err = guardPermits(ctx, on, f)
	case dblock.ModeShared:
		ours, err = q.GuardShared(ctx, on, []byte(f.Key), f.Token, f.Handle[:])
	default:
		ours, err = q.Guard(ctx, on, []byte(f.Key), f.Token, f.Handle[:])
	}
	return fenced(ours, err, describe(f))
}

// guardPermits locks all permits of an acquisition, and none of others'; none if one is missing.
// Where tx has read before they were granted it does not see which they are, and has to search with
// locks.
func guardPermits(ctx context.Context, on mysqldb.DBTX, f dblock.Fence) (ours []int32, err error) {
	var q mysqldb.Queries
	rows, err := q.PermitSlots(ctx, on, [][]byte{[]byte(f.Key)}, nullable([]member.ID{f.Handle}))
	switch {
	case err != nil:
		return nil, err
	case len(rows) == 0:
		ours, err = q.GuardPermitsUnseen(ctx, on, []byte(f.Key), f.Token, f.Handle[:])
	default:
		slots := make([]int32, len(rows))
		for i, r := range rows {
			slots[i] = r.Slot
		}
		ours, err = q.GuardPermits(ctx, on, mysqldb.GuardPermitsParams{
			LeaseKey: []byte(f.Key), Slots: slots, Token: f.Token, Handle: f.Handle[:],
		})
	}
	if err != nil || len(ours) == 0 || len(ours) != int(ours[0]) {
		return nil, err
	}
	return ours, nil
}

// AdvanceFence records in the database of the data that the holder of f begins to read resource.
// From then on CheckFence fails for each holder with a smaller token; shared holders have one
// token and all pass. It protects data in another database than the lease, and is the first step of
// the critical section. That database needs dblock's tables, too.
//
// Errors: dblock.ErrFenced if a holder with a larger token came first; dblock.ErrUnsupported for
// permits. Others are the driver's.
func (g Guards) AdvanceFence(ctx context.Context, tx *sql.Tx, f dblock.Fence, resource string) error {
	if err := root.CheckText("resource", resource, 1, dblock.MaxLockKeyBytes); err != nil {
		return err
	}
	handle, err := lease.FenceHandle(f)
	if err != nil {
		return err
	}
	var q mysqldb.Queries
	if err := q.AdvanceFence(ctx, mysql.OnCaller(tx, g.Schema), []byte(resource), f.Token, handle[:]); err != nil {
		return err
	}
	return g.CheckFence(ctx, tx, f, resource)
}

// CheckFence checks that the fence of resource has not advanced since AdvanceFence, and keeps it so
// until tx ends. Call it in each transaction that writes the resource.
//
// Errors: dblock.ErrFenced if the fence has advanced: roll back. Others are the driver's.
func (g Guards) CheckFence(ctx context.Context, tx *sql.Tx, f dblock.Fence, resource string) error {
	handle, err := lease.FenceHandle(f)
	if err != nil {
		return err
	}
	var q mysqldb.Queries
	ours, err := q.CheckFence(ctx, mysql.OnCaller(tx, g.Schema), []byte(resource), f.Token, handle[:])
	return fenced(ours, err, fmt.Sprintf("resource %q with token %d", resource, f.Token))
}

// isLost reports that the database does not have the acquisition of a fence. It reads what is
// committed, on a connection of its own. A guard that finds no row locks its place at REPEATABLE
// READ, the servers' default, and with it the places of neighbouring keys, until the caller's
// transaction ends. So an acquisition that this process does not hold any more is looked for first.
// If that fails, the guard decides.
func (d *leaseDriver) isLost(ctx context.Context, f dblock.Fence) bool {
	if d.db.Exhausted() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, maxWatch)
	defer cancel()
	backs := []lease.ReleaseRequest{{Key: f.Key, Token: f.Token, Handle: f.Handle, Mode: f.Mode}}
	switch f.Mode {
	case dblock.ModeShared:
		tokens, err := d.readers.readerTokens(ctx, backs)
		return err == nil && tokens[f.Handle] == 0
	case dblock.ModePermit:
		rows, err := d.permits.slots(ctx, backs)
		return err == nil && len(rows) == 0
	}
	rows, err := read(ctx, d.conns, func(on mysqldb.DBTX) ([]mysqldb.LeaseHandlesRow, error) {
		return d.q.LeaseHandles(ctx, on, keysOf(backs))
	})
	return err == nil && (len(rows) == 0 || id(rows[0].Handle.String) != f.Handle)
}

// maxWatch is how long isLost waits for a connection and an answer.
const maxWatch = time.Second

// errFenced says that a lease is no longer held.
func errFenced(what string) error {
	return fmt.Errorf("%w: %s is no longer held: roll back", dblock.ErrFenced, what)
}

// describe names the lease of a fence.
func describe(f dblock.Fence) string { return fmt.Sprintf("lease %q with token %d", f.Key, f.Token) }

// fenced reads the answer of a guard.
func fenced[T any](ours []T, err error, what string) error {
	if err == nil && len(ours) == 0 {
		return errFenced(what)
	}
	return err
}
