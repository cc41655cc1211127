package pglock

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dblock-go/dblock/internal/lease"
	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/internal/postgres"
	"github.com/dblock-go/dblock/internal/sqlerr"
	"github.com/dblock-go/dblock/internal/testdb"
	"github.com/dblock-go/dblock/migrations"
)

// TestPassesNothingOnBesideReaders releases a key that was granted over its readers, while a call
// waits with a ticket. It is not granted to that call: the readers are still there.
func TestPassesNothingOnBesideReaders(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	pool := testdb.Postgres(t)
	db := stdlib.OpenDBFromPool(pool)
	defer func() { _ = db.Close() }()
	_, err := migrations.Up(ctx, db, migrations.Options{})
	ok(err)
	e := newDriver(postgres.NewSchema(""), &postgres.Pool{Pool: pool}, &postgres.Pool{Pool: pool})
	us, them := lease.By{Member: member.NewID()}, lease.By{Member: member.NewID()}
	for _, by := range []lease.By{us, them} {
		ok(e.Register(ctx, by.Member, "", time.Hour))
	}
	ask := func() []lease.AcquireRequest { return []lease.AcquireRequest{{Key: "a", Handle: member.NewID()}} }
	reader, over, waiter := ask(), ask(), ask()
	got, err := e.acquireShared(ctx, them, reader)
	ok(err)
	if got[0].Token == 0 {
		t.Fatalf("a reader: %+v", got[0])
	}
	over[0].DespiteReaders = true
	got, err = e.acquireExclusive(ctx, us, over)
	ok(err)
	if got[0].Token == 0 {
		t.Fatalf("over readers: %+v", got[0])
	}
	tickets, err := e.enqueue(ctx, us, waiter)
	ok(err)
	returned, err := e.passOn(ctx, []lease.ReleaseRequest{{Key: "a", Handle: over[0].Handle}})
	ok(err)
	if !returned[0].Freed {
		t.Errorf("it was not given back: %+v", returned[0])
	}
	turn, err := e.Entry(ctx, "a", waiter[0].Handle, tickets[0].Ticket)
	ok(err)
	if turn.Token != 0 || turn.Held || !turn.Shared || !turn.Waits {
		t.Errorf("a waiter beside readers: %+v", turn)
	}
}

// TestALockedTicketFailsAlone: another transaction has locked a ticket. The batch that withdraws it
// is split, so a release beside it takes place.
func TestALockedTicketFailsAlone(t *testing.T) {
	t.Parallel()
	pool := testdb.Postgres(t)
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	db := stdlib.OpenDBFromPool(pool)
	defer func() { _ = db.Close() }()
	_, err := migrations.Up(t.Context(), db, migrations.Options{})
	ok(err)
	e := newDriver(postgres.NewSchema(""), &postgres.Pool{Pool: pool}, &postgres.Pool{Pool: pool})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	us := lease.By{Member: member.NewID()}
	ok(e.Register(ctx, us.Member, "us", time.Hour))
	waits, held := lease.AcquireRequest{Key: "locked", Handle: member.NewID()}, lease.AcquireRequest{Key: "free", Handle: member.NewID()}
	_, err = e.acquireExclusive(ctx, us, []lease.AcquireRequest{{Key: "locked", Handle: member.NewID()}, held})
	ok(err)
	_, err = e.enqueue(ctx, us, []lease.AcquireRequest{waits})
	ok(err)
	tx, err := db.BeginTx(ctx, nil)
	ok(err)
	defer func() { _ = tx.Rollback() }()
	_, err = tx.ExecContext(ctx, "SELECT ticket FROM dblock_ticket FOR UPDATE")
	ok(err)
	withdrawn, released := lease.ReleaseRequest{Key: "locked", Handle: waits.Handle}, lease.ReleaseRequest{Key: "free", Handle: held.Handle}
	if _, err := e.passOn(ctx, []lease.ReleaseRequest{withdrawn, released}); err == nil || e.Classify(err) != sqlerr.BadInput {
		t.Errorf("a batch with a locked ticket: %v, want an error that splits it", err)
	}
	if _, err := e.passOn(ctx, []lease.ReleaseRequest{withdrawn}); err == nil || e.Classify(err) != sqlerr.Busy {
		t.Errorf("the withdrawal of a locked ticket: %v, want a busy row", err)
	}
	got, err := e.passOn(ctx, []lease.ReleaseRequest{released})
	ok(err)
	if !got[0].Freed {
		t.Errorf("the other release: %+v", got)
	}
}

// TestReleasesABatchOfOneKey releases a holder and two waiters of one key at once. The key goes to
// the waiter that is not of the batch.
func TestReleasesABatchOfOneKey(t *testing.T) {
	t.Parallel()
	pool := testdb.Postgres(t)
	db := stdlib.OpenDBFromPool(pool)
	defer func() { _ = db.Close() }()
	_, err := migrations.Up(t.Context(), db, migrations.Options{})
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ok(err)
	e := newDriver(postgres.NewSchema(""), &postgres.Pool{Pool: pool}, &postgres.Pool{Pool: pool})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	us := lease.By{Member: member.NewID()}
	ok(e.Register(ctx, us.Member, "us", time.Hour))
	asks := make([]lease.AcquireRequest, 4)
	for i := range asks {
		asks[i] = lease.AcquireRequest{Key: "a", Handle: member.NewID()}
	}
	held, waits := asks[0], asks[1:]
	got, err := e.acquireExclusive(ctx, us, []lease.AcquireRequest{held})
	ok(err)
	if got[0].Token == 0 {
		t.Fatalf("a free key: %+v", got)
	}
	tickets, err := e.enqueue(ctx, us, waits)
	ok(err)
	returned, err := e.passOn(ctx, []lease.ReleaseRequest{
		{Key: "a", Handle: waits[0].Handle}, {Key: "a", Handle: held.Handle}, {Key: "a", Handle: waits[1].Handle},
	})
	ok(err)
	if freed := slices.IndexFunc(returned, func(r lease.ReleaseResult) bool { return r.Freed }); freed != 1 || returned[0].Held || returned[2].Freed {
		t.Errorf("released: %+v", returned)
	}
	for i, w := range waits {
		turn, err := e.Entry(ctx, "a", w.Handle, tickets[i].Ticket)
		ok(err)
		if granted := turn.Token != 0; granted != (i == 2) || turn.Waits {
			t.Errorf("waiter %d: %+v", i, turn)
		}
	}
}
