package mysqllock

import (
	"context"
	"database/sql"
	"errors"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
)

// Enqueue is one INSERT for the batch, and one SELECT for its tickets.
func (e *engine) Enqueue(ctx context.Context, by lease.By, asks []lease.Ask) ([]int64, error) {
	args := []any{by.Member[:], by.Beat}
	var keys, handles [][]byte
	for i, a := range asks {
		detached := int64(0)
		if a.Detached {
			detached = 1
		}
		args = append(args, int64(i), []byte(a.Key), a.Handle[:], detached, a.Hold.Microseconds(), []byte(a.Label), a.Data)
		keys, handles = append(keys, []byte(a.Key)), append(handles, a.Handle[:])
	}
	noted, _, err := e.change(ctx, repeated(mysqldb.Enqueue, len(asks)), args)
	tickets := make([]int64, len(asks))
	if err != nil || noted == 0 {
		return tickets, err
	}
	var rows []mysqldb.TicketsOfRow
	err = e.read(ctx, func(on mysqldb.DBTX) (err error) {
		rows, err = e.q.TicketsOf(ctx, on, keys, handles)
		return err
	})
	if err != nil {
		return nil, half(err, true)
	}
	given := make(map[member.ID]int64, len(rows))
	for _, r := range rows {
		given[id(string(r.Handle))] = r.Ticket
	}
	for i, a := range asks {
		tickets[i] = given[a.Handle]
	}
	return tickets, nil
}

// inTurn is Acquire for those whose keys nobody has a ticket for; the others are told who has them.
func (e *engine) inTurn(ctx context.Context, by lease.By, asks []lease.Ask) ([]lease.Answer, error) {
	keys := make([][]byte, len(asks))
	for i, a := range asks {
		keys[i] = []byte(a.Key)
	}
	var queued [][]byte
	err := e.read(ctx, func(on mysqldb.DBTX) (err error) {
		queued, err = e.q.QueuedKeys(ctx, on, keys)
		return err
	})
	if err != nil {
		return nil, err
	}
	waits := make(map[string]bool, len(queued))
	for _, key := range queued {
		waits[string(key)] = true
	}
	answers := make([]lease.Answer, len(asks))
	var behind, first []int
	for i, a := range asks {
		if waits[a.Key] {
			behind = append(behind, i)
		} else {
			first = append(first, i)
		}
	}
	if len(behind) > 0 {
		seen := make([]lease.Answer, len(behind))
		if _, err := e.see(ctx, by, pick(asks, behind), seen, 0); err != nil {
			return nil, err
		}
		for n, i := range behind {
			answers[i] = seen[n]
		}
	}
	if len(first) == 0 {
		return answers, nil
	}
	alone := pick(asks, first)
	for n := range alone {
		alone[n].InTurn = false
	}
	got, err := e.Acquire(ctx, by, alone)
	if err != nil {
		return nil, err
	}
	for n, i := range first {
		answers[i] = got[n]
	}
	return answers, nil
}

// pick returns those at the given places.
func pick[T any](of []T, at []int) []T {
	picked := make([]T, len(at))
	for n, i := range at {
		picked[n] = of[i]
	}
	return picked
}

// SeeTurn reads one row.
func (e *engine) SeeTurn(ctx context.Context, key string, handle lease.Handle, ticket int64) (lease.Turn, error) {
	var r mysqldb.SeeTurnRow
	err := e.read(ctx, func(on mysqldb.DBTX) (err error) {
		r, err = e.q.SeeTurn(ctx, on, mysqldb.SeeTurnParams{Handle: handle[:], Ticket: ticket, Waiting: handle[:], LeaseKey: []byte(key)})
		return err
	})
	if errors.Is(err, sql.ErrNoRows) {
		return lease.Turn{Missing: true, Waits: true}, nil
	}
	return lease.Turn{
		Answer: lease.Answer{
			Token: r.Granted, Held: r.Held == 1, Shared: r.Shared && r.Held == 0, Holder: lease.Holder{
				Member: id(r.MemberID.String), Label: string(r.Label), Token: r.Token, Dead: r.HolderDead == 1, Remaining: micros(r.RemainingUs),
			},
		},
		Left: micros(r.HoldUs), Waits: r.Waits,
	}, err
}

// Serve is an UPDATE of the row that is free and of the ticket.
func (e *engine) Serve(ctx context.Context, key string, gone member.ID) (bool, error) {
	return e.next(ctx, key, lease.Handle{}, func(on mysqldb.DBTX, ticket int64) (int64, error) {
		return e.q.Serve(ctx, on, []byte(key), gone[:], ticket)
	})
}

// next has a key granted to the next one who waits, and drops its ticket; false where nobody does, or the key is not
// to be had. Only who has the lease's row locked changes a ticket, so it does not matter that it was read before.
func (e *engine) next(
	ctx context.Context, key string, but lease.Handle, grant func(on mysqldb.DBTX, ticket int64) (int64, error),
) (bool, error) {
	for tried := int64(0); ; {
		var ticket, rows int64
		err := e.read(ctx, func(on mysqldb.DBTX) (err error) {
			ticket, err = e.q.NextTicket(ctx, on, []byte(key), but[:])
			return err
		})
		if errors.Is(err, sql.ErrNoRows) || err == nil && ticket == tried {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		err = e.once(ctx, func(on mysqldb.DBTX) (err error) {
			rows, err = grant(on, ticket)
			return err
		})
		if err != nil {
			return false, err
		}
		if rows > 0 {
			_, _ = e.dropTicket(ctx, key, ticket) // it is served and counts no more: else it is swept away
			return true, nil
		}
		tried = ticket // it may have been withdrawn; then there is another one
	}
}

func (e *engine) dropTicket(ctx context.Context, key string, ticket int64) (dropped int64, err error) {
	err = e.once(ctx, func(on mysqldb.DBTX) (err error) {
		dropped, err = e.q.DropTicket(ctx, on, []byte(key), ticket)
		return err
	})
	return dropped, err
}

// PassOn gives one after the other back, as each may go to another one.
func (e *engine) PassOn(ctx context.Context, backs []lease.Back) ([]lease.Returned, error) {
	answers := make([]lease.Returned, len(backs))
	for i, b := range backs {
		var err error
		if answers[i], err = e.passOn(ctx, b); err != nil {
			return nil, half(err, i > 0)
		}
	}
	return answers, nil
}

// passOn gives a key to who waits for it, or back where nobody does. What was not held may wait still: it is
// withdrawn. It may have been granted before that, even where its ticket is gone already, and so is looked for once
// more.
func (e *engine) passOn(ctx context.Context, b lease.Back) (lease.Returned, error) {
	for n := 1; ; n++ {
		passed, err := e.next(ctx, b.Key, b.Handle, func(on mysqldb.DBTX, ticket int64) (int64, error) {
			return e.q.PassOn(ctx, on, []byte(b.Key), b.Handle[:], ticket)
		})
		if passed || err != nil {
			return lease.Returned{Freed: passed}, err
		}
		got, err := e.Release(ctx, []lease.Back{b})
		if err != nil || got[0].Freed || got[0].Stood {
			return got[0], err
		}
		if n == 2 { // without a ticket it is granted no more
			return lease.Returned{}, nil
		}
		if err := e.withdraw(ctx, b); err != nil {
			return lease.Returned{}, err
		}
	}
}

// withdraw ends what waits.
func (e *engine) withdraw(ctx context.Context, b lease.Back) error {
	var rows []mysqldb.TicketsOfRow
	err := e.read(ctx, func(on mysqldb.DBTX) (err error) {
		rows, err = e.q.TicketsOf(ctx, on, [][]byte{[]byte(b.Key)}, [][]byte{b.Handle[:]})
		return err
	})
	if err != nil || len(rows) == 0 {
		return err
	}
	_, err = e.dropTicket(ctx, b.Key, rows[0].Ticket)
	return err
}
