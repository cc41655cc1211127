package mysqllock

import (
	"cmp"
	"context"
	"database/sql"
	"errors"

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
	next, err := d.tickets.nextOf(ctx, []lease.ReleaseRequest{{Key: key}})
	if err != nil {
		return false, err
	}
	served, err := d.tickets.grantNext(ctx, lease.ReleaseRequest{Key: key}, next[key], func(on mysqldb.DBTX, ticket int64) (int64, error) {
		return d.q.Serve(ctx, on, []byte(key), gone[:], ticket)
	})
	if served != 0 {
		_, _ = d.tickets.dropTicket(ctx, key, served) // it counts no more: else it is swept away
	}
	return served != 0, err
}

// nextOf returns the tickets of the next waiters of keys, beside those that are released.
func (t *ticketRows) nextOf(ctx context.Context, backs []lease.ReleaseRequest) (next map[string]int64, err error) {
	var args []any
	for i := range backs {
		args = append(args, []byte(backs[i].Key), backs[i].Handle[:])
	}
	return read(ctx, t.conns, func(on mysqldb.DBTX) (map[string]int64, error) {
		next := make(map[string]int64, len(backs))
		return next, mysql.QueryEach(ctx, on, mysqldb.NextTickets, args, func(row *sql.Rows) error {
			var key string
			var ticket int64
			err := row.Scan(&key, &ticket)
			if ticket != 0 {
				next[key] = ticket
			}
			return err
		})
	})
}

// grantNext grants a key to the next waiter, and returns its ticket; 0: there is none, or the key
// is not free. A ticket changes only while the lease's row is locked, so it may be read before.
func (t *ticketRows) grantNext(
	ctx context.Context, b lease.ReleaseRequest, ticket int64, grant func(on mysqldb.DBTX, ticket int64) (int64, error),
) (served int64, err error) {
	for tried := int64(0); ticket != 0 && ticket != tried; {
		var rows int64
		err = t.once(ctx, func(on mysqldb.DBTX) (err error) {
			rows, err = grant(on, ticket)
			return err
		})
		if err != nil || rows > 0 {
			return ticket * min(rows, 1), err
		}
		next, err := t.nextOf(ctx, []lease.ReleaseRequest{b}) // the ticket may have been withdrawn; then there is another one
		if err != nil {
			return 0, err
		}
		tried, ticket = ticket, next[b.Key]
	}
	return 0, nil
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

// passOnAll withdraws what may wait still: without a ticket it is granted no more. Of the keys that
// the batch holds, those without a waiter are freed together. Each of the others is passed on by
// itself.
func (t *ticketRows) passOnAll(ctx context.Context, backs []lease.ReleaseRequest) ([]lease.ReleaseResult, error) {
	if err := t.withdraw(ctx, lease.MayWait(backs)); err != nil {
		return nil, ofBatch(err, len(backs))
	}
	results := make([]lease.ReleaseResult, len(backs))
	held, err := t.heldOf(ctx, backs)
	if err != nil {
		return nil, err
	}
	next, err := t.nextOf(ctx, pick(backs, held))
	if err != nil {
		return nil, err
	}
	var idle []int
	served := make([]int64, len(backs))
	var all errgroup.Group
	all.SetLimit(t.passers())
	for _, i := range held {
		b := backs[i]
		if next[b.Key] == 0 {
			idle = append(idle, i)
			continue
		}
		all.Go(func() (err error) {
			served[i], err = t.grantNext(ctx, b, next[b.Key], func(on mysqldb.DBTX, ticket int64) (int64, error) {
				return t.q.HandOff(ctx, on, []byte(b.Key), b.Handle[:], ticket)
			})
			return err
		})
	}
	err = all.Wait()
	var drops []any
	for _, i := range held {
		switch key := backs[i].Key; {
		case served[i] != 0:
			results[i].Freed = true
			drops = append(drops, []byte(key), served[i])
		case next[key] != 0:
			idle = append(idle, i) // its waiter has left
		}
	}
	passed := len(drops) > 0
	if passed {
		_ = t.dropTickets(ctx, drops) // they are served and count no more: else they are swept away
	}
	if err == nil && len(idle) > 0 {
		var freed []lease.ReleaseResult
		if freed, err = t.release(ctx, pick(backs, idle)); err == nil {
			for n, i := range idle {
				results[i] = freed[n]
			}
		}
	}
	if err != nil {
		return nil, half(err, passed)
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
	return sqlerr.Unwritten(t.dropTickets(ctx, args))
}

// dropTickets deletes tickets: a key and a ticket each.
func (t *ticketRows) dropTickets(ctx context.Context, args []any) error {
	return t.bounded(ctx, mysql.AtOnce, func(on mysqldb.DBTX) error {
		_, err := on.ExecContext(ctx, mysqldb.DropTickets, args...)
		return err
	})
}
