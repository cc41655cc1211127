package mysqllock

import (
	"cmp"
	"context"
	"database/sql"
	"slices"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// limited is a semaphore, and how many permits it is believed to have.
type limited struct {
	key   string
	limit int
}

// acquirePermits is one UPDATE for each semaphore, and one SELECT more if not all was granted.
// What was held before is looked at first, so that a poll locks nothing.
func (p *permitRows) acquirePermits(ctx context.Context, by lease.By, asks []lease.AcquireRequest) ([]lease.AcquireResult, error) {
	of := make(map[limited][]int)
	var order []limited
	for i, a := range asks {
		s := limited{a.Key, a.Limit}
		if of[s] == nil {
			order = append(order, s)
		}
		of[s] = append(of[s], i)
	}
	results := make([]lease.AcquireResult, len(asks))
	for _, s := range order {
		left, err := p.permitsOf(ctx, by, asks, of[s], results)
		if err == nil {
			continue
		}
		if _, err := failed(results, left, err); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// permitsOf answers the requests at the given indexes, all for one semaphore. The smallest comes
// first: one that is refused then would not have fitted beside the others either. An error is that
// of those that are left.
func (p *permitRows) permitsOf(
	ctx context.Context, by lease.By, asks []lease.AcquireRequest, at []int, results []lease.AcquireResult,
) (left []int, err error) {
	at = slices.SortedStableFunc(slices.Values(at), func(i, j int) int { return cmp.Compare(asks[i].Permits, asks[j].Permits) })
	beyond := 0
	if !slices.ContainsFunc(at, func(i int) bool { return !asks[i].Contended }) {
		var usable int
		usable, beyond, err = p.seePermits(ctx, by, asks, at, results)
		if err != nil || usable < asks[at[0]].Permits {
			return at, err
		}
	}
	for {
		n, err := p.takePermits(ctx, by, asks, at, beyond, results)
		if at = at[n:]; err != nil || len(at) == 0 {
			return at, err
		}
		usable, past, err := p.seePermits(ctx, by, asks, at, results)
		if err != nil || past <= beyond || usable < asks[at[0]].Permits {
			return at, err
		}
		beyond = past // no more than the number of rows that there are
	}
}

// takePermits grants what there is to the first of those at the given places; so many are believed
// to be held past the semaphore's number.
func (p *permitRows) takePermits(
	ctx context.Context, by lease.By, asks []lease.AcquireRequest, at []int, beyond int, results []lease.AcquireResult,
) (granted int, err error) {
	first, total := asks[at[0]], int64(0)
	var of []any
	for _, i := range at {
		a := asks[i]
		of = append(of, a.Handle[:], total, int64(a.Permits), keeper(by, a), a.Hold.Microseconds(), []byte(a.Label), a.Data)
		total += int64(a.Permits)
	}
	args := append([]any{by.Member[:], by.Heartbeat, []byte(first.Key), int64(first.Limit), total + int64(beyond)}, of...)
	rows, token, err := p.grantFound(ctx, mysqldb.AcquirePermits, append(args, boundUs(ctx)))
	if err == nil && rows > 0 && token == 0 {
		token, err = p.permitToken(ctx, pick(asks, at))
	}
	if err != nil {
		return 0, err
	}
	for _, i := range at {
		if rows < int64(asks[i].Permits) {
			break
		}
		rows -= int64(asks[i].Permits)
		results[i] = counted(asks[i:i+1], token)[0]
		granted++
	}
	if rows != 0 {
		return 0, errUnseen
	}
	return granted, nil
}

// permitToken reads the token of permits that one statement granted. Not all of the asks need to be
// granted.
func (p *permitRows) permitToken(ctx context.Context, asks []lease.AcquireRequest) (token int64, err error) {
	backs := make([]lease.ReleaseRequest, len(asks))
	for i, a := range asks {
		backs[i] = lease.ReleaseRequest{Key: a.Key, Handle: a.Handle}
	}
	rows, err := p.slots(ctx, backs)
	for _, r := range rows {
		token = max(token, r.Token)
	}
	if err == nil && token == 0 {
		err = errUnseen
	}
	return token, half(err, true)
}

// seePermits says why the requests at the given indexes, all for one semaphore, were refused, how
// many of its permits are free for them, and how many are held past its number.
func (p *permitRows) seePermits(
	ctx context.Context, by lease.By, asks []lease.AcquireRequest, at []int, results []lease.AcquireResult,
) (usable, beyond int, err error) {
	rows, err := read(ctx, p.conns, func(on mysqldb.DBTX) ([]mysqldb.ReadPermitsRow, error) {
		return p.q.ReadPermits(ctx, on, by.Member[:], by.Heartbeat, []byte(asks[at[0]].Key))
	})
	if err != nil {
		return 0, 0, err
	}
	var why lease.AcquireResult
	for _, r := range rows {
		why.Stored, why.MemberGone = int(r.LimitedTo), !r.Alive
		holder := id(r.MemberID.String)
		switch {
		case r.Held == 0:
			usable += int(r.Usable)
			continue
		case r.HolderDead == 1 && !slices.Contains(why.Dead, holder):
			why.Dead = append(why.Dead, holder)
		}
		beyond += int(r.Beyond)
		if !why.Held || r.HolderDead == 0 {
			why.Held = true
			why.Holder = lease.Holder{Member: holder, Label: string(r.Label), Token: r.Token, Remaining: micros(r.RemainingUs)}
		}
	}
	usable -= beyond
	for _, i := range at {
		results[i] = why
		results[i].Held = why.Held && usable < asks[i].Permits // else what is free was locked for a moment
	}
	return usable, beyond, nil
}

// makeSemaphore is two statements: the permits stand before their number does.
func (p *permitRows) makeSemaphore(ctx context.Context, key string, limit int) error {
	if err := p.makePermits(ctx, key, limit); err != nil {
		return err
	}
	return p.bounded(ctx, mysql.Briefly, func(on mysqldb.DBTX) error {
		return p.q.InsertSemaphore(ctx, on, []byte(key), int32(limit)) //nolint:gosec // at most dblock.MaxPermits
	})
}

// SetPermits is two statements, as makeSemaphore is.
func (d *leaseDriver) SetPermits(ctx context.Context, key string, limit int) error {
	if err := d.permits.makePermits(ctx, key, limit); err != nil {
		return sqlerr.Unwritten(err) // permits that can't be granted yet
	}
	return d.once(ctx, func(on mysqldb.DBTX) error {
		return d.q.SetPermits(ctx, on, []byte(key), int32(limit)) //nolint:gosec // at most dblock.MaxPermits
	})
}

// permitsStep is how many permits one statement makes or frees.
const permitsStep = 1000

// makePermits makes those that are missing. It leaves the others alone, which may be locked.
func (p *permitRows) makePermits(ctx context.Context, key string, limit int) error {
	latest, err := read(ctx, p.conns, func(on mysqldb.DBTX) (int64, error) {
		return p.q.LatestPermit(ctx, on, []byte(key))
	})
	for slot := int(latest) + 1; err == nil && slot <= limit; slot += permitsStep {
		step := min(permitsStep, limit-slot+1)
		var args []any
		for n := range step {
			args = append(args, []byte(key), int64(slot+n))
		}
		err = p.bounded(ctx, mysql.Briefly, func(on mysqldb.DBTX) error {
			_, err := on.ExecContext(ctx, mysqldb.InsertPermits, args...)
			return err
		})
	}
	return err
}

// releasePermits looks for the permits first, without a lock, and then frees them by their numbers.
// An acquisition is freed when all of its permits are.
func (p *permitRows) releasePermits(ctx context.Context, backs []lease.ReleaseRequest) ([]lease.ReleaseResult, error) {
	results := make([]lease.ReleaseResult, len(backs))
	for n := 1; ; n++ {
		ours, err := p.slots(ctx, backs)
		if err != nil {
			return nil, half(err, n > 1)
		}
		stands := make(map[lease.Handle]bool)
		for _, r := range ours {
			stands[id(r.Handle.String)] = true
		}
		for i, b := range backs {
			was := results[i]
			results[i] = lease.ReleaseResult{Freed: (was.Freed || was.Held) && !stands[b.Handle], Held: stands[b.Handle]}
		}
		if len(ours) == 0 || n > passes {
			return results, nil
		}
		freed, err := p.endPermits(ctx, ours)
		if err != nil {
			return nil, half(err, n > 1)
		}
		if freed == int64(len(ours)) {
			for i, a := range results {
				results[i] = lease.ReleaseResult{Freed: a.Freed || a.Held}
			}
			return results, nil
		}
		if !again(ctx, n) {
			return results, nil
		}
	}
}

// slots reads which permits are those of some acquisitions.
func (p *permitRows) slots(ctx context.Context, backs []lease.ReleaseRequest) ([]mysqldb.PermitSlotsRow, error) {
	return read(ctx, p.conns, func(on mysqldb.DBTX) ([]mysqldb.PermitSlotsRow, error) {
		return p.q.PermitSlots(ctx, on, keysOf(backs), nullable(handlesOf(backs)))
	})
}

func handlesOf(backs []lease.ReleaseRequest) []member.ID {
	handles := make([]member.ID, len(backs))
	for i, b := range backs {
		handles[i] = b.Handle
	}
	return handles
}

// nullable are ids as the arguments of a column that may be null.
func nullable(ids []member.ID) []sql.NullString {
	list := make([]sql.NullString, len(ids))
	for i := range ids {
		list[i] = sql.NullString{String: string(ids[i][:]), Valid: true}
	}
	return list
}

// endPermits frees permits that still belong to the acquisition, in steps that fit into a
// statement. It passes over rows that are locked at this moment.
func (p *permitRows) endPermits(ctx context.Context, rows []mysqldb.PermitSlotsRow) (freed int64, err error) {
	for step := range slices.Chunk(rows, permitsStep) {
		var args []any
		for _, r := range step {
			args = append(args, r.LeaseKey, r.Slot, []byte(r.Handle.String))
		}
		n, _, err := p.change(ctx, mysqldb.ReleasePermits, args)
		if err != nil {
			return freed, half(err, freed > 0)
		}
		freed += n
	}
	return freed, nil
}

// reapPermits ends what dead members have, and what has ended by itself.
func (p *permitRows) reapPermits(ctx context.Context, key string, gone []member.ID) error {
	rows, err := read(ctx, p.conns, func(on mysqldb.DBTX) ([]mysqldb.EndedPermitsRow, error) {
		return p.q.EndedPermits(ctx, on, []byte(key), nullable(gone))
	})
	if err != nil || len(rows) == 0 {
		return err
	}
	ended := make([]mysqldb.PermitSlotsRow, len(rows))
	for i, r := range rows {
		ended[i] = mysqldb.PermitSlotsRow(r)
	}
	_, err = p.endPermits(ctx, ended)
	return err
}
