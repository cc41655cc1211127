package mysqllock

import (
	"github.com/dblock-go/dblock/internal/devdb"
	"slices"
	"testing"

	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/sqlerr"
)

// TestPassesNothingOnBesideReaders releases a key that was granted over its readers, while a call
// waits with a ticket. It is not granted to that call: the readers are still there.
func TestPassesNothingOnBesideReaders(t *testing.T) {
	each(t, plain, func(r rig) {
		us, them := r.join("us"), r.join("them")
		r.enterShared(them, ask("a"))
		over := ask("a")
		over.DespiteReaders = true
		if got := r.acquire(us, over)[0]; got.Token == 0 {
			r.Fatalf("over readers: %+v", got)
		}
		waiter := ask("a")
		tickets, err := r.tickets.enqueue(r.ctx, us, []lease.AcquireRequest{waiter})
		r.ok(err)
		returned, err := r.tickets.passOnAll(r.ctx, []lease.ReleaseRequest{{Key: "a", Handle: over.Handle}})
		r.ok(err)
		if !returned[0].Freed {
			r.Errorf("it was not given back: %+v", returned[0])
		}
		turn, err := r.Entry(r.ctx, "a", waiter.Handle, tickets[0].Ticket)
		r.ok(err)
		if turn.Token != 0 || turn.Held || !turn.Shared || !turn.Waits {
			r.Errorf("a waiter beside readers: %+v", turn)
		}
	})
}

// TestALockedTicketFailsAlone: another transaction has locked a ticket. The batch that withdraws it
// is split, so a release beside it takes place.
func TestALockedTicketFailsAlone(t *testing.T) {
	each(t, plain, func(r rig) {
		us := r.join("us")
		waits, held := lease.AcquireRequest{Key: "locked", Handle: member.NewID()}, lease.AcquireRequest{Key: "free", Handle: member.NewID()}
		r.acquire(us, lease.AcquireRequest{Key: "locked", Handle: member.NewID()}, held)
		_, err := r.tickets.enqueue(r.ctx, us, []lease.AcquireRequest{waits})
		r.ok(err)
		tx, err := r.db.BeginTx(r.ctx, nil)
		r.ok(err)
		defer func() { _ = tx.Rollback() }()
		_, err = tx.ExecContext(r.ctx, "SELECT ticket FROM dblock_ticket FOR UPDATE")
		r.ok(err)
		withdrawn, released := lease.ReleaseRequest{Key: "locked", Handle: waits.Handle}, lease.ReleaseRequest{Key: "free", Handle: held.Handle}
		if _, err := r.tickets.passOnAll(r.ctx, []lease.ReleaseRequest{withdrawn, released}); err == nil || r.Classify(err) != sqlerr.BadInput {
			r.Errorf("a batch with a locked ticket: %v, want an error that splits it", err)
		}
		if _, err := r.tickets.passOnAll(r.ctx, []lease.ReleaseRequest{withdrawn}); err == nil || r.Classify(err) != sqlerr.Busy {
			r.Errorf("the withdrawal of a locked ticket: %v, want a busy row", err)
		}
		got, err := r.tickets.passOnAll(r.ctx, []lease.ReleaseRequest{released})
		r.ok(err)
		if !got[0].Freed {
			r.Errorf("the other release: %+v", got)
		}
	})
}

// TestWaitsForTheCounterOfTickets: another session's statement of several rows keeps the lock of
// the AUTO_INCREMENT counter, as MariaDB does by default. A call without a ticket is busy, and
// tries again.
func TestWaitsForTheCounterOfTickets(t *testing.T) {
	each(t, plain, func(r rig) {
		us, waits := r.join("us"), ask("a")
		slow := make(chan error, 1)
		go func() {
			_, err := r.db.ExecContext(r.ctx, "INSERT INTO dblock_ticket (lease_key, handle, member_id, detached, hold_us, label) "+
				"SELECT 'other', UNHEX(REPLACE(UUID(), '-', '')), UNHEX(REPLACE(UUID(), '-', '')), true, 0, '' "+
				"FROM (SELECT 1 AS n UNION ALL SELECT 2) two WHERE n = 1 OR SLEEP(3) = 0")
			slow <- err
		}()
		const sleeps = "SELECT COUNT(*) FROM " + devdb.Processlist + " WHERE db = DATABASE() AND state = 'User sleep'"
		for n := 0; n == 0; {
			r.ok(r.db.QueryRowContext(r.ctx, sleeps).Scan(&n))
		}
		_, err := r.tickets.enqueue(r.ctx, us, []lease.AcquireRequest{waits})
		if err != nil && r.Classify(err) != sqlerr.Busy {
			r.Errorf("beside the slow statement: %v, of class %v, want it busy", err, r.Classify(err))
		}
		r.ok(<-slow)
		if err == nil {
			return
		}
		tickets, err := r.tickets.enqueue(r.ctx, us, []lease.AcquireRequest{waits})
		r.ok(err)
		if tickets[0].Ticket == 0 {
			r.Errorf("after it: %+v", tickets)
		}
	})
}

// TestReleasesABatchOfOneKey releases a holder and two waiters of one key at once. The key goes to
// the waiter that is not of the batch.
func TestReleasesABatchOfOneKey(t *testing.T) {
	each(t, plain, func(r rig) {
		us := r.join("us")
		held := ask("a")
		if got := r.acquire(us, held)[0]; got.Token == 0 {
			r.Fatalf("a free key: %+v", got)
		}
		waits := []lease.AcquireRequest{ask("a"), ask("a"), ask("a")}
		tickets, err := r.tickets.enqueue(r.ctx, us, waits)
		r.ok(err)
		returned, err := r.tickets.passOnAll(r.ctx, []lease.ReleaseRequest{
			{Key: "a", Handle: waits[0].Handle}, {Key: "a", Handle: held.Handle}, {Key: "a", Handle: waits[1].Handle},
		})
		r.ok(err)
		if want := []lease.ReleaseResult{{}, {Freed: true}, {}}; !slices.Equal(returned, want) {
			r.Errorf("released: %+v, want %+v", returned, want)
		}
		for i, w := range waits {
			turn, err := r.Entry(r.ctx, "a", w.Handle, tickets[i].Ticket)
			r.ok(err)
			if granted := turn.Token != 0; granted != (i == 2) || turn.Waits {
				r.Errorf("waiter %d: %+v", i, turn)
			}
		}
	})
}
