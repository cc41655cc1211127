package lock

import (
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// aWaitingWriterDied kills a writer that has made itself the holder of a key and waits for a
// reader. When the reader has gone, a call that wants a set of keys acquires the key, and so does a
// call that waits with a ticket.
func aWaitingWriterDied(t *testing.T, v *env) {
	reader := suite.Acquire(t, v.process(t, LeaseOptions{}), "k", dblock.WithShared())
	fair := v.process(t, LeaseOptions{Fair: true, Poll: 50 * time.Millisecond})
	inTurn := make(chan *dblock.Lock, 1)
	go func() {
		lock, err := fair.Acquire(suite.Soon(t), "k")
		if err != nil {
			t.Errorf("in turn: %v", err)
		}
		inTurn <- lock
	}()
	v.waitsWithATicket(t, inTurn)
	for !v.writerDies(t) {
		time.Sleep(time.Millisecond)
	}
	suite.Release(t, reader)
	if lock := <-inTurn; lock != nil {
		suite.Release(t, lock)
	}

	sets := v.process(t, LeaseOptions{})
	reader = suite.Acquire(t, sets, "k", dblock.WithShared())
	for !v.writerDies(t) {
		time.Sleep(time.Millisecond)
	}
	suite.Release(t, reader)
	lock, err := sets.AcquireAll(suite.Soon(t), []string{"j", "k"})
	if err != nil {
		t.Errorf("a set: %v", err)
		return
	}
	suite.Release(t, lock)
}

// writerDies has the key k held by a member that does not exist and that waits for the key's
// reader. It returns false if another writer has the row at the time.
func (v *env) writerDies(t *testing.T) bool {
	t.Helper()
	r, err := v.db.ExecContext(t.Context(), `UPDATE dblock_lease
		SET handle = (SELECT r.handle FROM dblock_reader r WHERE r.lease_key = 'k'),
		    member_id = (SELECT r.handle FROM dblock_reader r WHERE r.lease_key = 'k')
		WHERE lease_key = 'k' AND shared AND handle IS NULL`)
	if err != nil {
		t.Fatal(err)
	}
	n, err := r.RowsAffected()
	return err == nil && n == 1
}
