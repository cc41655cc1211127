package lock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/devdb"
	"github.com/dblock-go/dblock/internal/faultconn"
)

// whoGivesUpIsServed has a call give up while it is being served: what it got it must give back, or nobody ever would.
func whoGivesUpIsServed(t *testing.T, v *env) {
	a, dialer := v.process(t, LeaseOptions{Fair: true}), &faultconn.Dialer{Watch: "Tickets :execrows"} // of the statements that withdraw
	b, closePool, err := v.e.OpenOn(t.Context(), v.dsn, dialer, LeaseOptions{Fair: true})
	if err != nil {
		t.Fatal(err)
	}
	defer closePool()
	defer func() { _ = b.Close(t.Context()) }()
	held := suite.Acquire(t, a, "k")
	ctx, giveUp := context.WithCancel(suite.Soon(t))
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
		suite.IsHeld(t, err, "k")
	}
	v.awaitWithdrawal(t, dialer)
	commit()
	free, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	next, err := a.Acquire(free, "k")
	if err != nil {
		t.Fatalf("the key of one who gave up: %v", err)
	}
	suite.Release(t, next)
	_ = held.Release(t.Context()) // it knows of nothing
}

// serveByHand makes the key that of the only one who waits, in a transaction that is open until commit. Its end is an
// SQL expression.
func (v *env) serveByHand(t *testing.T, until string) (commit func()) {
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

// awaitWithdrawal waits until a withdrawal has met the locked ticket. On Postgres it waits for the lock. On MySQL and MariaDB it fails
// at once, and is sent again.
func (v *env) awaitWithdrawal(t *testing.T, dialer *faultconn.Dialer) {
	t.Helper()
	hasMet := func() bool { return dialer.Watched() >= 2 }
	if v.e.Kind == devdb.Postgres {
		hasMet = func() bool {
			return v.count(t, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") > 0
		}
	}
	for ctx := suite.Soon(t); !hasMet(); time.Sleep(time.Millisecond) {
		if ctx.Err() != nil {
			t.Fatal("no withdrawal has met the locked ticket")
		}
	}
}

// servedTooLate has a call learn that it was served when its time is up already: what it has then is over, or anew,
// and never without an end.
func servedTooLate(t *testing.T, v *env) {
	a, b := v.process(t, LeaseOptions{Fair: true}), v.process(t, LeaseOptions{Fair: true})
	held := suite.Acquire(t, a, "k")
	got := make(chan *dblock.Lock, 1)
	const hold = 500 * time.Millisecond
	go func() { got <- suite.Acquire(t, b, "k", dblock.WithMaxHold(hold)) }()
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
