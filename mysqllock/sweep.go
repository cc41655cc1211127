package mysqllock

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/dblock-go/dblock/db/mysqldb"
	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

const (
	sweepStep = 200 // rows that one statement deletes

	// What was seen unused may be in use when it is deleted: its row has changed since then. An
	// acquisition stamps the row with the time at which it began, so no less than it may take.
	leastUnused = time.Minute
)

// sweeper deletes rows that are not used any more.
type sweeper struct {
	*conns
	leases  *leaseRows
	readers *readerRows
	tickets *ticketRows
}

// Sweep tidies in small steps: rows are found without a lock, and deleted by their keys. Leases
// come before members: one whose member was gone when it was read is free for good.
func (d *leaseDriver) Sweep(ctx context.Context, unused time.Duration) (removed int64, err error) {
	older := max(unused, leastUnused).Microseconds()
	s := &sweeper{d.conns, d.leases, d.readers, d.tickets}
	for _, sweep := range []func(context.Context, int64) (int64, error){
		s.sweepLeases, s.sweepShared, s.sweepReaders, s.sweepTickets, s.sweepMembers, s.sweepWaiters,
	} {
		n, err := sweep(ctx, older)
		removed += n
		if err != nil {
			return removed, sqlerr.Unwritten(err) // no lease is granted or taken by it
		}
	}
	return removed, nil
}

func (s *sweeper) sweepLeases(ctx context.Context, older int64) (int64, error) {
	return s.steps(ctx,
		func(on mysqldb.DBTX, after []byte) ([][]byte, error) {
			return s.q.UnusedLeases(ctx, on, after, older, sweepStep)
		},
		func(on mysqldb.DBTX, keys [][]byte) (int64, error) { return s.q.SweepLeases(ctx, on, keys, older) })
}

func (s *sweeper) sweepMembers(ctx context.Context, older int64) (int64, error) {
	return s.steps(ctx,
		func(on mysqldb.DBTX, after []byte) ([][]byte, error) {
			return s.q.ExpiredMembers(ctx, on, after, older, sweepStep)
		},
		func(on mysqldb.DBTX, ids [][]byte) (int64, error) { return s.q.SweepMembers(ctx, on, ids, older) })
}

// steps finds and deletes along the primary key until nothing more is found.
func (s *sweeper) steps(
	ctx context.Context, find func(on mysqldb.DBTX, after []byte) ([][]byte, error),
	remove func(on mysqldb.DBTX, keys [][]byte) (int64, error),
) (removed int64, err error) {
	for after := []byte{}; ; {
		found, err := read(ctx, s.conns, func(on mysqldb.DBTX) ([][]byte, error) { return find(on, after) })
		if err != nil || len(found) == 0 {
			return removed, err
		}
		err = s.once(ctx, func(on mysqldb.DBTX) error {
			n, err := remove(on, found)
			removed += n
			return err
		})
		if err != nil {
			return removed, err
		}
		after = found[len(found)-1]
	}
}

// sweepShared removes keys that were shared once, in the steps of a writer: it makes itself the
// holder, and then looks for readers.
func (s *sweeper) sweepShared(ctx context.Context, older int64) (int64, error) {
	return s.steps(ctx,
		func(on mysqldb.DBTX, after []byte) ([][]byte, error) {
			return s.q.UnusedShared(ctx, on, after, older, sweepStep)
		},
		func(on mysqldb.DBTX, keys [][]byte) (int64, error) {
			handle := member.NewID()
			claimed, err := s.q.ClaimShared(ctx, on, keys, older, handle[:])
			if err != nil || claimed == 0 {
				return 0, err
			}
			read, err := s.q.KeysRead(ctx, on, keys)
			if err != nil {
				return 0, err // others may take them over
			}
			if err := s.unclaim(ctx, read, handle); err != nil {
				return 0, err
			}
			keys = slices.DeleteFunc(slices.Clone(keys), func(key []byte) bool {
				return slices.ContainsFunc(read, func(r []byte) bool { return bytes.Equal(r, key) })
			})
			if len(keys) == 0 {
				return 0, nil
			}
			return s.q.SweepClaimed(ctx, on, keys, handle[:])
		})
}

// unclaim gives keys back that have readers after all.
func (s *sweeper) unclaim(ctx context.Context, keys [][]byte, handle lease.Handle) error {
	if len(keys) == 0 {
		return nil
	}
	ours := make([]lease.ReleaseRequest, len(keys))
	for i, key := range keys {
		ours[i] = lease.ReleaseRequest{Key: string(key), Handle: handle}
	}
	_, err := s.leases.release(ctx, ours)
	return err
}

// sweepReaders ends those whose members were gone for good when they were read, or whose time was
// up.
func (s *sweeper) sweepReaders(ctx context.Context, older int64) (removed int64, err error) {
	for from := []byte{}; ; {
		found, err := read(ctx, s.conns, func(on mysqldb.DBTX) ([]mysqldb.UnusedReadersRow, error) {
			return s.q.UnusedReaders(ctx, on, from, older, sweepStep)
		})
		if err != nil || len(found) == 0 {
			return removed, err
		}
		ended := make([]lease.ReleaseRequest, len(found))
		for i, r := range found {
			ended[i] = lease.ReleaseRequest{Key: string(r.LeaseKey), Handle: id(string(r.Handle))}
		}
		n, err := s.readers.endShared(ctx, ended)
		removed += n
		if err != nil || n == 0 || len(found) < sweepStep {
			return removed, err // what is locked is left to the next sweep
		}
		from = found[len(found)-1].LeaseKey
	}
}

// sweepWaiters deletes one row a statement: their key has two parts, and they are few.
func (s *sweeper) sweepWaiters(ctx context.Context, _ int64) (removed int64, err error) {
	for from := []byte{}; ; {
		found, err := read(ctx, s.conns, func(on mysqldb.DBTX) ([]mysqldb.ExpiredWaitersRow, error) {
			return s.q.ExpiredWaiters(ctx, on, from, sweepStep)
		})
		if err != nil {
			return removed, err
		}
		for _, w := range found {
			err := s.once(ctx, func(on mysqldb.DBTX) error {
				n, err := s.q.SweepWaiter(ctx, on, w.LeaseKey, w.MemberID)
				removed += n
				return err
			})
			if err != nil {
				return removed, err
			}
			from = w.LeaseKey
		}
		if len(found) < sweepStep {
			return removed, nil
		}
	}
}

// sweepTickets deletes one row a statement, by its key.
func (s *sweeper) sweepTickets(ctx context.Context, _ int64) (removed int64, err error) {
	for {
		found, err := read(ctx, s.conns, func(on mysqldb.DBTX) ([]mysqldb.UnusedTicketsRow, error) {
			return s.q.UnusedTickets(ctx, on, sweepStep)
		})
		if err != nil {
			return removed, err
		}
		for _, q := range found {
			n, err := s.tickets.dropTicket(ctx, string(q.LeaseKey), q.Ticket)
			removed += n
			if err != nil {
				return removed, err
			}
		}
		if len(found) < sweepStep {
			return removed, nil
		}
	}
}
