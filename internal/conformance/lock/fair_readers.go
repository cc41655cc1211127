package lock

import (
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// aWaiterServedBesideReaders grants a key to a waiting call while a reader holds it, as a process of an older version may.
// The call does not take that for a grant: it gives the key back, waits again, and acquires it after the reader.
func aWaiterServedBesideReaders(t *testing.T, v *env) {
	reader := suite.Acquire(t, v.process(t, LeaseOptions{}), "k", dblock.WithShared())
	fair := v.process(t, LeaseOptions{Fair: true, Poll: 50 * time.Millisecond})
	acquired := make(chan *dblock.Lock, 1)
	go func() {
		lock, err := fair.Acquire(suite.Soon(t), "k")
		if err != nil {
			t.Error(err)
		}
		acquired <- lock
	}()
	v.waitsWithATicket(t, acquired)
	for !v.serveBesideReaders(t) {
		time.Sleep(time.Millisecond)
	}
	if lock := v.waitsWithATicket(t, acquired); lock != nil {
		if reader.Context().Err() == nil {
			t.Error("the key was acquired while a reader holds it")
		}
		suite.Release(t, lock)
		suite.Release(t, reader)
		return
	}
	suite.Release(t, reader)
	if lock := <-acquired; lock != nil {
		suite.Release(t, lock)
	}
}

// waitsWithATicket waits until a call waits with a ticket, or has ended.
func (v *env) waitsWithATicket(t *testing.T, acquired <-chan *dblock.Lock) *dblock.Lock {
	t.Helper()
	for {
		select {
		case lock := <-acquired:
			return lock
		case <-time.After(5 * time.Millisecond):
		}
		if v.count(t, "SELECT count(*) FROM dblock_ticket WHERE lease_key = 'k'") > 0 {
			return nil
		}
	}
}

// serveBesideReaders makes the key that of its only waiter, and deletes the ticket. It returns false if a writer has the
// row at the time.
func (v *env) serveBesideReaders(t *testing.T) bool {
	t.Helper()
	tx, err := v.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	r, err := tx.ExecContext(t.Context(), `UPDATE dblock_lease
		SET handle = (SELECT q.handle FROM dblock_ticket q WHERE q.lease_key = 'k'),
		    member_id = (SELECT q.member_id FROM dblock_ticket q WHERE q.lease_key = 'k')
		WHERE lease_key = 'k' AND shared AND handle IS NULL`)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := r.RowsAffected(); err != nil || n != 1 {
		return false
	}
	if _, err := tx.ExecContext(t.Context(), "DELETE FROM dblock_ticket WHERE lease_key = 'k'"); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	return true
}
