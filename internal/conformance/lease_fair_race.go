package conformance

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/devdb"
)

// whoGivesUpIsServed has a call give up while it is being served: what it got it must give back, or nobody ever would.
func whoGivesUpIsServed(t *testing.T, v *vault) {
	a, b := v.process(t, LeaseOptions{Fair: true}), v.process(t, LeaseOptions{Fair: true})
	held := acquire(t, a, "k")
	ctx, giveUp := context.WithCancel(soon(t))
	gone := make(chan error, 1)
	go func() {
		_, err := b.Acquire(ctx, "k")
		gone <- err
	}()
	for v.Tickets(t) == 0 {
		time.Sleep(time.Millisecond)
	}
	commit := v.serveByHand(t, "NULL")
	giveUp()
	// On a busy machine the ticket stands before its answer has arrived.
	if err := <-gone; !errors.Is(err, dblock.ErrOutcomeUnknown) {
		isHeld(t, err, "k")
	}
	v.awaitBlocked(t)
	commit()
	free, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	next, err := a.Acquire(free, "k")
	if err != nil {
		t.Fatalf("the key of one who gave up: %v", err)
	}
	release(t, next)
	_ = held.Release(t.Context()) // it knows of nothing
}

// serveByHand makes the key that of the only one who waits, in a transaction that is open until commit. Its end is an
// SQL expression.
func (v *vault) serveByHand(t *testing.T, until string) (commit func()) {
	t.Helper()
	tx, err := v.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	serve := "UPDATE dblock_lease l JOIN dblock_ticket q ON q.lease_key = l.lease_key SET l.token = l.token + 1, l.handle = q.handle, l.member_id = q.member_id, l.held_until = "
	if v.e.Kind == devdb.Postgres {
		serve = "UPDATE dblock_lease l SET token = l.token + 1, handle = q.handle, member_id = q.member_id, held_until = " + until +
			" FROM dblock_ticket q WHERE q.lease_key = l.lease_key"
	} else {
		serve += until
	}
	for _, statement := range []string{serve, "DELETE FROM dblock_ticket"} {
		if _, err := tx.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		if err := tx.Commit(); err != nil {
			t.Error(err)
		}
	}
}

// awaitBlocked waits until a statement of somebody's waits for a lock in this database.
func (v *vault) awaitBlocked(t *testing.T) {
	t.Helper()
	blocked := "SELECT count(*) FROM information_schema.innodb_trx x JOIN information_schema.processlist p ON p.id = x.trx_mysql_thread_id " +
		"WHERE x.trx_state = 'LOCK WAIT' AND p.db = DATABASE()"
	if v.e.Kind == devdb.Postgres {
		blocked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
	}
	for ctx := soon(t); v.count(t, blocked) == 0; {
		if ctx.Err() != nil {
			t.Fatal("nobody waits for a lock")
		}
		time.Sleep(150 * time.Millisecond) // what is read more often than every 100 ms, InnoDB does not bring up to date
	}
}

// servedTooLate has a call learn that it was served when its time is up already: what it has then is over, or anew,
// and never without an end.
func servedTooLate(t *testing.T, v *vault) {
	a, b := v.process(t, LeaseOptions{Fair: true}), v.process(t, LeaseOptions{Fair: true})
	held := acquire(t, a, "k")
	got := make(chan *dblock.Lock, 1)
	const hold = 500 * time.Millisecond
	go func() { got <- acquire(t, b, "k", dblock.WithMaxHold(hold)) }()
	for v.Tickets(t) == 0 {
		time.Sleep(time.Millisecond)
	}
	v.serveByHand(t, "'2000-01-01'")()
	lock := <-got
	if until := lock.ValidUntil(); time.Until(until) > hold {
		t.Errorf("it is valid for %v, and was to be held for %v", time.Until(until), hold)
	}
	_ = lock.Release(t.Context())
	_ = held.Release(t.Context()) // it knows of nothing
}
