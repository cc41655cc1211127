package mysqllock

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/mysql"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// enqueue is one INSERT for the batch, and one SELECT for its tickets. A release may serve a
// ticket, and drop it, between the two. Such a call gets number 1, which comes before all others:
// it has the key.
func (t *ticketRows) enqueue(ctx context.Context, by lease.By, asks []lease.AcquireRequest) ([]lease.AcquireResult, error) {
	args := []any{by.Member[:], by.Heartbeat}
	var keys, handles [][]byte
	for i, a := range asks {
		detached := int64(0)
		if a.Detached {
			detached = 1
		}
		args = append(args, int64(i), []byte(a.Key), a.Handle[:], detached, a.Hold.Microseconds(), []byte(a.Label), a.Data)
		keys, handles = append(keys, []byte(a.Key)), append(handles, a.Handle[:])
	}
	var noted int64
	err := t.grant(ctx, func(on mysqldb.DBTX) (err error) {
		noted, _, err = execChange(ctx, on, mysqldb.Enqueue, args)
		return err
	})
	tickets := make([]lease.AcquireResult, len(asks))
	if err != nil || noted == 0 {
		return tickets, ofBatch(err, len(asks))
	}
	if noted != int64(len(asks)) {
		return nil, errUnseen
	}
	rows, err := read(ctx, t.conns, func(on mysqldb.DBTX) ([]mysqldb.TicketsOfRow, error) {
		return t.q.TicketsOf(ctx, on, keys, handles)
	})
	if err != nil {
		return nil, half(err, true)
	}
	given := make(map[member.ID]int64, len(rows))
	for _, r := range rows {
		given[id(string(r.Handle))] = r.Ticket
	}
	for i, a := range asks {
		tickets[i].Ticket = cmp.Or(given[a.Handle], 1) // a ticket that is gone already was served
	}
	return tickets, nil
}

// acquireUnticketed is acquireExclusive for the requests whose keys have no tickets. For the others
// it names the holders.
func (t *ticketRows) acquireUnticketed(ctx context.Context, by lease.By, asks []lease.AcquireRequest) ([]lease.AcquireResult, error) {
	queued, err := read(ctx, t.conns, func(on mysqldb.DBTX) ([][]byte, error) {
		return t.q.QueuedKeys(ctx, on, askedKeys(asks))
	})
	if err != nil {
		return nil, err
	}
	waits := make(map[string]bool, len(queued))
	for _, key := range queued {
		waits[string(key)] = true
	}
	results := make([]lease.AcquireResult, len(asks))
	var behind, first []int
	for i, a := range asks {
		if waits[a.Key] {
			behind = append(behind, i)
		} else {
			first = append(first, i)
		}
	}
	if len(behind) > 0 {
		seen := make([]lease.AcquireResult, len(behind))
		if _, err := t.see(ctx, by, pick(asks, behind), seen, 0); err != nil {
			return nil, err
		}
		for n, i := range behind {
			results[i] = seen[n]
		}
	}
	alone := pick(asks, first)
	for n := range alone {
		alone[n].NoTickets = false
	}
	return t.acquireAt(ctx, by, alone, first, results)
}

// pick returns those at the given places.
func pick[T any](of []T, at []int) []T {
	picked := make([]T, len(at))
	for n, i := range at {
		picked[n] = of[i]
	}
	return picked
}

// Entry reads one row.
func (d *leaseDriver) Entry(ctx context.Context, key string, handle lease.Handle, ticket int64) (lease.QueueEntry, error) {
	r, err := read(ctx, d.conns, func(on mysqldb.DBTX) (mysqldb.ReadTicketRow, error) {
		return d.q.ReadTicket(ctx, on, mysqldb.ReadTicketParams{Handle: handle[:], Ticket: ticket, Waiting: handle[:], LeaseKey: []byte(key)})
	})
	if errors.Is(err, sql.ErrNoRows) {
		return lease.QueueEntry{Missing: true, Waits: true}, nil
	}
	return lease.QueueEntry{
		AcquireResult: lease.AcquireResult{
			Token: r.Granted, Handle: id(r.Handle.String), Held: r.Held == 1, Shared: r.Shared && (r.Held == 0 || r.HolderDead == 1), Holder: lease.Holder{
				Member: id(r.MemberID.String), Label: string(r.Label), Token: r.Token, Dead: r.HolderDead == 1, Remaining: micros(r.RemainingUs),
			},
		},
		Remaining: micros(r.HoldUs), Waits: r.Waits,
	}, err
}

// Serve is an UPDATE of the row that is free and of the ticket.
func (d *leaseDriver) Serve(ctx context.Context, key string, gone member.ID) (bool, error) {
	return d.tickets.next(ctx, key, lease.Handle{}, func(on mysqldb.DBTX, ticket int64) (int64, error) {
		return d.q.Serve(ctx, on, []byte(key), gone[:], ticket)
	})
}

// next grants a key to the next waiter, and drops its ticket. It returns false if there is none, or
// if the key is not free. A ticket changes only while the lease's row is locked, so it may be read
// before.
func (t *ticketRows) next(
	ctx context.Context, key string, but lease.Handle, grant func(on mysqldb.DBTX, ticket int64) (int64, error),
) (bool, error) {
	for tried := int64(0); ; {
		ticket, err := read(ctx, t.conns, func(on mysqldb.DBTX) (int64, error) {
			return t.q.NextTicket(ctx, on, []byte(key), but[:])
		})
		if errors.Is(err, sql.ErrNoRows) || err == nil && ticket == tried {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		var rows int64
		err = t.once(ctx, func(on mysqldb.DBTX) (err error) {
			rows, err = grant(on, ticket)
			return err
		})
		if err != nil {
			return false, err
		}
		if rows > 0 {
			_, _ = t.dropTicket(ctx, key, ticket) // it is served and counts no more: else it is swept away
			return true, nil
		}
		tried = ticket // it may have been withdrawn; then there is another one
	}
}

func (t *ticketRows) dropTicket(ctx context.Context, key string, ticket int64) (dropped int64, err error) {
	err = t.once(ctx, func(on mysqldb.DBTX) (err error) {
		dropped, err = t.q.DropTicket(ctx, on, []byte(key), ticket)
		return err
	})
	return dropped, err
}

const maxPassers = 8

// passers is how many keys of a batch are passed on at once: commits of several sessions share a
// flush of the server. Half of a small pool is left to others.
func (t *ticketRows) passers() int {
	if most := t.db.Stats().MaxOpenConnections; most > 0 {
		return max(1, min(maxPassers, most/2))
	}
	return maxPassers
}

// passOnAll withdraws what may wait still: without a ticket it is granted no more. Then each key
// that one of the batch holds is passed on by itself, as each may go to another waiter.
func (t *ticketRows) passOnAll(ctx context.Context, backs []lease.ReleaseRequest) ([]lease.ReleaseResult, error) {
	if err := t.withdraw(ctx, lease.MayWait(backs)); err != nil {
		return nil, ofBatch(err, len(backs))
	}
	results := make([]lease.ReleaseResult, len(backs))
	held, err := t.heldOf(ctx, backs)
	if err != nil {
		return nil, err
	}
	var passed atomic.Bool
	var all errgroup.Group
	all.SetLimit(t.passers())
	for _, i := range held {
		all.Go(func() (err error) {
			if results[i], err = t.passOn(ctx, backs[i]); err == nil {
				passed.Store(true)
			}
			return err
		})
	}
	if err = all.Wait(); err != nil {
		return nil, half(err, passed.Load())
	}
	return results, nil
}

// heldOf returns the places of those that hold their keys, or may: what was granted needs no look.
func (t *ticketRows) heldOf(ctx context.Context, backs []lease.ReleaseRequest) (held []int, err error) {
	unsure := lease.MayWait(backs)
	if len(unsure) == 0 {
		return places(len(backs)), nil
	}
	rows, err := read(ctx, t.conns, func(on mysqldb.DBTX) ([]mysqldb.LeaseHandlesRow, error) {
		return t.q.LeaseHandles(ctx, on, keysOf(unsure))
	})
	holds := make(map[string]member.ID, len(rows))
	for _, r := range rows {
		holds[string(r.LeaseKey)] = id(r.Handle.String)
	}
	for i, b := range backs {
		if b.Token != 0 || holds[b.Key] == b.Handle {
			held = append(held, i)
		}
	}
	return held, err
}

// passOn gives a key to the next waiter, or back if there is none.
func (t *ticketRows) passOn(ctx context.Context, b lease.ReleaseRequest) (lease.ReleaseResult, error) {
	passed, err := t.next(ctx, b.Key, b.Handle, func(on mysqldb.DBTX, ticket int64) (int64, error) {
		return t.q.HandOff(ctx, on, []byte(b.Key), b.Handle[:], ticket)
	})
	if passed || err != nil {
		return lease.ReleaseResult{Freed: passed}, err
	}
	got, err := t.release(ctx, []lease.ReleaseRequest{b})
	if err != nil {
		return lease.ReleaseResult{}, err
	}
	return got[0], nil
}

// withdraw ends what waits.
func (t *ticketRows) withdraw(ctx context.Context, backs []lease.ReleaseRequest) error {
	if len(backs) == 0 {
		return nil
	}
	rows, err := read(ctx, t.conns, func(on mysqldb.DBTX) ([]mysqldb.TicketsOfRow, error) {
		return t.q.TicketsOf(ctx, on, keysOf(backs), handlesIn(backs))
	})
	if err != nil || len(rows) == 0 {
		return err
	}
	var args []any
	for _, r := range rows {
		args = append(args, r.LeaseKey, r.Ticket)
	}
	return sqlerr.Unwritten(t.bounded(ctx, mysql.AtOnce, func(on mysqldb.DBTX) error {
		_, err := on.ExecContext(ctx, mysqldb.DropTickets, args...)
		return err
	}))
}
