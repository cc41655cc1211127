package lock

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/conformance/suite"
)

// lockedWaitersStallNoOthers: another transaction has locked the rows that say that a process waits for two keys. Waits for these begin
// and end all the time. The process learns of the release of a third key as it does without that transaction. A statement that waited for
// the rows would take 10 s.
func lockedWaitersStallNoOthers(t *testing.T, v *env) {
	a := v.process(t, LeaseOptions{TTL: time.Minute})
	b := v.process(t, LeaseOptions{TTL: time.Minute, Poll: time.Minute})
	keys := []string{"locked 1", "locked 2"}
	held := []*dblock.Lock{suite.Acquire(t, a, keys[0]), suite.Acquire(t, a, keys[1])}
	third := suite.Acquire(t, a, "free")
	ctx, end := context.WithCancel(suite.Soon(t))
	var waits sync.WaitGroup
	defer waits.Wait()
	defer end()
	first, endFirst := context.WithCancel(ctx)
	for _, key := range keys {
		waits.Go(func() {
			_, _ = b.Acquire(first, key)
			for ctx.Err() == nil {
				again, endAgain := context.WithTimeout(ctx, 100*time.Millisecond)
				_, _ = b.Acquire(again, key)
				endAgain()
			}
		})
	}
	v.waitUntilWaited(t, ctx, "locked%", 2)
	tx, err := v.db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted}) // it locks rows, and no gaps
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, "SELECT lease_key FROM dblock_lease_waiter FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	endFirst()

	began, got := time.Now(), make(chan *dblock.Lock, 1)
	go func() {
		lock, err := b.Acquire(ctx, "free")
		if err != nil {
			t.Error(err)
		}
		got <- lock
	}()
	v.waitUntilWaited(t, ctx, "free", 1)
	suite.Release(t, third)
	lock := <-got
	if took := time.Since(began); lock == nil || took > 8*time.Second {
		t.Errorf("a wait for another key took %v beside locked rows", took)
	}
	end()
	waits.Wait()
	if err := tx.Rollback(); err != nil {
		t.Error(err)
	}
	for _, l := range append(held, lock) {
		if l != nil {
			suite.Release(t, l)
		}
	}
}

// waitUntilWaited returns when the server has n rows of processes that wait for keys like that.
func (v *env) waitUntilWaited(t *testing.T, ctx context.Context, like string, n int64) {
	t.Helper()
	for v.count(t, "SELECT count(*) FROM dblock_lease_waiter WHERE lease_key LIKE '"+like+"'") < n {
		if ctx.Err() != nil {
			t.Fatalf("the server does not know that a process waits for %q", like)
		}
	}
}
