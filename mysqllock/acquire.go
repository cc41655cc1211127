package mysqllock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/mysql"
)

// Acquire grants what is free of a batch.
func (d *leaseDriver) Acquire(ctx context.Context, b lease.AcquireBatch) ([]lease.AcquireResult, error) {
	switch b.Kind {
	case lease.KindShared:
		return d.readers.acquireShared(ctx, b.By, b.Requests)
	case lease.KindPermits:
		return d.permits.acquirePermits(ctx, b.By, b.Requests)
	case lease.KindSet:
		return d.leases.acquireSet(ctx, b.By, b.Requests)
	case lease.KindFair:
		return d.tickets.enqueue(ctx, b.By, b.Requests)
	}
	if b.Requests[0].NoTickets {
		if err := lease.CheckKeys(b.Requests); err != nil {
			return nil, err
		}
		return d.tickets.acquireUnticketed(ctx, b.By, b.Requests)
	}
	return d.leases.acquireExclusive(ctx, b.By, b.Requests)
}

// acquireExclusive is one UPDATE if all of a batch is granted, and one SELECT more if not. Rows
// that are missing are made, and granted by that; a single request tries it before it looks. What
// was held before is looked at first, so that a poll locks nothing.
func (l *leaseRows) acquireExclusive(ctx context.Context, by lease.By, asks []lease.AcquireRequest) ([]lease.AcquireResult, error) {
	if err := lease.CheckKeys(asks); err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(asks, func(a lease.AcquireRequest) bool { return !a.Contended }) {
		return l.poll(ctx, by, asks)
	}
	if len(asks) == 1 {
		return l.acquireOne(ctx, by, asks[0])
	}
	if slices.ContainsFunc(asks, func(a lease.AcquireRequest) bool { return a.DespiteReaders }) {
		return l.apart(ctx, by, asks)
	}
	results := make([]lease.AcquireResult, len(asks))
	taken, token, err := l.take(ctx, by, asks)
	if err != nil || taken == int64(len(asks)) && token != 0 {
		return counted(asks, token), err
	}
	missing, err := l.see(ctx, by, asks, results, taken)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(missing, func(i, j int) int { return strings.Compare(asks[i].Key, asks[j].Key) })
	l.makeMissing(ctx, by, asks, missing, results)
	l.acquireExpired(ctx, by, asks, results)
	return results, nil
}

// failed is the answer to a batch after an error that left some of it undecided. What was decided
// before counts.
func failed(results []lease.AcquireResult, left []int, err error) ([]lease.AcquireResult, error) {
	if len(left) == len(results) {
		return nil, err
	}
	for _, i := range left {
		results[i] = lease.AcquireResult{Err: err}
	}
	return results, nil
}

// poll asks for those only that are not held any more.
func (l *leaseRows) poll(ctx context.Context, by lease.By, asks []lease.AcquireRequest) ([]lease.AcquireResult, error) {
	results := make([]lease.AcquireResult, len(asks))
	if _, err := l.see(ctx, by, asks, results, 0); err != nil {
		return nil, err
	}
	var left []lease.AcquireRequest
	var at []int
	for i, a := range results {
		if !a.Held && !a.Shared {
			asked := asks[i]
			asked.Contended = false
			left, at = append(left, asked), append(at, i)
		}
	}
	return l.acquireAt(ctx, by, left, at, results)
}

// acquireAt asks for those of a batch that stand at the given places, if there are any.
func (l *leaseRows) acquireAt(ctx context.Context, by lease.By, asks []lease.AcquireRequest, at []int, results []lease.AcquireResult) ([]lease.AcquireResult, error) {
	if len(asks) == 0 {
		return results, nil
	}
	got, err := l.acquireExclusive(ctx, by, asks)
	if err != nil {
		return failed(results, at, err)
	}
	for n, i := range at {
		results[i] = got[n]
	}
	return results, nil
}

// apart asks singly for what is wanted over readers, and for the rest together.
func (l *leaseRows) apart(ctx context.Context, by lease.By, asks []lease.AcquireRequest) ([]lease.AcquireResult, error) {
	results := make([]lease.AcquireResult, len(asks))
	var rest []lease.AcquireRequest
	var at []int
	for i, a := range asks {
		if !a.DespiteReaders {
			rest, at = append(rest, a), append(at, i)
			continue
		}
		if got, err := l.acquireOne(ctx, by, a); err != nil {
			results[i].Err = err
		} else {
			results[i] = got[0]
		}
	}
	return l.acquireAt(ctx, by, rest, at, results)
}

// acquireOne acquires one key if it is free, inserts its row if that is missing, and else names the
// holder. On MySQL, where making a row takes three round trips, it looks first whether it is
// missing.
func (l *leaseRows) acquireOne(ctx context.Context, by lease.By, a lease.AcquireRequest) ([]lease.AcquireResult, error) {
	asks, results := []lease.AcquireRequest{a}, make([]lease.AcquireResult, 1)
	taken, token, err := l.takeOne(ctx, by, a)
	if err == nil && taken == 0 && l.db.MariaDB {
		token, taken, err = l.makeRows(ctx, by, asks)
	}
	if err != nil && !mysql.IsLocked(err) {
		return nil, err
	}
	if taken == 1 && token != 0 {
		return counted(asks, token), nil
	}
	missing, err := l.see(ctx, by, asks, results, taken)
	if err == nil && !l.db.MariaDB {
		l.makeMissing(ctx, by, asks, missing, results)
		return results, nil
	}
	markContended(missing, results)
	return results, err
}

// take grants what is free. All have the same token.
func (l *leaseRows) take(ctx context.Context, by lease.By, asks []lease.AcquireRequest) (taken, token int64, err error) {
	if len(asks) == 1 {
		return l.takeOne(ctx, by, asks[0])
	}
	if l.db.MariaDB && alike(asks) {
		taken, token, err = l.takeAlike(ctx, by, asks)
		if !mysql.IsLocked(err) {
			return taken, token, err
		}
	}
	return l.grantFound(ctx, mysqldb.AcquireLeases, append(acquireArgs(by, asks), boundUs(ctx)))
}

// acquireExpired tries what was free, and not granted with the others: it was locked for a moment,
// or its token is ahead of the clock. An error of one is its own.
func (l *leaseRows) acquireExpired(ctx context.Context, by lease.By, asks []lease.AcquireRequest, results []lease.AcquireResult) {
	for i, a := range results {
		if a.Err != nil || a.Token != 0 || a.Held || a.Shared || a.MemberGone {
			continue
		}
		one := asks[i : i+1]
		taken, token, err := l.takeOne(ctx, by, asks[i])
		switch {
		case err != nil:
		case taken == 1 && token == 0:
			_, err = l.see(ctx, by, one, results[i:i+1], taken)
		case taken == 1:
			results[i] = counted(one, token)[0]
		}
		if err != nil {
			results[i] = lease.AcquireResult{Err: err}
		}
	}
}

// change runs a statement, which may carry a token as its insert id. See changed.
func (c *conns) change(ctx context.Context, statement string, args []any) (rows, token int64, err error) {
	err = c.once(ctx, func(on mysqldb.DBTX) error {
		rows, token, err = execChange(ctx, on, statement, args)
		return err
	})
	return rows, token, err
}

// changeAtOnce is change that fails as locked on MariaDB if a row is. On MySQL the statement passes
// over such rows.
func (c *conns) changeAtOnce(ctx context.Context, statement string, args []any) (rows, token int64, err error) {
	err = c.once(ctx, func(on mysqldb.DBTX) error {
		rows, token, err = execChange(ctx, mysql.AtOnce(on), statement, args)
		return err
	})
	return rows, token, err
}

func execChange(ctx context.Context, on mysqldb.DBTX, statement string, args []any) (rows, token int64, err error) {
	result, err := on.ExecContext(ctx, statement, args...)
	if err != nil {
		return 0, 0, err
	}
	return changed(result)
}

// counted are the answers to asks that a statement granted all of, by the number of rows that it
// changed: an UPDATE returns none of them. Each ask is for another row, and what the statement
// writes to a row is the handle of its ask. If fewer rows were changed, those that were are read
// back by their handles.
func counted(asks []lease.AcquireRequest, token int64) []lease.AcquireResult {
	results := make([]lease.AcquireResult, len(asks))
	for i, a := range asks {
		results[i] = lease.AcquireResult{Token: token, Handle: a.Handle}
	}
	return results
}

// errUnseen says that a lease was granted that could not be read back: it may stand. It is Lost.
var errUnseen = errors.New("dblock: a lease was granted, and not found when it was read back")

// see reads the holders of keys. A lease with the handle of a request was granted to it, and so
// many were at least. It returns which of the rows are missing.
func (l *leaseRows) see(
	ctx context.Context, by lease.By, asks []lease.AcquireRequest, results []lease.AcquireResult, granted int64,
) (missing []int, err error) {
	of, err := l.seeKeys(ctx, by, asks)
	if err != nil {
		return nil, half(err, granted > 0)
	}
	seen := int64(0)
	for i, a := range asks {
		r, is := of[a.Key]
		switch {
		case !is:
			missing = append(missing, i)
		case r.Handle.Valid && id(r.Handle.String) == a.Handle:
			results[i] = lease.AcquireResult{Token: r.Token, Handle: id(r.Handle.String)}
			seen++
		default:
			results[i] = refused(r, a)
		}
	}
	if seen < granted { // what was granted is not seen: better reconciled than held for ever
		for i, a := range results {
			if a.Token == 0 {
				results[i] = lease.AcquireResult{Err: errUnseen}
			}
		}
		return nil, nil
	}
	return missing, nil
}

// refused says why a request was not granted. A key with readers only has no holder.
func refused(r mysqldb.ReadLeasesRow, a lease.AcquireRequest) lease.AcquireResult {
	answer := lease.AcquireResult{MemberGone: !r.Alive}
	switch {
	case r.Shared && !a.DespiteReaders && freeFor(r, a):
		answer.Shared = true
	case r.Held == 1:
		answer.Held = true
		answer.Holder = lease.Holder{
			Member: id(r.MemberID.String), Label: string(r.Label), Token: r.Token, Dead: r.HolderDead == 1,
			Remaining: micros(r.RemainingUs),
		}
	}
	return answer
}

// freeFor reports whether a key has no exclusive holder, or one that the request knows to be gone.
func freeFor(r mysqldb.ReadLeasesRow, a lease.AcquireRequest) bool {
	return r.Held == 0 || r.MemberID.Valid && id(r.MemberID.String) == a.DeadMember
}

// alike reports whether AcquireAlike may take these.
func alike(asks []lease.AcquireRequest) bool {
	return !slices.ContainsFunc(asks, func(a lease.AcquireRequest) bool {
		return a.Detached || a.Hold != 0 || len(a.Data) > 0 || a.Label != asks[0].Label
	})
}

// takeAlike fails as locked if any of the rows is.
func (l *leaseRows) takeAlike(ctx context.Context, by lease.By, asks []lease.AcquireRequest) (taken, token int64, err error) {
	var whens []any
	var keys, insteads, gones mysql.List
	for _, a := range asks {
		whens = append(whens, []byte(a.Key), a.Handle[:])
		keys = append(keys, []byte(a.Key))
		if a.Instead != (lease.Handle{}) {
			insteads = append(insteads, a.Instead[:])
		}
		if a.DeadMember != (member.ID{}) {
			gones = append(gones, a.DeadMember[:])
		}
	}
	args := append(whens, by.Member[:], []byte(asks[0].Label), keys, insteads, insteads, gones, by.Member[:], by.Heartbeat)
	return l.grantAtOnce(ctx, mysqldb.AcquireAlike, args)
}

// acquireSet is one SELECT that reports whether all are free, and one UPDATE if they are: what
// can't be granted as a whole locks nothing, for others to find it free.
func (l *leaseRows) acquireSet(ctx context.Context, by lease.By, asks []lease.AcquireRequest) ([]lease.AcquireResult, error) {
	results := make([]lease.AcquireResult, len(asks))
	missing, err := l.see(ctx, by, asks, results, 0)
	if err != nil || len(missing) > 0 {
		return results, err
	}
	for i, a := range results {
		if a.Held && (!a.Holder.Dead || a.Holder.Member != asks[i].DeadMember) || a.Shared || a.MemberGone {
			return results, nil
		}
	}
	args := []any{by.Member[:], by.Heartbeat}
	for _, a := range asks {
		args = append(args, []byte(a.Key), a.DeadMember[:])
	}
	one := asks[0] // all are alike but for the key
	args = append(args, int64(len(asks)), boundUs(ctx), one.Handle[:], keeper(by, one), one.Hold.Microseconds(), []byte(one.Label), one.Data)
	granted, token, err := l.grantFound(ctx, mysqldb.AcquireSet, args)
	if err != nil {
		return nil, err
	}
	switch granted {
	case 0:
		return make([]lease.AcquireResult, len(asks)), nil
	case int64(len(asks)):
		if token != 0 {
			return counted(asks, token), nil
		}
	default:
		return nil, errUnseen
	}
	if _, err = l.see(ctx, by, asks, results, granted); err == nil && slices.ContainsFunc(results, refusedOne) {
		err = errUnseen
	}
	return results, err
}

func refusedOne(a lease.AcquireResult) bool { return a.Token == 0 }

// acquireArgs are the arguments of AcquireLeases.
func acquireArgs(by lease.By, asks []lease.AcquireRequest) []any {
	args := []any{by.Member[:], by.Heartbeat}
	for _, a := range asks {
		args = append(args, []byte(a.Key), a.Handle[:], a.Instead[:], a.DeadMember[:], keeper(by, a), a.Hold.Microseconds(), []byte(a.Label), a.Data)
	}
	return args
}

// keeper is the member whose heartbeat keeps the lease; empty: none.
func keeper(by lease.By, a lease.AcquireRequest) []byte {
	if a.Detached {
		return nil
	}
	return by.Member[:]
}

// id reads a member or a handle; nothing is zero.
func id(text string) (id member.ID) {
	copy(id[:], text)
	return id
}

// micros is a duration from the server; one that is past is 0.
func micros(us int64) time.Duration { return time.Duration(max(us, 0)) * time.Microsecond }
